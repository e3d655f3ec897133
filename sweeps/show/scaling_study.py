"""The scaling of a study: a sample of each trial, from its metrics."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import accumulate, chain

from sweeps.base.wording import text
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.show.notes import text_of
from sweeps.show.scaling import (
    COUNTED,
    EPOCH_TIME,
    EPOCHS_TO_STABLE,
    SINGULAR,
    SPEED,
    TIME_TO_STABLE,
    Sample,
    Scaling,
    Size,
    combine,
    compare,
    parse_size,
)
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Point, State
from sweeps.trial.metrics import CPU, GPU, POWER, USE, MetricsLine

_TARGETED = ("val_accuracy", "val_loss")  # metrics for which a trainer's `target` is a value


def measure_scaling(
    study: StudySnapshot, target: float | None = None, counts: Sequence[int] = ()
) -> Scaling | None:
    """Return how the study scales, with forecasts for `counts`; None without two sizes and trials
    with EPOCH_TIME."""
    points = _points(study)
    sizes = _sizes(points)
    if len({*sizes.values()}) < 2:
        return None
    on_gpus = any(gpus for _, _, gpus in sizes.values())
    samples, remarks = _measure_all(study, sizes, on_gpus)
    if not samples:
        return None
    named = _with_names(samples, points, _excluded(study, on_gpus))
    unit = _unit(sizes, on_gpus)
    hours = _hours([trial for trial in study.rows if trial.number in samples], unit)
    scaling = Scaling(study.name, unit, hours, study.objective[0])
    scaling = replace(scaling, forecast_counts=counts, remarks=remarks)
    maximize = study.directions[0] == "maximize"
    return compare(scaling, named, maximize, _own_target(study) if target is None else target)


def _with_names(
    samples: Mapping[int, Sample], points: Mapping[int, Point], excluded: Set[str]
) -> list[Sample]:
    names = _names([points[number] for number in samples], excluded)
    pairs = zip(names, samples.values(), strict=True)
    return [replace(sample, series=name) for name, sample in pairs]


def _hours(trials: Iterable[TrialRecord], unit: str) -> str:
    has_gpus = any(trial.attempts[-1].gpus for trial in trials)
    return f"{'GPU' if has_gpus else SINGULAR[unit]}-hours"


def _sizes(points: Mapping[int, Point]) -> dict[int, Size]:
    """Return the size of each trial that has a valid one."""
    sizes = {number: parse_size(point) for number, point in points.items()}
    return {number: size for number, size in sizes.items() if size}


def _excluded(study: StudySnapshot, on_gpus: bool) -> Set[str]:
    """Return the params of which the values name no series."""
    counted = ("gpus", "nodes") if on_gpus else COUNTED
    return {*counted, study.seed_key.lstrip("+~")}


def _unit(sizes: Mapping[int, Size], on_gpus: bool) -> str:
    if on_gpus:
        return "GPUs"
    has_ranks = any(count > nodes for count, nodes, _ in sizes.values())
    return "processes" if has_ranks else "nodes"


def _measure_all(
    study: StudySnapshot, sizes: Mapping[int, Size], on_gpus: bool
) -> tuple[dict[int, Sample], list[str]]:
    """Return a sample of each trial that can be compared, and sentences about the others."""
    samples: dict[int, Sample] = {}
    left_out: dict[str, list[TrialRecord]] = {}
    for trial in study.rows:
        size = sizes.get(trial.number)
        problem = _problem(trial, size, on_gpus)
        if size and not problem:
            sample = _measure(trial, size, study.objective[0], on_gpus)
            if sample.epoch_s:
                samples[trial.number] = sample
                continue
            problem = f"no {EPOCH_TIME} except of the first epoch, which includes tracing"
        left_out.setdefault(problem, []).append(trial)
    sentences = [
        f"Left out: trial {_first_of(trials)}: {problem}." for problem, trials in left_out.items()
    ]
    return samples, sentences


def _own_target(study: StudySnapshot) -> float | None:
    """Return the value of the setting `target` of all trials, which is a value of the objective;
    None without one."""
    try:
        value = float(study.fixed.get("target", "nan"))
    except ValueError:
        return None
    return value if math.isfinite(value) and study.objective[0] in _TARGETED else None


def count_sizes(study: StudySnapshot) -> int:
    """Return how many sizes the study tried."""
    return len({*map(parse_size, _points(study).values())} - {None})


def _points(study: StudySnapshot) -> dict[int, Point]:
    """Return the params of each trial, with the counted parameters that are fixed."""
    fixed: Point = {
        name: value for name in COUNTED if (value := study.fixed.get(name, "")).isdecimal()
    }
    return {
        trial.number: fixed | {n.lstrip("+~"): v for n, v in trial.params.items()}
        for trial in study.rows
    }


def _names(points: Sequence[Point], excluded: Set[str]) -> list[str]:
    """Return names of the differing values: with four digits, or exact if four would make two names
    equal."""
    names = [n for n in dict.fromkeys(chain(*points)) if n not in excluded]
    differing = [n for n in names if len({str(point.get(n)) for point in points}) > 1]
    cells = [[(n, point[n]) for n in differing if n in point] for point in points]
    short = [" ".join(f"{n}={text(value, digits=4)}" for n, value in pairs) for pairs in cells]
    exact = [" ".join(f"{n}={value}" for n, value in pairs) for pairs in cells]
    return short if len({*short}) == len({*exact}) else exact


def _first_of(trials: Sequence[TrialRecord]) -> str:
    more = text_of([str(trial.number) for trial in trials[1:]])
    return f"{trials[0].number} ({trials[0].name}{f'; also {more}' if more else ''})"


def _problem(trial: TrialRecord, size: Size | None, on_gpus: bool) -> str:
    """Return why a trial cannot be compared; empty if it can."""
    if trial.state not in (State.COMPLETED, State.PRUNED):
        return f"{trial.failure_signature[0]}, {trial.error.partition(chr(10))[0]}".rstrip(",. ")
    if trial.attempts and 0 < trial.attempts[-1].gpus < 1:
        return "it shared its GPU with other trials"
    if size is None:
        return f"a value of {', '.join(COUNTED)} is no valid count"
    return "it ran on the CPU" if on_gpus and not size[2] else ""


def _measure(trial: TrialRecord, size: Size, objective: str, on_gpus: bool) -> Sample:
    count, nodes, _ = size
    folder = TrialFolder(trial.folder)
    lines = _epochs(folder)
    firsts = _first_epochs(lines, folder)
    steady = [line.metrics for i, line in enumerate(lines) if i not in firsts]
    reported_s = [line.metrics[EPOCH_TIME] for line in lines]
    epochs_s = _without_tracing(reported_s, firsts)
    use_percent, watts = _mean_usage(folder, lines, on_gpus)
    speed = Sample(
        count=count,
        nodes=nodes,
        devices=int(trial.attempts[-1].gpus) or count,
        epoch_s=[metrics[EPOCH_TIME] for metrics in steady],
        images_s=combine(_positive(metrics.get(SPEED)) for metrics in steady),
        tracing_s=sum(reported_s) - sum(epochs_s),
        use_percent=use_percent,
        watts=watts,
    )
    values = [line.metrics.get(objective, math.nan) for line in lines]
    return _with_results(speed, trial, epochs_s, values)


def _with_results(
    speed: Sample, trial: TrialRecord, epochs_s: Sequence[float], values: Sequence[float]
) -> Sample:
    if trial.state is State.PRUNED:  # because it has no final results
        return speed
    return replace(
        speed,
        course=_course(epochs_s, values, trial.objective[:1]),
        objective=trial.objective[0] if trial.objective else None,
        epochs_to_stable=_positive(trial.metrics.get(EPOCHS_TO_STABLE)),
        time_to_stable_s=_positive(trial.metrics.get(TIME_TO_STABLE)),
    )


def _without_tracing(epochs_s: Sequence[float], firsts: Set[int]) -> list[float]:
    """Return the durations of epochs, where the first ones take at most the usual time."""
    usual_s = combine(s for i, s in enumerate(epochs_s) if i not in firsts) or math.inf
    return [min(s, usual_s) if i in firsts else s for i, s in enumerate(epochs_s)]


def _epochs(folder: TrialFolder) -> list[MetricsLine]:
    """Return the lines that report an epoch."""
    try:
        lines = folder.read_metrics().values
    except OSError:  # because one unreadable trial must not affect the others
        return []
    return [line for line in lines if _positive(line.metrics.get(EPOCH_TIME))]


def _first_epochs(lines: Sequence[MetricsLine], folder: TrialFolder) -> set[int]:
    """Return the positions of the first epoch of each attempt, which includes tracing."""
    try:
        starts = [attempt.began() for attempt in folder.attempts()]
    except OSError:
        return {0}
    firsts = {0}
    for start in starts:
        after = (i for i, line in enumerate(lines) if start is not None and line.time > start)
        firsts.add(next(after, 0))
    return firsts


def _course(
    epochs_s: Sequence[float], values: Sequence[float], returned: Sequence[float]
) -> list[tuple[float, float]]:
    """Return the objective by seconds of training; last, the returned one."""
    trained_s = list(accumulate(epochs_s))
    course = [*zip(trained_s, values, strict=True)]
    if trained_s:
        course += [(trained_s[-1], value) for value in returned]
    return [(seconds, value) for seconds, value in course if math.isfinite(value)]


def _positive(value: float | None) -> float | None:
    """Return a finite value above 0; None for another one."""
    return value if value is not None and 0 < value < math.inf else None


def _mean_usage(
    folder: TrialFolder, lines: Sequence[MetricsLine], on_gpus: bool
) -> tuple[float | None, float | None]:
    """Return the use of a GPU, or of the CPU, in percent, and the power of the GPUs of all nodes in
    watts."""
    use = []
    watts = []
    kind = GPU if on_gpus else CPU
    for samples in folder.usage():
        during = [s.metrics for s in samples if lines and lines[0].time <= s.time <= lines[-1].time]
        for metrics in during:
            names = [name for name in metrics if name.startswith(kind) and name.endswith(USE)]
            use += [metrics[name] for name in names]
        power = [[v for n, v in metrics.items() if n.endswith(POWER)] for metrics in during]
        watts.append(combine((sum(each) if each else None for each in power), statistics.fmean))
    return combine(use, statistics.fmean), combine(watts, math.fsum)
