"""The lines of a trial's metrics files, their reader, and the names of files and system metrics."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps.trial.job import Outcome, State
from sweeps.trial.times import is_time

METRICS = "metrics.jsonl"
SYSTEM_METRICS = "system_metrics.jsonl"
GPU = "system/gpu_"  # prefix of system metrics, which the number of a GPU follows
CPU = "system/cpu_"  # prefix of system metrics
POWER = "power_usage_watts"  # suffix of system metrics
USE = "utilization_percentage"  # suffix of system metrics
# suffix of the part (%) of a shared GPU's memory that the trial uses
OWN_MEMORY = "memory_usage_percentage"

_ENDED_FROM_OUTSIDE = {State.LOST, State.TIMED_OUT, State.CANCELLED}
_MAX_INT64 = 2**63  # because databases store steps in 64 bits


def is_gpu_use(name: str) -> bool:
    """Return whether a system metric is the utilization of a GPU (%)."""
    return name.startswith(GPU) and name.endswith(USE)


@dataclass(frozen=True)
class MetricsLine:
    """The metrics of one step (an epoch), and when they were reported (seconds since 1970)."""

    step: int
    time: float
    metrics: dict[str, float]
    # value of each objective, if the trial is complete with this step
    result: list[float] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the content of the line. Only the last step has a result."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def parse(cls, line: bytes) -> "MetricsLine":
        content = json.loads(line)
        metrics = {name: float(value) for name, value in content["metrics"].items()}
        step = int(content["step"])
        reported = float(content["time"])
        if abs(step) >= _MAX_INT64 or not is_time(reported):
            raise ValueError(f"step {step} exceeds 64 bits, or {reported} is no time")
        result = content.get("result")
        if result is not None:
            result = [float(value) for value in result]
        return cls(step, reported, metrics, result)


def with_reported_result(
    end: Outcome, lines: Sequence[MetricsLine], began: float | None
) -> Outcome:
    """Return the outcome of an attempt; that of the last step if the attempt had reported it when
    it was ended.

    `lines` are those of the trial, and the attempt reported the ones since it `began` (seconds
    since 1970).
    """
    if end.state not in _ENDED_FROM_OUTSIDE or not lines or began is None:
        return end

    last = lines[-1]
    if last.result is None or last.time < began:
        return end
    return replace(
        end, state=State.COMPLETED, error="", objective=last.result, metrics=last.metrics
    )
