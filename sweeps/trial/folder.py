"""The files of a trial: the whole protocol between the driver, the launchers and the trial's
processes.

Each file has one writer, and is written aside and renamed, or appended a whole line at a time
(`sweeps.base.files`):

    .hydra/                 the composed config and its overrides, written by Hydra  (trial)
    trial.json              the trial's number and params, copied from the journal  (driver)
    metrics.jsonl           one line an epoch: {"step", "time", "metrics"}, "result" in the last
                            (chief)
    system_metrics.jsonl    one line a sample: {"step", "time", "metrics"}  (chief)
    system_metrics.<r>.jsonl    the same on each other node, by rank r, its first process  (rank)
    notes.json              notes for readers of the results, see `Trial.note`  (chief)
    confusion.json          counts by true and predicted class, see `sweeps.trial.confusion`
                            (chief)
    model/                  the trained model, in the format of mlflow.<flavor>.save_model  (chief)
    checkpoint/             the newest state of the training  (trial)
    checkpoint_deleted      the setting by which the checkpoint was deleted  (driver)
    tracking.json           the trial's MLflow run, and whether it is complete  (driver)
    attempts/<n>/log        the output of attempt n  (attempt)
    attempts/<n>/alive      locked while the attempt's process lives  (attempt)
    attempts/<n>/queued.json    when the attempt was queued, its requested resources, and the step
                            after which it pauses  (driver)
    attempts/<n>/facts.jsonl    the machine, versions, and settings as used, see
                                `sweeps.trial.machine.facts` (chief)
    attempts/<n>/started    when the attempt got a slot, or its job started  (attempt)
    attempts/<n>/stop       "end after this epoch", with the reason: pruned or cancelled  (driver,
                            job)
    attempts/<n>/stop_by    the user who ended the trial with `stop --trial` or `prune`, and when
                            (command)
    attempts/<n>/heard      the chief's answers to should_stop(), one line a call  (chief)
    attempts/<n>/ranks/     addresses and failures of several ranks, see `sweeps.trial.ranks`
                            (each rank)
    attempts/<n>/end.json   the attempt's `Outcome`  (first observer)
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sweeps.base.files import (
    CorruptFile,
    Lines,
    append_lines,
    quarantine,
    read_json,
    read_lines,
    read_text,
    write_once,
    write_whole,
)
from sweeps.trial.job import Outcome, Request, State
from sweeps.trial.machine.usage import measure
from sweeps.trial.metrics import METRICS, MetricsLine, with_reported_result
from sweeps.trial.times import is_time, now, parse_time, read_time

_READABLE = 0o644  # because the trial may belong to another user than the person who ends it
_DELETED = "checkpoint_deleted"
_REQUESTED = ("cores", "mem_gb", "nodes", "ranks")
# a sentence, names, or numbers to show beside metrics of the same names
Note = str | list[str] | dict[str, float]


@dataclass(frozen=True)
class TrialFolder:
    """The files of the trial in `path`."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def checkpointed_step(self) -> int | None:
        """Return the last step that was reported before the newest checkpoint was written.

        None without a report; also if an attempt began between the two, because such an attempt
        does not report again what an earlier one reported.
        """
        written = max((file.stat().st_mtime for file in self.checkpoints()), default=0.0)
        lines = [line for line in self.read_metrics().values if line.time <= written]
        if not lines:
            return None
        last = lines[-1]
        begun = [attempt.began() or 0.0 for attempt in self.attempts()]
        return None if any(last.time < began <= written for began in begun) else last.step

    def checkpoints(self) -> list[Path]:
        """Return the files that a resumed attempt reads; never one that was being written."""
        for pattern in ("newest.*", "previous.*"):  # of put_checkpoint
            files = list(self.checkpoint.glob(pattern))
            if files:
                return files
        others = self.checkpoint.glob("*")
        return [file for file in others if not file.name.startswith("writing.")]

    def delete_checkpoints(self, setting: str) -> None:
        """Delete the checkpoints, if there are any, and note the setting that says so. Raises
        OSError, also if their folder is a link."""
        aside = self.path / "checkpoint.deleted"
        if aside.exists():
            shutil.rmtree(aside)
        if not self.checkpoint.exists():
            return
        if self.checkpoint.is_symlink():
            raise OSError(f"{self.checkpoint} is a link")
        if self.checkpoints():
            write_whole(self.path / _DELETED, setting)
        # first, because a trial that resumes must not read a part
        self.checkpoint.rename(aside)
        shutil.rmtree(aside)

    def deleted_by(self) -> str:
        """Return the setting by which the newest checkpoint was deleted; empty if none was."""
        try:
            return read_text(self.path / _DELETED)
        except FileNotFoundError:
            return ""

    def checkpoint_bytes(self) -> int:
        """Return the size of all checkpoints, also of those that are being written."""
        size = 0
        for folder, _, names in os.walk(self.checkpoint):
            for name in names:
                with suppress(FileNotFoundError):  # because the trial replaces files
                    size += Path(folder, name).lstat().st_size
        return size

    def append_metrics(self, line: MetricsLine, name: str = METRICS) -> None:
        append_lines(self.path / name, [line.as_json()])

    def read_metrics(self, offset: int = 0, name: str = METRICS) -> Lines:
        """Return the whole lines (`MetricsLine`) from byte `offset` on, and the count of damaged
        lines."""
        return read_lines(self.path / name, offset, MetricsLine.parse)

    def usage(self) -> Iterator[list[MetricsLine]]:
        """Yield the system metrics of each node whose file is readable."""
        for file in self.path.glob("system_metrics*.jsonl"):
            with suppress(OSError):
                yield self.read_metrics(name=file.name).values

    def add_note(self, subject: str, note: Note) -> None:
        notes: dict[str, Any] = {}
        with suppress(CorruptFile):
            notes = read_json(self.path / "notes.json") or {}
        write_whole(self.path / "notes.json", json.dumps({**notes, subject: note}))

    def notes(self) -> dict[str, Note]:
        """Return the notes by subject; none if the file is damaged."""
        try:
            notes = read_json(self.path / "notes.json") or {}
        except (CorruptFile, OSError):
            return {}
        return {
            subject: note for subject, note in notes.items() if isinstance(note, str | list | dict)
        }

    @property
    def model(self) -> Path | None:
        """Return the folder of the trained model, which MLflow can log; None without a model."""
        return self.path / "model" if (self.path / "model" / "MLmodel").exists() else None

    def write_trial(self, content: Mapping[str, Any]) -> None:
        """Write the trial's journal entry to its own folder, in case the journal is damaged."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "trial.json", json.dumps(content), sync=False)

    def read_params(self) -> dict[str, Any] | None:
        """Return the params in trial.json; None if the file is missing or damaged."""
        with suppress(CorruptFile):
            params = (read_json(self.path / "trial.json") or {}).get("params")
            return params if isinstance(params, dict) else None
        return None

    def write_tracking(self, content: Mapping[str, Any]) -> None:
        write_whole(self.path / "tracking.json", json.dumps(content), sync=False)

    def read_tracking(self) -> dict[str, Any]:
        """Return the state of the MLflow run. Raises CorruptFile if the file is damaged."""
        return read_json(self.path / "tracking.json") or {}

    def attempt(self, number: int) -> "AttemptFolder":
        return AttemptFolder(self, number)

    def attempts(self) -> "list[AttemptFolder]":
        """Return the attempts so far, oldest first."""
        names = [folder.name for folder in (self.path / "attempts").glob("*")]
        numbers = sorted(int(name) for name in names if name.isdecimal())
        return [self.attempt(number) for number in numbers]

    def newest(self) -> "AttemptFolder | None":
        return next(reversed(self.attempts()), None)

    def ends(self) -> list[Outcome]:
        """Return the outcomes of the attempts that ended. An unreadable outcome counts as lost."""
        ends = []
        for attempt in self.attempts():
            try:
                end = attempt.end()
            except CorruptFile as error:
                end = Outcome(State.LOST, str(error))
            if end:
                ends.append(end)
        return ends

    def new_attempt(
        self,
        queued_at: float | None = None,
        request: Request | None = None,
        idle_slot_s: float = 0.0,
        launcher: str | None = None,
        pause_step: int | None = None,
    ) -> "AttemptFolder":
        """Create the folder of one more attempt, queued at a time in seconds since 1970, by default
        now. The attempt pauses after it has reported `pause_step`."""
        newest = self.newest()
        attempt = self.attempt(newest.number + 1 if newest else 1)
        attempt.path.mkdir(parents=True)
        content = {
            "queued": queued_at or now(),
            "idle_slot_s": idle_slot_s,
            **vars(request or Request()),
            "launcher": launcher,
            "pause_step": pause_step,
        }
        content = {name: value for name, value in content.items() if value is not None}
        write_whole(attempt.path / "queued.json", json.dumps(content), sync=False)
        return attempt


@dataclass(frozen=True)
class AttemptFolder:
    """The files of one attempt."""

    trial: TrialFolder
    number: int

    @cached_property
    def path(self) -> Path:
        return self.trial.path / "attempts" / str(self.number)

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def successor(self) -> Path:
        """Return the folder of the next attempt. If it exists, this attempt must end."""
        return self.trial.attempt(self.number + 1).path

    def launcher(self) -> str | None:
        """Return the name of the launcher that started the attempt; None if no file names the
        launcher."""
        with suppress(CorruptFile, OSError):
            name = (read_json(self.path / "queued.json") or {}).get("launcher")
            if name:
                return str(name)
        # because older attempts have no name
        return "slurm" if (self.path / "slurm").exists() else None

    def begin(self, began: float) -> None:
        """Write the start of the attempt, in seconds since 1970."""
        write_whole(self.path / "started", repr(began), sync=False)

    def began(self) -> float | None:
        """Return when the attempt started, in seconds since 1970; None if it did not."""
        file = self.path / "started"
        return read_time(file) if file.exists() else None

    def pause_step(self) -> int | None:
        """Return the step after whose report the attempt pauses; None if it trains to its end."""
        with suppress(CorruptFile, OSError, ValueError, TypeError):
            step = (read_json(self.path / "queued.json") or {}).get("pause_step")
            return None if step is None else int(step)
        return None

    def request_stop(self, reason: State, by: str = "") -> None:
        """Request that the attempt ends. `by` is the name of the user who ends the trial."""
        if by:
            content = json.dumps({"by": by, "at": now()})
            write_whole(self.path / "stop_by", content, sync=False, mode=_READABLE)
        write_whole(self.path / "stop", reason, sync=False, mode=_READABLE)

    def stop_requested(self) -> State | None:
        file = self.path / "stop"
        if not os.path.lexists(file):
            return None
        with suppress(ValueError, OSError):
            return State(read_text(file))
        # Because even a file that is damaged, or of another user, is a request to stop.
        return State.PRUNED if os.path.lexists(self.path / "stop_by") else State.CANCELLED

    def stopped_by(self) -> tuple[str, float] | None:
        """Return who ended the trial and when; None if no person did, or if it is unreadable."""
        with suppress(CorruptFile, OSError, LookupError):
            request = read_json(self.path / "stop_by") or {}
            return str(request["by"]), parse_time(request.get("at"))
        return None

    def append_stop_answer(self, reason: State | None) -> None:
        append_lines(self.path / "heard", [reason])

    def read_stop_answers(self, offset: int = 0) -> Lines:
        """Return the chief's answers to should_stop(). A chief without other ranks records only the
        reason to stop."""
        return read_lines(self.path / "heard", offset, _parse_reason)

    def stop_reason(self) -> State | None:
        """Return why the task function was asked to stop; None if it never called should_stop()
        after a request."""
        return next(filter(None, self.read_stop_answers().values), None)

    def end(self) -> Outcome | None:
        """Return the outcome; None if the attempt has none yet. Raises CorruptFile if the file is
        damaged."""
        content = read_json(self.path / "end.json") if self.is_over else None
        try:
            return None if content is None else Outcome.from_json(content)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise CorruptFile(
                self.path / "end.json", f"it contains no outcome ({error!r})"
            ) from error

    @property
    def is_over(self) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path) as files:
            # Listed, because an NFS client may remember for a minute that a file was missing.
            return any(file.name == "end.json" for file in files)
        return False

    def close(self, end: Outcome, ended: float | None = None) -> Outcome:
        """Write the outcome unless there is one, and return the outcome on disk. The attempt
        `ended` by default now."""
        try:
            if earlier := self.end():
                return earlier
        except CorruptFile as error:
            quarantine(self.path / "end.json")
            end = Outcome(State.LOST, str(error))
        began = self.began()
        lines = self.trial.read_metrics().values if began is not None else []
        end = self._complete(with_reported_result(end, lines, began), began, lines, ended or now())
        self.path.mkdir(parents=True, exist_ok=True)  # because the user may have deleted the folder
        write_once(self.path / "end.json", json.dumps(end.as_json()))
        return self.end() or end

    def last_written(self) -> float:
        """Return when the attempt last wrote a file, in seconds since 1970."""
        files = [self.path, *self.path.iterdir(), *self.trial.path.glob("*metrics.jsonl")]
        return max(file.stat().st_mtime for file in files if file.name[0] != ".")

    def _complete(
        self, end: Outcome, began: float | None, lines: list[MetricsLine], ended: float
    ) -> Outcome:
        """Return the outcome with its times, resources and energy."""
        note = self._read_note()
        first = began or ended
        queued_at = note.get("queued", first)
        if not is_time(queued_at):
            queued_at = first
        ended = max(ended, began or queued_at)
        gpus = end.gpus or note.get("gpus", 0.0)
        end = replace(
            end,
            error=end.error or _default_error(end.state),
            queued_at=queued_at,
            started_at=began,
            ended_at=ended,
            gpus=int(gpus) if float(gpus).is_integer() else gpus,
            timeout_min=note.get("timeout_min"),
            requested={name: note[name] for name in _REQUESTED if name in note},
        )
        # No duration is negative, because the driver's clock and the clock of the trial's node may
        # differ.
        seconds = {"idle_slot": note.get("idle_slot_s", 0.0), "queued": max(0.0, first - queued_at)}
        if began is None:
            return replace(end, seconds=seconds)
        # A killed process recorded no phases.
        seconds |= end.seconds or {"training": max(0.0, ended - began)}
        advanced = self._last_progress(lines) >= began
        step = max((line.step for line in lines), default=0)
        end = replace(end, seconds=seconds, advanced=advanced, step=step)
        return self._with_usage(end, began, note.get("co2_g_per_kwh"))

    def _with_usage(self, end: Outcome, began: float, co2_g_per_kwh: float | None) -> Outcome:
        usage = measure(self.trial.usage(), began)
        co2_g = None
        if co2_g_per_kwh is not None and usage.energy_kwh is not None:
            co2_g = co2_g_per_kwh * usage.energy_kwh
        return replace(end, **vars(usage), co2_g=co2_g)

    def _read_note(self) -> dict[str, float]:
        """Return what the launcher noted when the attempt was queued; empty if it is damaged."""
        with suppress(CorruptFile, TypeError, ValueError, ArithmeticError):
            content = read_json(self.path / "queued.json") or {}
            return {name: float(value) for name, value in content.items() if name != "launcher"}
        return {}

    def _last_progress(self, lines: list[MetricsLine]) -> float:
        """Return when the trial last reported a step or wrote a checkpoint (seconds since 1970)."""
        # Each line is progress, because a step that an earlier attempt reported is not reported
        # again.
        times = [line.time for line in lines]
        times += [file.stat().st_mtime for file in self.trial.checkpoint.glob("*")]
        return max(times, default=0.0)


def _default_error(state: State) -> str:
    return "" if state in (State.COMPLETED, State.PRUNED, State.PAUSED) else "unknown reason"


def _parse_reason(line: bytes) -> State | None:
    content = json.loads(line)
    return content and State(content)
