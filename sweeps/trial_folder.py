"""The files of a trial: the whole protocol between the driver, the launchers and the trial's process.

Each file has one writer. It is either written aside and renamed, or appended one whole line at a time, so that a
reader on another node never sees half of anything:

    .hydra/               the composed config and its overrides, as Hydra writes them         (trial)
    metrics.jsonl         one line an epoch: {"step", "time", "metrics"}                      (trial)
    system_metrics.jsonl  one line a sample: {"step", "time", "metrics"}                      (trial)
    stop                  "end after this epoch", with the reason: pruned or cancelled        (driver)
    checkpoint/           the newest state of the training                                    (trial)
    result.json           once, at the end: see `Result`                                      (trial)
    tracking.json         which MLflow run this is, and whether it is complete there          (driver)
    attempts/<n>/log      what attempt n printed                                              (attempt)
    attempts/<n>/alive    locked as long as the attempt's process lives                       (attempt)
    attempts/<n>/asked    when the trial began to wait for room                               (driver)
    attempts/<n>/began    when it had it: a slot here, or the start of its job                (attempt)
    attempts/<n>/end.json how the attempt ended, and what it took: see `AttemptEnd`           (driver)

A new attempt moves an earlier attempt's `stop` and `result.json` into that attempt's folder.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class State(StrEnum):
    """How a trial stands or ended. Lost and timed-out trials may go on in a new attempt; the other ends are final."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether the trial has ended for good. One that was cancelled goes on when its study does."""
        return self not in {State.QUEUED, State.RUNNING, State.CANCELLED}

    @property
    def is_bad(self) -> bool:
        """Whether the trial ended without a result that counts."""
        return self.is_over and self not in {State.COMPLETED, State.PRUNED}


@dataclass
class Result:
    """How a trial ended.

    `objective` holds one value for each objective, in their order, and is empty unless the state is completed or
    pruned. `metrics` is what the task function returned, `seconds` the time spent in each phase.
    """

    state: State
    objective: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    error: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptEnd:
    """How an attempt ended, and what it took. Times are seconds since 1970."""

    state: State
    asked: float
    """When it began to wait for room."""
    began: float | None
    """When it had it; None if it never did."""
    ended: float
    seconds: dict[str, float] = field(default_factory=dict)
    """Of what the trial itself could tell: starting, training."""
    gpus: int = 0
    energy_kwh: float | None = None
    """What its GPUs used; None if they don't tell."""
    idle_slot_s: float = 0.0
    """For how long its slot had stood empty."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "AttemptEnd":
        """From what `asdict` made of it."""
        return cls(**{**content, "state": State(content["state"])})

    @property
    def gpu_hours(self) -> float:
        return self.gpus * (self.ended - self.began) / 3600 if self.began else 0.0


@dataclass(frozen=True)
class MetricsLine:
    """The metrics of one step (an epoch), and when they were reported (seconds since 1970)."""

    step: int
    time: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class TrialFolder:
    """Reads and writes the files of the trial in `path`."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def append_metrics(self, line: MetricsLine, name: str = "metrics.jsonl") -> None:
        data = (json.dumps(asdict(line)) + "\n").encode()
        file = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, data)  # one call: a line is there whole or not at all
        finally:
            os.close(file)

    def read_metrics(self, offset: int = 0, name: str = "metrics.jsonl") -> tuple[list[MetricsLine], int]:
        """The whole lines from byte `offset` on, and the offset to read on from. A half-written last line waits."""
        try:
            with (self.path / name).open("rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return [], offset
        whole = data[: data.rfind(b"\n") + 1]
        return [MetricsLine(**json.loads(line)) for line in whole.splitlines()], offset + len(whole)

    def mend_metrics(self) -> int | None:
        """Drop half a last line, which a killed attempt may leave; return the last step that was reported."""
        lines, end = self.read_metrics()
        try:
            os.truncate(self.path / "metrics.jsonl", end)
        except FileNotFoundError:
            return None
        return lines[-1].step if lines else None

    def request_stop(self, reason: State) -> None:
        _write_whole(self.path / "stop", reason)

    def stop_requested(self) -> State | None:
        try:
            return State((self.path / "stop").read_text())
        except FileNotFoundError:
            return None

    def write_result(self, result: Result) -> None:
        _write_whole(self.path / "result.json", json.dumps(asdict(result), indent=1))

    def read_result(self) -> Result | None:
        content = _read_json(self.path / "result.json")
        return None if content is None else Result(**{**content, "state": State(content["state"])})

    def write_tracking(self, content: Mapping[str, Any]) -> None:
        _write_whole(self.path / "tracking.json", json.dumps(content))

    def read_tracking(self) -> dict[str, Any]:
        return _read_json(self.path / "tracking.json") or {}

    def attempts(self) -> list[Path]:
        """The folders of the attempts so far, oldest first."""
        return sorted((self.path / "attempts").glob("[0-9]*"), key=lambda folder: int(folder.name))

    def new_attempt(self, asked: float | None = None) -> Path:
        """A folder for one more attempt, which starts with neither a result nor a request to stop.

        `asked` is when the trial began to wait for room, by default now.
        """
        earlier = self.attempts()
        for name in ("result.json", "stop"):
            if earlier and (self.path / name).exists():
                (self.path / name).replace(earlier[-1] / name)
        attempt = self.path / "attempts" / str(len(earlier) + 1)
        attempt.mkdir(parents=True)
        _write_whole(attempt / "asked", repr(asked or time.time()))
        return attempt

    def asked(self) -> float:
        """When the newest attempt began to wait for room, in seconds since 1970."""
        return float((self.attempts()[-1] / "asked").read_text())

    def began(self) -> float | None:
        """When the newest attempt had room, in seconds since 1970; None if it had none yet."""
        try:
            return float((self.attempts()[-1] / "began").read_text())
        except FileNotFoundError:
            return None

    def last_written(self) -> float:
        """The last sign of life of the newest attempt, in seconds since 1970."""
        files = [*self.attempts()[-1].iterdir(), *self.path.glob("*.json*")]
        return max(f.stat().st_mtime for f in files if f.name != "tracking.json" and f.name[0] != ".")

    def write_end(self, end: AttemptEnd) -> None:
        """Note how the newest attempt ended."""
        _write_whole(self.attempts()[-1] / "end.json", json.dumps(asdict(end)))

    def ends(self) -> list[AttemptEnd]:
        """How the attempts ended, as far as a driver was there to see it."""
        found = [_read_json(attempt / "end.json") for attempt in self.attempts()]
        return [AttemptEnd.of(end) for end in found if end]

    def log(self) -> Path | None:
        """The log of the newest attempt."""
        attempts = self.attempts()
        return attempts[-1] / "log" if attempts else None


def note_beginning(attempt: Path, began: float) -> None:
    """What an attempt writes first: when it had room, in seconds since 1970."""
    _write_whole(attempt / "began", repr(began))


def last_lines(log: Path, count: int) -> list[str]:
    """The end of a log, which need not exist and may hold anything."""
    try:
        return log.read_text(errors="replace").splitlines()[-count:]
    except FileNotFoundError:
        return []


def _write_whole(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text)
    aside.replace(path)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return content
