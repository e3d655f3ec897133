"""Advice on requests: what trials used of what they requested, and what to type next time.

Derived from the outcomes of attempts, and thus the same while a study runs, at its end and after a
kill. The conditions follow seff and jobstats: https://princetonuniversity.github.io/jobstats
"""

import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from sweeps.base.files import MALFORMED, last_lines
from sweeps.hydra.followed import by_default
from sweeps.hydra.settings import short_min
from sweeps.record.study import TrialRecord
from sweeps.record.trial_config import read_launcher, read_values
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.machine.usage import find_idle_gpus
from sweeps.trial.metrics import GPU, USE, MetricsLine
from sweeps.trial.times import now

_MARGIN = 1.2  # factor of the largest use
_WASTE = 0.5  # a request is too large if this fraction of it is enough
# a smaller request frees nothing, because a core of a usual node has as much memory
_USUAL_GB = 4.0
_SHORTEST_MIN = 5
_LONG_S = 60.0  # shortest trial whose CPU and GPU count, because imports dominate a shorter trial
_LOW_GPU = 50.0  # mean utilization (%)
_FULL_CPU = 0.8  # fraction of the requested cores
_IDLE_CPU = 0.5  # fraction of the requested cores
_TAIL = 1 << 20  # bytes of samples: more than an hour of four GPUs

Settings = Mapping[str, Any]  # of the launcher


@dataclass(frozen=True)
class Use:
    """The use of a resource over the trials of a study."""

    name: str
    unit: str
    requested: float  # the smallest request
    median: float
    worst: float  # the largest use; of GPUs the smallest

    def __str__(self) -> str:
        used = f"{self.worst:.3g} {self.unit} used at most (median {self.median:.3g})"
        return f"{self.name}: {used}, of {self.requested:.4g} {self.unit} requested"


@dataclass(frozen=True)
class Advice:
    """The waste of a resource, in numbers, and what to do about it."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}. {self.remedy}"


def examine(trials: Iterable[TrialRecord]) -> tuple[list[Use], list[Advice]]:
    """Return the use of each requested resource, and advice, from the trials with a result."""
    began = [trial for trial in trials if trial.attempts]
    ran = [trial for trial in began if _has_run(trial)]
    if not ran:
        return [], []
    newest = max(ran, key=lambda trial: trial.attempts[-1].ended_at)
    settings = read_launcher(newest.folder)
    lasts = [trial.attempts[-1] for trial in ran]
    long = [outcome for outcome in lasts if outcome.duration_s >= _LONG_S]
    time = _time([trial for trial in ran if trial.state is State.COMPLETED])
    memory = _memory(lasts)
    cores = _cores(long)
    gpus = _gpu(long)

    advice: list[Advice | None] = []
    if time and not _has_ended(began, State.TIMED_OUT):
        advice.append(_advise_time(time, settings))
    if memory and not _has_ended(began, State.OUT_OF_MEMORY):
        advice.append(_advise_memory(memory, settings))
    if cores:
        advice.append(_advise_cores(cores, memory, settings))
    if gpus:
        advice.append(_advise_gpus(gpus, long, settings, read_values(newest.folder)))
    return [*filter(None, (time, memory, cores, gpus))], [*filter(None, advice)]


def _has_ended(trials: Iterable[TrialRecord], state: State) -> bool:
    """Return whether an attempt of a trial ended in this state."""
    return any(outcome.state is state for trial in trials for outcome in trial.attempts)


def _has_run(trial: TrialRecord) -> bool:
    has_result = trial.state in (State.COMPLETED, State.PRUNED)
    return has_result and bool(trial.attempts[-1].requested)


def _use(
    name: str, unit: str, pairs: Sequence[tuple[float, float]], worst: Callable[..., float] = max
) -> Use | None:
    """Return the use from pairs of a request and what was used of it; None without any."""
    if not pairs:
        return None
    requested, used = zip(*pairs, strict=True)
    return Use(name, unit, min(requested), median(used), worst(used))


def _time(trials: Sequence[TrialRecord]) -> Use | None:
    """Return the minutes of the trials with a limit. The attempts of a trial that resumed are added
    up."""
    pairs = []
    for trial in trials:
        limit = trial.attempts[-1].timeout_min
        used_s = sum(outcome.duration_s for outcome in trial.attempts)
        if limit:
            pairs.append((limit, used_s / 60))
    return _use("time", "min", pairs)


def _is_sampled(outcome: Outcome, name: str) -> bool:
    """Return whether the use was sampled whole: of several ranks on a node, the samples show the
    first one."""
    return _has_rank_per_node(outcome) and name in outcome.requested and name in outcome.used


def _has_rank_per_node(outcome: Outcome) -> bool:
    nodes = outcome.requested.get("nodes", 0)
    return nodes >= 1 and outcome.requested.get("ranks") == nodes


def _memory(outcomes: Sequence[Outcome]) -> Use | None:
    return _use("memory of a node", "GB", _of_node(outcomes, "mem_gb"))


def _cores(outcomes: Sequence[Outcome]) -> Use | None:
    return _use("CPU of a node", "cores", _of_node(outcomes, "cores"))


def _of_node(outcomes: Sequence[Outcome], name: str) -> list[tuple[float, float]]:
    """Return what each sampled attempt requested of a resource on a node, and what it used."""
    pairs = []
    for outcome in outcomes:
        if _is_sampled(outcome, name):
            requested = outcome.requested[name] / outcome.requested["nodes"]
            pairs.append((requested, outcome.used[name]))
    return pairs


def _gpu(outcomes: Sequence[Outcome]) -> Use | None:
    used = [outcome.gpu_use for outcome in outcomes if outcome.gpus and outcome.gpu_use is not None]
    return _use("GPU", "%", [(100.0, percent) for percent in used], min)


def _enough(use: Use, floor: int, more: float = 0.0) -> int | None:
    """Return a request that is enough for the largest use, with a margin; None if the present
    request is no waste."""
    enough = max(floor, math.ceil(use.worst * _MARGIN + more))
    return enough if enough <= use.requested * _WASTE else None


def _advise_time(use: Use, settings: Settings) -> Advice | None:
    """Return advice on a limit if each trial has its own job, because the limit of a worker is no
    trial's."""
    delay_s = settings.get("signal_delay_s")
    if delay_s is None or _is_packed(use, settings):
        return None
    # because a shorter one is refused
    shortest = max(_SHORTEST_MIN, math.ceil(settings.get("short_trial_min") or 0))
    enough = _enough(use, shortest, delay_s / 60)
    if not enough:
        return None
    remedy = f"A shorter job starts earlier. Type: hydra.launcher.timeout_min={enough}"
    return Advice(str(use), remedy)


def _is_packed(use: Use, settings: Settings) -> bool:
    """Return whether a job runs several trials, one after the other or on one GPU."""
    if settings.get("trials_per_gpu", 1) > 1:
        return True
    mode = settings.get("trials_per_job")
    if mode == "auto":
        return use.median < short_min(settings.get("short_trial_min"), use.requested)
    return bool(mode != 1)


def _advise_memory(use: Use, settings: Settings) -> Advice | None:
    enough = _enough(use, 1) if use.requested > _USUAL_GB else None
    line = memory_line(enough, settings) if enough else ""
    return Advice(str(use), f"Type: {line}") if line else None


def memory_line(mem_gb: int, settings: Settings) -> str:
    """Return what to type for this memory on each node, without other settings of it; "" if sbatch
    gets an option."""
    options = settings.get("additional_parameters") or {}
    if any(str(name).startswith("mem") for name in options):
        return ""
    words = [f"hydra.launcher.mem_gb={mem_gb}"]
    for name in ("mem_per_cpu", "mem_per_gpu"):
        if settings.get(name):
            words.append(f"hydra.launcher.{name}=null")
    return " ".join(words)


def _advise_cores(use: Use, memory: Use | None, settings: Settings) -> Advice | None:
    """Return advice on fewer cores, if a setting requests them."""
    by_gpu = settings.get("cpus_per_gpu")
    enough = _enough(use, 1)
    if enough is None or not (by_gpu or settings.get("cpus_per_task")):
        return None
    words = [f"hydra.launcher.cpus_per_task={enough}"]
    if by_gpu:
        words.append("hydra.launcher.cpus_per_gpu=null")
    if settings.get("mem_per_cpu") and memory:  # because fewer cores would bring less memory
        mem_gb = max(1, math.ceil(memory.worst * _MARGIN))
        words.append(memory_line(mem_gb, settings))
    return Advice(str(use), f"Type: {' '.join(filter(None, words))}")


def _advise_gpus(
    use: Use, outcomes: Sequence[Outcome], settings: Settings, values: Settings
) -> Advice | None:
    """Return advice on fewer GPUs, or what to do about GPUs that are less than half busy."""
    sampled = [outcome for outcome in outcomes if outcome.gpus and "busy_gpus" in outcome.used]
    if use.median >= _LOW_GPU or not sampled:
        return None
    busy = max(int(outcome.used["busy_gpus"]) for outcome in sampled)
    requested = min(outcome.gpus for outcome in sampled)
    problem = f"GPU: {use.median:.3g}% busy (median; lowest {use.worst:.3g}%)"
    if busy < requested and requested >= 1:  # because a shared GPU may be busy with other trials
        shown = f"{problem}, because {requested - busy} of {requested} GPUs did nothing"
        nodes = max(outcome.requested.get("nodes", 1) for outcome in sampled)
        key = by_default("launcher/slurm", "gpus_per_node")
        if key not in values:
            key = "hydra.launcher.gpus_per_node"
        return Advice(shown, f"Type: {key}={math.ceil(busy / nodes)}")
    share = _share_line(settings) if requested == 1 else ""
    return _explain_gpus(problem, sampled, share)


def _share_line(settings: Settings) -> str:
    """Return what to type for trials that share a GPU; "" if the launcher cannot share it."""
    if "trials_per_gpu" not in settings:
        return ""
    if settings.get("trials_per_job") == 1:
        return "hydra.launcher.trials_per_gpu=2 hydra.launcher.trials_per_job=null"
    return "hydra.launcher.trials_per_gpu=2"


def _explain_gpus(problem: str, outcomes: Sequence[Outcome], share: str) -> Advice:
    """Return the advice for GPUs that wait: for their input if the CPU is full, for larger batches
    if it is idle.

    `share` is what to type for trials that share a GPU; empty if they cannot.
    """
    used = []
    shares = []
    for outcome in outcomes:
        if _has_rank_per_node(outcome) and "cores" in outcome.used:
            nodes = outcome.requested["nodes"]
            requested = outcome.requested.get("cores", nodes)
            used.append(outcome.used["cores"])
            shares.append(outcome.used["cores"] * nodes / requested)
    busy = median(shares) if shares else None
    if busy is not None and busy >= _FULL_CPU:
        cores = math.ceil(2 * max(used))
        line = (
            f"hydra.launcher.cpus_per_task={cores} (with hydra.sweeper.preview=true, SLURM"
            " checks it)"
        )
        slow = f"{problem}, and the CPU is full ({busy:.0%} busy): the input is slow"
        return Advice(slow, f"Prepare the input once, before the training, or type: {line}")
    if busy is not None and busy < _IDLE_CPU:
        small = f"{problem}, and the CPU is idle, too ({busy:.0%} busy): the batches are small"
        or_share = f", or type: {share}" if share else ""
        return Advice(small, f"Enlarge the batch{or_share}")
    return Advice(problem, "The record does not show why: profile a trial")


def warn_idle_gpus(trial: TrialRecord, idle_min: float | None) -> str:
    """Return a warning if a GPU of a running trial has been idle for `idle_min` minutes; "" if none
    has."""
    attempt = None
    names = set[str]()
    with suppress(OSError):  # because a shared disk may be away for a moment
        attempt = TrialFolder(trial.folder).newest() if idle_min else None
        since = attempt.began() if attempt else None
        if idle_min and since and now() - since >= idle_min * 60:
            for file in trial.folder.glob("system_metrics*.jsonl"):
                lines = _newest_first(last_lines(file, _TAIL, _TAIL))
                names |= find_idle_gpus(lines, since, idle_min * 60)
    if not (attempt and names):
        return ""
    numbers = sorted(name.removeprefix(GPU).removesuffix(f"_{USE}") for name in names)
    idle = (
        f"trial {trial.number}: its GPU {', '.join(numbers)} has been idle for {idle_min:g} minutes"
        " or more"
    )
    return f"{idle}. See what the trial does: tail {shlex.quote(str(attempt.log))}"


def _newest_first(lines: Sequence[str]) -> Iterator[MetricsLine]:
    for line in reversed(lines):
        with suppress(*MALFORMED):  # because the first and the last line may be cut
            yield MetricsLine.parse(line.encode())
