"""The files of a trial: the whole protocol between the driver, the launchers and the trial's processes.

Each file has one writer, and is written aside and renamed, or appended a whole line at a time (`sweeps.files`):

    .hydra/                 the composed config and its overrides, as Hydra writes them         (trial)
    trial.json              which trial it is, as the journal says                          (driver)
    metrics.jsonl           one line an epoch: {"step", "time", "metrics"}                      (chief)
    system_metrics.jsonl    one line a sample: {"step", "time", "metrics"}                      (chief)
    system_metrics.<r>.jsonl    the same of the other nodes, by rank r, the first process there (rank)
    notes.json              what a reader of its results must know, see `Trial.note`            (chief)
    model/                  what the trainer kept of it, as mlflow.<flavor>.save_model writes   (chief)
    checkpoint/             the newest state of the training                                    (trial)
    tracking.json           which MLflow run this is, and whether it is complete there          (driver)
    attempts/<n>/log        what attempt n printed                                              (attempt)
    attempts/<n>/alive      locked as long as the attempt's process lives                       (attempt)
    attempts/<n>/asked.json when the trial began to wait for room, and what it asked for        (driver)
    attempts/<n>/began      when it had it: a slot here, or the start of its job                (attempt)
    attempts/<n>/stop       "end after this epoch", with the reason: pruned or cancelled        (driver, job)
    attempts/<n>/heard      the same, a line for each time that the task function asked for it  (chief)
    attempts/<n>/ranks/     where its processes are, if they are several, see `sweeps.trial.ranks`   (each rank)
    attempts/<n>/end.json   how the attempt ended, see `Outcome`        (whoever sees it first: the first word stands)
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sweeps.files import CorruptFile, Lines, append_lines, quarantine, read_json, read_lines, write_once, write_whole
from sweeps.trial.job import Outcome, State

METRICS, SYSTEM_METRICS = "metrics.jsonl", "system_metrics.jsonl"
GPU, CPU = "system/gpu_", "system/cpu_"  # how the names of system metrics begin, of GPUs with the GPU's number
POWER, USE = "power_usage_watts", "utilization_percentage"  # and how they end

_MOST = 2**63  # of steps, and of milliseconds

Note = str | list[str] | dict[str, float]
"""A sentence, names, or numbers that a trial's own metrics of the same names are to be seen beside."""


@dataclass(frozen=True)
class MetricsLine:
    """The metrics of one step (an epoch), and when they were reported (seconds since 1970)."""

    step: int
    time: float
    metrics: dict[str, float]

    @classmethod
    def parse(cls, line: bytes) -> "MetricsLine":
        content = json.loads(line)
        metrics = {name: float(value) for name, value in content["metrics"].items()}
        step, reported = int(content["step"]), float(content["time"])
        if not (abs(step) < _MOST and abs(reported) < _MOST / 1000):
            raise ValueError(f"no database takes step {step} at {reported}")
        return cls(step, reported, metrics)


@dataclass(frozen=True)
class TrialFolder:
    """Reads and writes the files of the trial in `path`."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def append_metrics(self, line: MetricsLine, name: str = METRICS) -> None:
        append_lines(self.path / name, [asdict(line)])

    def read_metrics(self, offset: int = 0, name: str = METRICS) -> Lines:
        """The lines (`MetricsLine`) from byte `offset` on. Half a last line waits; damaged ones are counted."""
        return read_lines(self.path / name, offset, MetricsLine.parse)

    def usage(self) -> Iterator[list[MetricsLine]]:
        """The samples of the system, of each of its nodes whose file can be read."""
        for file in self.path.glob("system_metrics*.jsonl"):
            with suppress(OSError):
                yield self.read_metrics(name=file.name).values

    def energy_kwh(self, since: float) -> float | None:
        """What the trial's GPUs used from `since` (seconds since 1970) on; None if none of them told its power."""
        joules: list[float] = []
        for lines in self.usage():
            before = since
            for line in lines:
                if line.time >= since:
                    power = [watts for name, watts in line.metrics.items() if name.endswith(POWER)]
                    joules += [watts * (line.time - before) for watts in power]
                    before = line.time
        return sum(joules) / 3.6e6 if joules else None

    def add_note(self, subject: str, note: Note) -> None:
        """Keep what `Trial.note` says."""
        notes: dict[str, Any] = {}
        with suppress(CorruptFile):
            notes = read_json(self.path / "notes.json") or {}
        write_whole(self.path / "notes.json", json.dumps({**notes, subject: note}))

    def notes(self) -> dict[str, Note]:
        """What was noted, by subject; nothing if the file is damaged."""
        try:
            found = read_json(self.path / "notes.json") or {}
        except (CorruptFile, OSError):
            return {}
        return {subject: note for subject, note in found.items() if isinstance(note, str | list | dict)}

    @property
    def model(self) -> Path | None:
        """The model that was kept, if one was: a folder that MLflow can log."""
        return self.path / "model" if (self.path / "model" / "MLmodel").exists() else None

    def write_trial(self, content: Mapping[str, Any]) -> None:
        """Note which trial this is, as the study's journal does, should that be damaged."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "trial.json", json.dumps(content), sync=False)

    def write_tracking(self, content: Mapping[str, Any]) -> None:
        write_whole(self.path / "tracking.json", json.dumps(content), sync=False)

    def read_tracking(self) -> dict[str, Any]:
        """Raises CorruptFile if the file is damaged."""
        return read_json(self.path / "tracking.json") or {}

    def attempt(self, number: int) -> "AttemptFolder":
        return AttemptFolder(self, number)

    def attempts(self) -> "list[AttemptFolder]":
        """Those so far, oldest first."""
        numbers = (int(folder.name) for folder in (self.path / "attempts").glob("*") if folder.name.isdecimal())
        return [self.attempt(number) for number in sorted(numbers)]

    def newest(self) -> "AttemptFolder | None":
        return next(reversed(self.attempts()), None)

    def ends(self) -> list[Outcome]:
        """How the attempts ended, as far as somebody saw it."""
        found = []
        for attempt in self.attempts():
            try:
                end = attempt.end()
            except CorruptFile as error:
                end = Outcome(State.LOST, str(error))
            found += [end] if end else []
        return found

    def new_attempt(
        self, asked: float | None = None, gpus: int = 0, idle_slot_s: float = 0.0, timeout_min: float | None = None
    ) -> "AttemptFolder":
        """A folder for one more attempt, that waits for room since `asked` (by default now; in seconds since 1970), in
        the end for a slot that stood empty for `idle_slot_s`.
        """
        newest = self.newest()
        attempt = self.attempt(newest.number + 1 if newest else 1)
        attempt.path.mkdir(parents=True)
        content = {"asked": asked or time.time(), "gpus": gpus, "idle_slot_s": idle_slot_s}
        content |= {"timeout_min": timeout_min} if timeout_min else {}
        write_whole(attempt.path / "asked.json", json.dumps(content), sync=False)
        return attempt


@dataclass
class MetricsReader:
    """Reads what a trial reports in one of its files, and knows how far somebody has come with it."""

    folder: TrialFolder
    name: str = METRICS
    offset: int = 0  # bytes that are done with

    def news(self) -> Lines:
        """Return the lines after `offset`: they stay news until `done`. All of a file that was cut are news again."""
        return self.folder.read_metrics(self.offset, self.name)

    def done(self, news: Lines) -> bool:
        """Note that these lines need not come again. Returns whether they go on where the last ones ended."""
        goes_on = news.offset >= self.offset
        self.offset = news.offset
        return goes_on


@dataclass(frozen=True)
class AttemptFolder:
    """The files of one attempt."""

    trial: TrialFolder
    number: int

    @property
    def path(self) -> Path:
        return self.trial.path / "attempts" / str(self.number)

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def successor(self) -> Path:
        """There once the trial goes on in a newer attempt: this one must not go on too."""
        return self.trial.attempt(self.number + 1).path

    def begin(self, began: float) -> None:
        """What an attempt writes first: when it had room, in seconds since 1970."""
        write_whole(self.path / "began", repr(began), sync=False)

    def began(self) -> float | None:
        """When the attempt had room, in seconds since 1970; None if it had none yet."""
        file = self.path / "began"
        with suppress(ValueError):
            return float(file.read_text()) if file.exists() else None
        return file.stat().st_mtime  # damaged: when it was written is near enough

    def request_stop(self, reason: State) -> None:
        write_whole(self.path / "stop", reason, sync=False)

    def stop_requested(self) -> State | None:
        file = self.path / "stop"
        with suppress(ValueError):
            return State(file.read_text()) if file.exists() else None
        return State.CANCELLED  # damaged: that something was wanted is certain

    def hear(self, reason: State | None) -> None:
        append_lines(self.path / "heard", [reason])

    def all_heard(self, offset: int = 0) -> Lines:
        """What the chief heard each time it asked whether to stop; one that is alone notes only why it is to."""
        return read_lines(self.path / "heard", offset, _reason)

    def heard(self) -> State | None:
        """Why the attempt was told to stop, once its task function has asked. One that never asks runs to its end."""
        return next(filter(None, self.all_heard().values), None)

    def end(self) -> Outcome | None:
        """How the attempt ended; None if nobody has said so. Raises CorruptFile if the file is damaged."""
        content = read_json(self.path / "end.json")
        try:
            return None if content is None else Outcome.from_json(content)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise CorruptFile(self.path / "end.json", f"it holds no end ({error!r})") from error

    @property
    def is_over(self) -> bool:
        return (self.path / "end.json").exists()

    def close(self, said: Outcome, ended: float | None = None) -> Outcome:
        """Write down what is said of the attempt's end, and when it was (seconds since 1970; by default now), unless it
        has an end already. Returns the one that stands.
        """
        try:
            if known := self.end():
                return known
        except CorruptFile as error:
            quarantine(self.path / "end.json")
            said = Outcome(State.LOST, str(error))
        end = self._complete(said, ended or time.time())
        self.path.mkdir(parents=True, exist_ok=True)  # somebody may have deleted it
        write_once(self.path / "end.json", json.dumps(end.as_json()))
        return self.end() or end

    def last_written(self) -> float:
        """The last sign of life, in seconds since 1970."""
        files = [self.path, *self.path.iterdir(), *self.trial.path.glob("*metrics.jsonl")]
        return max(file.stat().st_mtime for file in files if file.name[0] != ".")

    def _complete(self, said: Outcome, ended: float) -> Outcome:
        began = self.began()
        note = {"asked": began or ended, "gpus": 0.0, "idle_slot_s": 0.0}
        with suppress(CorruptFile, TypeError, ValueError, ArithmeticError):
            note |= {name: float(value) for name, value in (read_json(self.path / "asked.json") or {}).items()}
        asked, gpus = note["asked"], int(note["gpus"])
        seconds = {"idle_slot": note["idle_slot_s"], "queued": (began or ended) - asked}
        error = said.error or ("" if said.state in (State.COMPLETED, State.PRUNED) else "nobody said why")
        end = replace(said, error=error, seconds=seconds, asked=asked, began=began, ended=ended, gpus=gpus)
        end = replace(end, timeout_min=note.get("timeout_min"))
        if began is None:
            return end
        seconds |= said.seconds or {"training": ended - began}  # one that was killed could not say how it spent it
        # A step that an earlier attempt reported is not reported again.
        written = [line.time for line in self.trial.read_metrics().values]
        written += [file.stat().st_mtime for file in self.trial.checkpoint.glob("*")]
        advanced = max(written, default=0.0) >= began
        return replace(end, energy_kwh=self.trial.energy_kwh(began), advanced=advanced)


def _reason(line: bytes) -> State | None:
    content = json.loads(line)
    return content and State(content)
