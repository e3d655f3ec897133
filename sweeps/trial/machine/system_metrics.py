"""CPU, memory and GPUs of one trial, sampled inside its process into system_metrics.jsonl.

Names and units match MLflow's system metrics, so that its dashboard shows them in their own
section:

    system/cpu_utilization_percentage     of this process and its children; 100 is one core kept
                                          busy
    system/memory_usage_megabytes         resident memory of this process and its children, 1 MB =
                                          1e6 bytes
    system/gpu_<i>_utilization_percentage, _memory_usage_megabytes, _power_usage_watts

Of a GPU that trials share, the memory is that of this process and its children, also in percent of
the GPU's memory, the power is an equal part of the GPU's power, and the utilization is that of the
whole GPU.

GPU i is the trial's i-th own GPU, as its framework counts, whatever its number on the machine. If a
trial has several nodes, the first process on each node samples. MLflow shows the chief's samples;
the energy counts all samples.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psutil
import pynvml

from sweeps.trial.folder import TrialFolder
from sweeps.trial.machine import facts, gpus
from sweeps.trial.metrics import CPU, GPU, OWN_MEMORY, POWER, SYSTEM_METRICS, USE, MetricsLine
from sweeps.trial.times import now

_MIN_INTERVAL_S = 0.5  # because CPU time over a shorter interval is mostly rounding
_MEMORY = "memory_usage_megabytes"
_READINGS: dict[str, Callable[[Any], float | None]] = {
    USE: lambda gpu: float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    _MEMORY: lambda gpu: round(pynvml.nvmlDeviceGetMemoryInfo(gpu).used / 1e6, 1),
    POWER: lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
}
_SHARED_READINGS: dict[str, Callable[[Any], float | None]] = _READINGS | {
    _MEMORY: lambda gpu: _own_memory(gpu, 1e6),
    OWN_MEMORY: lambda gpu: _own_memory(gpu, pynvml.nvmlDeviceGetMemoryInfo(gpu).total / 100),
    POWER: lambda gpu: gpus.share() * pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
}


def _own_memory(gpu: Any, unit: float) -> float | None:
    """Return the GPU memory of this process and its children, in `unit` bytes; None if NVML lists
    none of them.

    NVML lists no process that has not used the GPU yet, and has other process ids than a container.
    """
    process = psutil.Process()
    pids = {process.pid, *(child.pid for child in process.children(recursive=True))}
    listed = [used for used in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu) if used.pid in pids]
    sizes = [used.usedGpuMemory for used in listed if used.usedGpuMemory is not None]
    return round(sum(sizes) / unit, 1) if sizes else None


@contextmanager
def sampling(
    folder: TrialFolder, interval_s: float = 5.0, name: str = SYSTEM_METRICS
) -> Iterator[None]:
    """Sample in the background, first after at most a second, last on exit. Failures are printed to
    the log."""
    ended = threading.Event()
    arguments = (folder, interval_s, name, ended)
    thread = threading.Thread(target=_sample, args=arguments, name="system metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _sample(folder: TrialFolder, interval_s: float, name: str, ended: threading.Event) -> None:
    try:
        usage = _Usage()
        wait_s = min(1.0, interval_s)
        # the chief's
        attempt = folder.newest() if name == SYSTEM_METRICS else None
        if usage.gpu_model and attempt:
            facts.record(attempt, process={"gpu_model": usage.gpu_model})
        # because an earlier attempt may have written samples
        step = len(folder.read_metrics(name=name).values)
        last = False
        while not last:
            last = ended.wait(wait_s)
            if not last or time.monotonic() - usage.since >= min(_MIN_INTERVAL_S, interval_s):
                folder.append_metrics(MetricsLine(step, now(), usage.sample()), name)
            step += 1
            wait_s = interval_s
    except (OSError, ValueError, psutil.Error) as error:
        print(f"No further system metrics: {error}", file=sys.stderr)


class _Usage:
    """The resources that this process, its children and its GPUs used since the last sample."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.since = time.monotonic()
        self._cpu_s = sum(self._process.cpu_times()[:4])
        own = _own_gpus(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        self.gpu_model = ", ".join(dict.fromkeys(name for _, name in own))  # "" without GPUs
        readings = _READINGS if gpus.share() == 1 else _SHARED_READINGS
        self._gpus = {
            f"{GPU}{i}_{name}": partial(read, gpu)
            for i, (gpu, _) in enumerate(own)
            for name, read in readings.items()
        }

    def sample(self) -> dict[str, float]:
        cpu_s = 0.0
        resident = 0
        values = dict[str, float]()
        for process in [self._process, *self._process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # ended just now; its parent inherits its CPU time
                # user and system time, its own and of children that ended
                cpu_s += sum(process.cpu_times()[:4])
                resident += process.memory_info().rss
        for name, read in list(self._gpus.items()):
            try:
                value = read()
                if value is not None:
                    values[name] = value
            except pynvml.NVMLError as error:  # because some GPUs do not measure power
                print(f"No {name}: {error}", file=sys.stderr)
                del self._gpus[name]
        now = time.monotonic()
        busy = 100 * max(0.0, cpu_s - self._cpu_s) / (now - self.since)
        self.since = now
        self._cpu_s = cpu_s
        values[f"{CPU}{USE}"] = round(busy, 1)
        values[f"system/{_MEMORY}"] = round(resident / 1e6, 1)
        return values


def _own_gpus(visible: str) -> list[tuple[Any, str]]:
    """Return NVML's handle and the model of each GPU in `visible`, a value of
    CUDA_VISIBLE_DEVICES."""
    try:
        own = [gpus.handle(name) for name in gpus.names_in(visible)]
        return [(gpu, str(pynvml.nvmlDeviceGetName(gpu))) for gpu in own]
    except pynvml.NVMLError as error:
        print(f"No GPU metrics: {error} (CUDA_VISIBLE_DEVICES={visible})", file=sys.stderr)
        return []
