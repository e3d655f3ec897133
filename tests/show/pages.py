"""Studies on disk, written without running trials, for tests of pages."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweeps.record.fold import trial_as_json
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, State
from sweeps.trial.metrics import MetricsLine


def trial(
    folder: Path, number: int, point: Point, curve: Sequence[float], state: State, error: str = "", **more: float
) -> TrialRecord:
    """Return a trial with this accuracy by step; a completed trial has the last accuracy and `more` as objectives."""
    files, row = TrialFolder(folder / str(number)), TrialRecord(number, point, State.QUEUED, folder / str(number))
    files.write_trial(trial_as_json(row, folder))
    (files.path / ".hydra").mkdir()
    lines = [f"{name}: {value}" for name, value in point.items()]
    (files.path / ".hydra" / "config.yaml").write_text("\n".join(["epochs: 10", *lines, "db: ${oc.env:DB}"]))
    start = 1.7e9 + 20 * number
    attempt = files.new_attempt(start)
    attempt.begin(start + 1)
    log = [f"epoch {step}: accuracy {value:.4f} <b>&" for step, value in enumerate(curve)]
    attempt.log.write_text("\n".join([*log, *(["Traceback (most recent call last):", error] if error else [])]))
    for step, value in enumerate(curve):
        files.append_metrics(MetricsLine(step, start + step, {"accuracy": value, "loss": 2 * (1 - value)}))
    metrics = {"accuracy": curve[-1]} if curve else {}
    if state is State.RUNNING:
        return replace(row, state=state, metrics=metrics)
    returned = [curve[-1], *more.values()] if state is State.COMPLETED else []
    seconds = {"starting": 0.5, "training": 30.0}
    return row.with_end(attempt.close(Outcome(state, error, returned, metrics, seconds), start + 32))


def rising(top: float, steps: int = 10) -> list[float]:
    return [top * (1 - math.exp(-(step + 1) / 2.5)) for step in range(steps)]


def search(folder: Path, count: int = 20) -> StudySnapshot:
    """Return a search of 20 trials, most of them pruned, three failed and two running; five are queued."""
    draw, rows = random.Random(1), []
    for number in range(count):
        lr, batch = 10 ** draw.uniform(-4, -1), draw.choice([16, 32, 64, 128])
        point: Point = {"lr": lr, "batch_size": batch, "optimizer": draw.choice(["adam", "sgd", "rmsprop"])}
        curve = rising(0.98 - 0.06 * (math.log10(lr) + 2.4) ** 2 - 0.02 * abs(math.log2(batch) - 5.3))
        state, error = State.COMPLETED, ""
        if number in (4, 11):
            state, curve, error = State.FAILED, curve[:2], f"OSError: block {number} of '<data>' cannot be read"
        elif number == 13:
            state, curve, error = State.DIVERGED, [math.nan], "loss became nan at step 0"
        elif number >= count - 2:
            state, curve = State.RUNNING, curve[:4]
        elif number > 4 and curve[3] < 0.76:
            state, curve = State.PRUNED, curve[:4]
        rows.append(trial(folder, number, point, curve, state, error))
    space = {"lr": "log interval(0.0001, 0.1)", "batch_size": "16,32,64,128", "optimizer": "sgd,adam,rmsprop"}
    summary = StudySnapshot("search", folder, ("accuracy",), ("maximize",), rows, count + 5, searched=True)
    return replace(summary, space=space, best_command="sweepyard best search")


def grid(folder: Path) -> StudySnapshot:
    rows, points = [], [(lr, batch) for lr in (0.001, 0.003, 0.01, 0.03) for batch in (32, 64, 128)]
    for number, (lr, batch) in enumerate(points):
        full, curve = number == 11, rising(0.97 - 0.1 * (math.log10(lr) + 2.2) ** 2 - 0.01 * math.log2(batch / 32), 8)
        state, error = (State.OUT_OF_MEMORY, "MemoryError: 128 do not fit") if full else (State.COMPLETED, "")
        rows.append(trial(folder, number, {"lr": lr, "batch_size": batch}, [] if full else curve, state, error))
    best_command = "sweepyard best grid"
    return StudySnapshot("grid", folder, ("accuracy",), ("maximize",), rows, len(rows), best_command=best_command)


def two_objectives(folder: Path) -> StudySnapshot:
    rows = []
    for number in range(12):
        size, lr = number % 4, (0.0003, 0.001, 0.003)[number // 4]
        point: Point = {"filters": f"[{8 * 2**size},{16 * 2**size}]", "lr": lr}
        seconds = {"seconds": 2 * 1.8**size + number % 3}
        state = State.FAILED if number == 7 else State.COMPLETED
        rows.append(
            trial(folder, number, point, rising(0.9 + 0.02 * size + lr), state, "bad" * (number == 7), **seconds)
        )
    return StudySnapshot("two", folder, ("accuracy", "seconds"), ("maximize", "minimize"), rows, len(rows))


def all_failed(folder: Path) -> StudySnapshot:
    rows = []
    for number in range(6):
        error = "FileNotFoundError: No such file: '/data/mnist.npz'" if number < 5 else "it was killed by signal 9"
        rows.append(trial(folder, number, {"lr": 0.1 * (number + 1)}, [], State.FAILED, error))
    return StudySnapshot("all failed", folder, ("accuracy",), ("maximize",), rows, len(rows))


STUDIES = {"search": search, "grid": grid, "two_objectives": two_objectives, "all_failed": all_failed}
