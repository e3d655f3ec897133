"""The files of a trial: the whole protocol between the driver, the launchers and the trial's processes.

Each file has one writer, and is written aside and renamed, or appended a whole line at a time (`sweeps.files`):

    .hydra/                 the composed config and its overrides, as Hydra writes them         (trial)
    trial.json              its number and its point                                            (driver)
    metrics.jsonl           one line an epoch: {"step", "time", "metrics"}                      (chief)
    system_metrics.jsonl    one line a sample: {"step", "time", "metrics"}                      (chief)
    notes.json              what a reader of its results must know, see `Trial.note`            (chief)
    model/                  what the trainer kept of it, as mlflow.<flavor>.save_model writes   (chief)
    checkpoint/             the newest state of the training                                    (trial)
    tracking.json           which MLflow run this is, and whether it is complete there          (driver)
    attempts/<n>/log        what attempt n printed                                              (attempt)
    attempts/<n>/alive      locked as long as the attempt's process lives                       (attempt)
    attempts/<n>/asked.json when the trial began to wait for room, and for how many GPUs        (driver)
    attempts/<n>/began      when it had it: a slot here, or the start of its job                (attempt)
    attempts/<n>/stop       "end after this epoch", with the reason: pruned or cancelled        (driver, job)
    attempts/<n>/heard      the same, once the task function has asked for it                   (chief)
    attempts/<n>/answer.json  the chief's newest answer to "whether to stop", for the other ranks (chief)
    attempts/<n>/end.json   how the attempt ended, see `End`        (whoever sees it first: the first word stands)
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sweeps.files import Lines, Unreadable, append_lines, read_json, read_lines, set_aside, write_once, write_whole
from sweeps.trial.job import End, Point, State

METRICS, SYSTEM_METRICS = "metrics.jsonl", "system_metrics.jsonl"
POWER = "power_usage_watts"
"""How the names of system metrics end that give a GPU's power."""


Note = str | list[str] | dict[str, float]
"""A sentence, names, or numbers that a trial's own metrics of the same names are to be seen beside."""


@dataclass(frozen=True)
class MetricsLine:
    """The metrics of one step (an epoch), and when they were reported (seconds since 1970)."""

    step: int
    time: float
    metrics: dict[str, float]

    @classmethod
    def of(cls, content: Any) -> "MetricsLine | None":
        """None if the content is not that of a line."""
        try:
            step, when, metrics = content["step"], content["time"], content["metrics"]
            return cls(int(step), float(when), {str(name): float(value) for name, value in metrics.items()})
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            return None


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
        found = read_lines(self.path / name, offset)
        lines = [line for value in found.values if (line := MetricsLine.of(value)) is not None]
        return Lines(lines, found.offset, found.damaged + len(found.values) - len(lines))

    def last_step(self) -> int | None:
        """The last step that was reported."""
        return max((line.step for line in self.read_metrics().values), default=None)

    def energy_kwh(self, since: float) -> float | None:
        """What the trial's GPUs used from `since` (seconds since 1970) on; None if none of them told its power."""
        joules, told, before = 0.0, False, since
        for line in self.read_metrics(name=SYSTEM_METRICS).values:
            watts = [value for name, value in line.metrics.items() if name.endswith(POWER)]
            if line.time >= since:
                joules, told = joules + sum(watts) * (line.time - before), told or bool(watts)
                before = line.time
        return joules / 3.6e6 if told else None

    def add_note(self, subject: str, note: "Note") -> None:
        """Keep what `Trial.note` says."""
        write_whole(self.path / "notes.json", json.dumps({**self.notes(), subject: note}, ensure_ascii=False))

    def notes(self) -> "dict[str, Note]":
        """What was noted, by subject; nothing if the file is damaged."""
        try:
            found = read_json(self.path / "notes.json") or {}
        except (Unreadable, OSError):
            return {}
        return {subject: note for subject, note in found.items() if isinstance(note, str | list | dict)}

    @property
    def model(self) -> Path | None:
        """The model that was kept, if one was: a folder that MLflow can log."""
        return self.path / "model" if (self.path / "model" / "MLmodel").exists() else None

    def write_point(self, number: int, point: Point) -> None:
        """Note which trial this is, should the study's journal be damaged."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "trial.json", json.dumps({"number": number, "point": point}), sync=False)

    def write_tracking(self, content: Mapping[str, Any]) -> None:
        write_whole(self.path / "tracking.json", json.dumps(content), sync=False)

    def read_tracking(self) -> dict[str, Any]:
        """Raises Unreadable if the file is damaged."""
        return read_json(self.path / "tracking.json") or {}

    def attempt(self, number: int) -> "AttemptFolder":
        return AttemptFolder(self.path / "attempts" / str(number))

    def attempts(self) -> "list[AttemptFolder]":
        """Those so far, oldest first."""
        folders = (folder for folder in (self.path / "attempts").glob("[0-9]*") if folder.name.isdecimal())
        return sorted(map(AttemptFolder, folders), key=lambda attempt: attempt.number)

    def newest(self) -> "AttemptFolder | None":
        return next(reversed(self.attempts()), None)

    def ends(self) -> list[End]:
        """How the attempts ended, as far as somebody saw it."""
        found = []
        for attempt in self.attempts():
            try:
                end = attempt.end()
            except Unreadable as error:
                end = End(State.LOST, str(error))
            found += [end] if end else []
        return found

    def new_attempt(self, asked: float | None = None, gpus: int = 0, idle_slot_s: float = 0.0) -> "AttemptFolder":
        """A folder for one more attempt.

        `asked` is when the trial began to wait for room (by default now), `idle_slot_s` how long its slot stood empty.
        """
        newest = self.newest()
        attempt = self.attempt(newest.number + 1 if newest else 1)
        attempt.path.mkdir(parents=True)
        content = {"asked": asked or time.time(), "gpus": gpus, "idle_slot_s": idle_slot_s}
        write_whole(attempt.path / "asked.json", json.dumps(content), sync=False)
        return attempt


@dataclass(frozen=True)
class AttemptFolder:
    """The files of one attempt, in `path`."""

    path: Path

    @cached_property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def trial(self) -> TrialFolder:
        return TrialFolder(self.path.parents[1])

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def alive(self) -> Path:
        return self.path / "alive"

    @property
    def successor(self) -> Path:
        """There once the trial goes on in a newer attempt: this one must not go on too."""
        return self.path.with_name(str(self.number + 1))

    def begin(self, began: float) -> None:
        """What an attempt writes first: when it had room, in seconds since 1970."""
        write_whole(self.path / "began", repr(began), sync=False)

    def began(self) -> float | None:
        """When the attempt had room, in seconds since 1970; None if it had none yet."""
        try:
            return float((self.path / "began").read_text(errors="replace"))
        except FileNotFoundError:
            return None
        except ValueError:  # damaged: when it was written is near enough
            return (self.path / "began").stat().st_mtime

    def request_stop(self, reason: State) -> None:
        write_whole(self.path / "stop", reason)

    def stop_requested(self) -> State | None:
        return _state_in(self.path / "stop")

    def hear(self, reason: State) -> None:
        write_whole(self.path / "heard", reason)

    def heard(self) -> State | None:
        """Why the attempt was told to stop, once its task function has asked. One that never asks runs to its end."""
        return _state_in(self.path / "heard")

    def answer(self, asked: int, reason: State | None) -> None:
        """Tell the other ranks what the chief heard when it asked for the `asked`th time whether to stop."""
        write_whole(self.path / "answer.json", json.dumps({"asked": asked, "reason": reason}))

    def answered(self) -> tuple[int, State | None]:
        """The newest answer: after one with a reason there is no other."""
        content = read_json(self.path / "answer.json") or {"asked": 0, "reason": None}
        return content["asked"], content["reason"] and State(content["reason"])

    def end(self) -> End | None:
        """How the attempt ended; None if nobody has said so.

        Raises:
            Unreadable: the file is damaged.
        """
        content = read_json(self.path / "end.json")
        try:
            return None if content is None else End.from_json(content)
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(self.path / "end.json", f"it holds no end ({error!r})") from error

    @property
    def is_over(self) -> bool:
        return (self.path / "end.json").exists()

    def close(self, said: End, ended: float | None = None) -> End:
        """This attempt is over. Writes down what is said of its end, unless it has an end already, and returns the
        one that stands. `ended` is when, in seconds since 1970; by default now.
        """
        try:
            if (known := self.end()) is not None:
                return known
        except Unreadable as error:
            set_aside(self.path / "end.json")
            said = End(State.LOST, str(error))
        end = self._complete(said, ended or time.time())
        self.path.mkdir(parents=True, exist_ok=True)  # somebody may have deleted it
        if write_once(self.path / "end.json", json.dumps(end.as_json())):
            return end
        return self.end() or end

    def last_written(self) -> float:
        """The last sign of life, in seconds since 1970."""
        files = [self.path, *self.path.iterdir(), *self.trial.path.glob("*metrics.jsonl")]
        return max(file.stat().st_mtime for file in files if file.name[0] != ".")

    def _complete(self, said: End, ended: float) -> End:
        try:
            note = read_json(self.path / "asked.json") or {}
            asked, gpus, idle_slot_s = float(note["asked"]), int(note["gpus"]), float(note["idle_slot_s"])
        except (Unreadable, KeyError, TypeError, ValueError):
            asked, gpus, idle_slot_s = self.began() or ended, 0, 0.0
        began = self.began()
        seconds = {"idle_slot": idle_slot_s, "queued": (began or ended) - asked}
        if began is not None:  # an attempt that was killed could not say how it spent its time
            seconds |= said.seconds or {"training": ended - began}
        silent = not said.error and said.state not in (State.COMPLETED, State.PRUNED)
        return replace(
            said,
            error="nobody said why" if silent else said.error,
            seconds=seconds,
            asked=asked,
            began=began,
            ended=ended,
            gpus=gpus,
            energy_kwh=None if began is None else self.trial.energy_kwh(began),
            advanced=began is not None and self._advanced(began),
        )

    def _advanced(self, began: float) -> bool:
        folder = self.trial
        if any(line.time >= began for line in reversed(folder.read_metrics().values)):
            return True  # a step that an earlier attempt reported is not reported again
        saved: Sequence[Path] = list(folder.checkpoint.glob("*")) if folder.checkpoint.exists() else []
        return any(file.stat().st_mtime >= began for file in saved)


def _state_in(file: Path) -> State | None:
    try:
        return State(file.read_text(errors="replace"))
    except FileNotFoundError:
        return None
    except ValueError:  # damaged: that something was wanted is certain
        return State.CANCELLED
