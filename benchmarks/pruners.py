"""Epochs that a search with a pruner or rungs needs, on 200 real curves of MNIST (make_curves.py). Nothing trains.

The product's own search with its pruners, named as in hydra/sweeper/pruner=, one trial and eight at a time. 100% are
the epochs of 60 full trials. Compared with the best of 60 full trials of the same seed: epochs until a completed trial
is within 1% of the table's range of that best; epochs of all 60 trials; and the points that the best of them lacks.

    python benchmarks/pruners.py [seeds]
"""

import heapq
import math
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import optuna
import yaml
from asked import DEFAULT, Asked
from side_by_side import ROOT, machine

from sweeps.hydra.settings import SweeperConf

TRIALS = 60
PRUNERS = {
    "none": "none",
    "asha": "asha",
    "hyperband": "hyperband",
    "median": "median",
    "asha, 6 epochs, by 3": "asha min_resource=6 reduction_factor=3",
    "rungs, 1 epoch, by 3": "halving first=1 factor=3",
    "rungs, 2 epochs, by 3": "halving first=2 factor=3",
    "rungs, 2 epochs, by 4": "halving first=2 factor=4",
}
Ends = list[tuple[int, float]]
"""The epochs spent when each trial ended, and its accuracy (%); -infinity if it was pruned. A paused one has no end."""


@cache
def table() -> tuple[list[str], dict[tuple[str, ...], list[float]]]:
    """Return the space, as one types it, and the accuracies of each point after each epoch (%)."""
    lines = (Path(__file__).parent / "data" / "mnist_curves.csv").read_text().splitlines()
    names, *rows = (line.split(",") for line in lines if not line.startswith("#"))
    count = names.index("1")
    lines = [f"{name}={','.join(sorted({row[i] for row in rows}))}" for i, name in enumerate(names[:count])]
    return lines, {tuple(row[:count]): [100 * float(value) for value in row[count:]] for row in rows}


def search(job: tuple[str, int, int]) -> Ends:
    """Run 60 trials of a search with a pruner, a seed and so many trials at a time; every epoch takes as long."""
    pruner, seed, at_a_time = job
    name, *changes = PRUNERS[pruner].split()
    part = "rungs" if name == "halving" else "pruner"
    conf = yaml.safe_load((ROOT / "sweeps/conf/hydra/sweeper" / part / f"{name}.yaml").read_text())
    conf |= {key: int(value) for key, value in (change.split("=") for change in changes)}
    sampler = {"_target_": DEFAULT, "seed": seed}
    settings = SweeperConf(sampler=sampler, n_trials=TRIALS, direction="maximize", **{part: conf})
    lines, curves = table()
    ends: Ends = []
    with tempfile.TemporaryDirectory() as folder:
        asked = Asked(Path(folder), settings, lines)
        running: list[tuple[int, int, Any]] = []  # end of each trial's epoch, its number, and the trial
        epochs: Counter[int] = Counter()  # that each trial has trained
        now = spent = 0
        while True:
            while len(running) < at_a_time and (trial := asked.ask()):
                heapq.heappush(running, (now + 1, trial.number, [trial, epochs[trial.number]]))
            if not running:
                return ends
            now, number, state = heapq.heappop(running)
            trial, epoch = state
            curve = curves[tuple(str(value) for value in trial.params.values())]
            spent += 1
            epochs[number] += 1
            prunes = asked.report(trial, epoch + 1, curve[epoch])
            if prunes or epoch + 1 == len(curve):
                asked.prune(trial) if prunes else asked.end(trial, curve[epoch])
                ends.append((spent, -math.inf if prunes else curve[epoch]))
            elif epoch + 1 == asked.pause_step(trial):
                asked.pause(trial, curve[epoch])
            else:
                heapq.heappush(running, (now + 1, number, [trial, epoch + 1]))


def reached(ends: Ends, accuracy: float) -> int | None:
    """Return the epochs spent until a trial completed with this accuracy or more; None if none did."""
    return next((spent for spent, value in ends if value >= accuracy), None)


def print_table(seeds: int, map_: Callable[..., list[Ends]]) -> None:
    """Print what each pruner needs, with the median and the range over the seeds."""
    _, curves = table()
    results = [curve[-1] for curve in curves.values()]
    tolerance, full = (max(results) - min(results)) / 100, TRIALS * max(map(len, curves.values()))
    print(f"{len(curves)} curves of MNIST; % of the epochs of {TRIALS} full trials; {seeds} seeds, median (range)")
    print(f"{'':25}within {tolerance:.2g} points    all {TRIALS} trials         points below at the end")
    for at_a_time in (1, 8):
        print(f"  {at_a_time} at a time")
        best: list[float] = []
        for pruner in PRUNERS:
            runs = map_(search, [(pruner, seed, at_a_time) for seed in range(seeds)])
            tops = [max(value for _, value in ends) for ends in runs]
            best = best or tops
            epochs = [reached(ends, top - tolerance) for ends, top in zip(runs, best, strict=True)]
            columns = [
                [math.inf if count is None else 100 * count / full for count in epochs],
                [100 * ends[-1][0] / full for ends in runs],
                [top - mine for top, mine in zip(best, tops, strict=True)],
            ]
            print(f"    {pruner:20}", "  ".join(f"{text(column):20}" for column in columns).rstrip(), flush=True)


def text(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})".replace("inf", "never")


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with Pool() as pool:
        print(machine())
        print_table(seeds, pool.map)


if __name__ == "__main__":
    main()
