"""A line of a trial's metrics file, and the names of the files and of system metrics."""

import json
from dataclasses import dataclass

METRICS, SYSTEM_METRICS = "metrics.jsonl", "system_metrics.jsonl"
GPU, CPU = "system/gpu_", "system/cpu_"  # prefixes of system metrics; the number of a GPU follows its prefix
POWER, USE = "power_usage_watts", "utilization_percentage"  # suffixes of system metrics

_MAX_INT64 = 2**63  # because databases store steps and milliseconds in 64 bits


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
        if not (abs(step) < _MAX_INT64 and abs(reported) < _MAX_INT64 / 1000):
            raise ValueError(f"step {step} or time {reported} exceeds 64 bits")
        return cls(step, reported, metrics)
