"""The scaling of a study: a sample of each trial, from its metrics."""

import math
import statistics
from collections.abc import Sequence
from contextlib import suppress
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
    sizes = {number: size for number, point in points.items() if (size := parse_size(point))}
    if len({*sizes.values()}) < 2:
        return None
    on_gpus = any(gpus for _, _, gpus in sizes.values())
    has_ranks = any(count > nodes for count, nodes, _ in sizes.values())
    unit = "GPUs" if on_gpus else "processes" if has_ranks else "nodes"
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
    if not samples:
        return None
    excluded = {"gpus", "nodes", *(() if on_gpus else COUNTED), study.seed_key.lstrip("+~")}
    names = _names(
        [{n: v for n, v in points[number].items() if n not in excluded} for number in samples]
    )
    named = [
        replace(sample, series=name) for name, sample in zip(names, samples.values(), strict=True)
    ]
    remarks = [
        f"Left out: trial {_first_of(trials)}: {problem}." for problem, trials in left_out.items()
    ]
    has_gpus = any(trial.attempts[-1].gpus for trial in study.rows if trial.number in samples)
    hours = f"{'GPU' if has_gpus else SINGULAR[unit]}-hours"
    scaling = Scaling(
        study.name, unit, hours, study.objective[0], forecast_counts=counts, remarks=remarks
    )
    return compare(
        scaling,
        named,
        study.directions[0] == "maximize",
        _own_target(study) if target is None else target,
    )


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


def _names(points: Sequence[Point]) -> list[str]:
    """Return names of the differing values: with four digits, or exact if four would make two names
    equal."""
    differing = [
        n for n in dict.fromkeys(chain(*points)) if len({str(point.get(n)) for point in points}) > 1
    ]
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
    folder = TrialFolder(trial.folder)
    lines: list[MetricsLine] = []
    started_at: list[float] = []
    with suppress(OSError):  # because one unreadable trial must not affect the others
        lines = [
            line
            for line in folder.read_metrics().values
            if 0 < line.metrics.get(EPOCH_TIME, 0.0) < math.inf
        ]
    with suppress(OSError):
        started_at = [
            time for attempt in folder.attempts() if (time := attempt.began()) is not None
        ]
    firsts = {
        next((i for i, line in enumerate(lines) if line.time > time), -1) for time in started_at
    } | {0}
    steady = [line.metrics for i, line in enumerate(lines) if i not in firsts]
    usual_s = combine(metrics[EPOCH_TIME] for metrics in steady) or math.inf
    epochs_s = [
        min(s, usual_s) if i in firsts else s
        for i, s in enumerate(line.metrics[EPOCH_TIME] for line in lines)
    ]
    trained_s = list(accumulate(epochs_s))
    course = [
        (s, line.metrics.get(objective, math.nan)) for s, line in zip(trained_s, lines, strict=True)
    ]
    course += [(trained_s[-1], value) for value in trial.objective[:1] if trained_s]
    # because a pruned trial has valid speeds, but no final results
    is_whole = trial.state is not State.PRUNED
    results = {
        name: value for name, value in trial.metrics.items() if is_whole and 0 < value < math.inf
    }
    use_percent, watts = _mean_usage(folder, lines, on_gpus)
    return Sample(
        count=size[0],
        nodes=size[1],
        devices=int(trial.attempts[-1].gpus) or size[0],
        epoch_s=[metrics[EPOCH_TIME] for metrics in steady],
        images_s=combine(
            speed for metrics in steady if 0 < (speed := metrics.get(SPEED, 0.0)) < math.inf
        ),
        course=[(seconds, value) for seconds, value in course if is_whole and math.isfinite(value)],
        objective=trial.objective[0] if is_whole and trial.objective else None,
        epochs_to_stable=results.get(EPOCHS_TO_STABLE),
        time_to_stable_s=results.get(TIME_TO_STABLE),
        tracing_s=sum(line.metrics[EPOCH_TIME] for line in lines) - sum(epochs_s),
        use_percent=use_percent,
        watts=watts,
    )


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
