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
"""

import json
import os
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
            with open(self.path / name, "rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return [], offset
        whole = data[: data.rfind(b"\n") + 1]
        return [MetricsLine(**json.loads(line)) for line in whole.splitlines()], offset + len(whole)

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
        return content and Result(**{**content, "state": State(content["state"])})

    def write_tracking(self, content: Mapping[str, Any]) -> None:
        _write_whole(self.path / "tracking.json", json.dumps(content))

    def read_tracking(self) -> dict[str, Any]:
        return _read_json(self.path / "tracking.json") or {}

    def attempts(self) -> list[Path]:
        """The folders of the attempts so far, oldest first."""
        return sorted((self.path / "attempts").glob("[0-9]*"), key=lambda folder: int(folder.name))

    def new_attempt(self) -> Path:
        attempt = self.path / "attempts" / str(len(self.attempts()) + 1)
        attempt.mkdir(parents=True)
        return attempt

    def log(self) -> Path | None:
        """The log of the newest attempt."""
        attempts = self.attempts()
        return attempts[-1] / "log" if attempts else None


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
