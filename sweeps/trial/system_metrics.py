"""CPU, memory and GPUs of one trial, sampled inside its process into system_metrics.jsonl.

Names and units are those of MLflow's system metrics, so that its dashboard has a section for them:

    system/cpu_utilization_percentage     of this process and its children; 100 is one core kept busy
    system/memory_usage_megabytes         resident memory of this process and its children, 1 MB = 1e6 bytes
    system/gpu_<i>_utilization_percentage, _memory_usage_megabytes, _power_usage_watts

GPU i is the trial's i-th own GPU, as the framework in it counts, whatever its number on the machine.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil

from sweeps.trial.folder import POWER, SYSTEM_METRICS, MetricsLine, TrialFolder

_SHORTEST_S = 0.5
"""The least time that a sample speaks for; the CPU time of less is mostly rounding."""


@contextmanager
def sampling(folder: TrialFolder, interval_s: float = 5.0) -> Iterator[None]:
    """Sample in the background, first after at most a second, last on leaving. Failures go to the log."""
    ended = threading.Event()
    thread = threading.Thread(target=_sample, args=(folder, interval_s, ended), name="system metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _sample(folder: TrialFolder, interval_s: float, ended: threading.Event) -> None:
    try:
        usage, step, wait_s = _Usage(), None, min(1.0, interval_s)
        last = False
        while not last:
            last = ended.wait(wait_s)
            if last and usage.age_s < min(_SHORTEST_S, interval_s):
                return
            if step is None:  # an earlier attempt may have left lines
                step = len(folder.read_metrics(name=SYSTEM_METRICS).values)
            folder.append_metrics(MetricsLine(step, time.time(), usage.sample()), SYSTEM_METRICS)
            step, wait_s = step + 1, interval_s
    except (OSError, ValueError, psutil.Error) as error:
        print(f"No further system metrics: {error}", file=sys.stderr)


class _Usage:
    def __init__(self) -> None:
        self._process = psutil.Process()
        self._since, self._cpu_s = time.monotonic(), _cpu_seconds(self._process)
        self._gpus: _Gpus | None = None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._since

    def sample(self) -> dict[str, float]:
        family = [self._process, *self._process.children(recursive=True)]
        cpu_s, resident = 0.0, 0
        for process in family:
            try:
                cpu_s += _cpu_seconds(process)
                resident += process.memory_info().rss
            except psutil.NoSuchProcess:  # it ended just now; its parent inherits its CPU time
                continue
        now = time.monotonic()
        busy = 100 * max(0.0, cpu_s - self._cpu_s) / (now - self._since)
        self._since, self._cpu_s = now, cpu_s
        if self._gpus is None:
            self._gpus = _Gpus(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        return {
            "system/cpu_utilization_percentage": round(busy, 1),
            "system/memory_usage_megabytes": round(resident / 1e6, 1),
            **self._gpus.sample(),
        }


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


class _Gpus:
    """The GPUs that `visible`, a value of CUDA_VISIBLE_DEVICES, names by index or UUID."""

    def __init__(self, visible: str) -> None:
        self._handles: list[Any] = []
        self._silent: set[str] = set()
        names = [name.strip() for name in visible.split(",")]
        names = [name for name in names if name.isdecimal() or name.startswith(("GPU-", "MIG-"))]
        if not names:
            return
        try:
            import pynvml
        except ImportError as error:
            print(f"No GPU metrics: {error}; pip install nvidia-ml-py", file=sys.stderr)
            return
        self._nvml: ModuleType = pynvml
        try:
            self._nvml.nvmlInit()
            self._handles = [self._handle(name) for name in names]
        except pynvml.NVMLError as error:
            print(f"No GPU metrics: {error} (CUDA_VISIBLE_DEVICES={visible})", file=sys.stderr)

    def _handle(self, name: str) -> Any:
        if name.isdecimal():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def sample(self) -> dict[str, float]:
        """What the GPUs tell; a quantity that one does not know (power, on some) is said once in the log."""
        values = {}
        for i, handle in enumerate(self._handles):
            for name, read in _READINGS.items():
                metric = f"system/gpu_{i}_{name}"
                if metric in self._silent:
                    continue
                try:
                    values[metric] = read(self._nvml, handle)
                except self._nvml.NVMLError as error:
                    self._silent.add(metric)
                    print(f"No {metric}: {error}", file=sys.stderr)
        return values


_READINGS: dict[str, Callable[[Any, Any], float]] = {
    "utilization_percentage": lambda nvml, gpu: float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    "memory_usage_megabytes": lambda nvml, gpu: round(nvml.nvmlDeviceGetMemoryInfo(gpu).used / 1e6, 1),
    POWER: lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
}
