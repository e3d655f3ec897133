"""What hydra.sweeper.learn_from is worth: searches in a table, with and without an earlier study of 60 trials.

A related study searched in the next table of the same kind (other data, the same hyperparameters). A misleading one
searched in the table itself, with its losses negated, so that its best points are the worst.
"""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from asked import DEFAULT
from searchers import TRIALS, ours
from tables import TABLES, Task, regrets, table

AT = (20, 40, 60)
STUDIES = ("none", "related", "misleading")


def searched(job: tuple[str, int, int]) -> list[float]:
    """The regret after each trial, one at a time."""
    study, number, seed = job
    task = table(number)[0]
    if study == "none":
        return regrets(number, ours(DEFAULT)(task, seed, 1))
    before = table(_next(number))[0] if study == "related" else _negated(task)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        list(ours(DEFAULT, folder=folder)(before, 1000 + seed, 1))
        return regrets(number, ours(DEFAULT, (folder,))(task, seed, 1))


def _next(number: int) -> int:
    related = [other for other, (kind, _) in enumerate(TABLES) if kind is TABLES[number][0]]
    return related[(related.index(number) + 1) % len(related)]


def _negated(task: Task) -> Task:
    def run(point: dict[str, object]) -> tuple[float | None, float]:
        result, seconds = task.run(point)
        return None if result is None else -result, seconds

    return task._replace(run=run)


def report(mapped: Callable[..., list[list[float]]], seeds: int) -> None:
    """Print the mean regrets, and after how many trials each reaches the final ones without an earlier study."""
    print(f"learn_from (seeds: {seeds}): mean regret after {', '.join(map(str, AT))} trials, one at a time")
    alone: list[float] = []
    for study in STUDIES:
        jobs = [(study, number, seed) for number in range(len(TABLES)) for seed in range(seeds)]
        curve = [statistics.fmean(column) for column in zip(*mapped(searched, jobs), strict=True)]
        alone = alone or curve
        text = "  ".join(f"{curve[count - 1]:.4f}" for count in AT)
        reached = ", ".join(_count(curve, alone[count - 1]) for count in AT)
        print(f"    {study:14} {text}  (as good as none at {', '.join(map(str, AT))} after {reached})", flush=True)


def _count(curve: list[float], goal: float) -> str:
    """Return after how many trials a curve reaches a regret."""
    return next((str(count) for count, regret in enumerate(curve, 1) if regret <= goal), f"more than {TRIALS}")
