"""What reports of running trials gain: eight at a time on 200 real learning curves of MNIST (make_curves.py).

The product's own search, without a pruner, with and without reports. The epochs of each trial take 0.5 to 2 times as
long as those of the others, by chance. Nothing trains.

    python benchmarks/running_reports.py [seeds]
"""

import heapq
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import optuna
from asked import DEFAULT, Asked
from pairs import difference
from pruners import table
from side_by_side import machine

from sweeps.hydra.settings import SweeperConf

TRIALS, AT_A_TIME, COUNTS = 60, 8, (15, 20, 25, 30, 40, 60)


def search(job: tuple[int, bool]) -> list[tuple[float, float]]:
    """Return when each trial ended, and how many points the best until then lacks to the best of the table."""
    seed, reports = job
    lines, curves = table()
    settings = SweeperConf(sampler={"_target_": DEFAULT, "seed": seed}, n_trials=TRIALS, direction="maximize")
    top, lacks = max(curve[-1] for curve in curves.values()), math.inf
    ends: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        asked, now = Asked(Path(folder), settings, lines), 0.0
        running: list[tuple[float, int, Any]] = []  # end of each trial's epoch, its number, and the trial
        while True:
            while len(running) < AT_A_TIME and (trial := asked.ask()):
                point = tuple(str(value) for value in trial.params.values())
                epoch_s = 2 ** random.Random(f"{seed} {point}").uniform(-1, 1)
                heapq.heappush(running, (now + epoch_s, trial.number, (trial, epoch_s, 1, curves[point])))
            if not running:
                return ends
            now, number, (trial, epoch_s, epoch, curve) = heapq.heappop(running)
            if reports:
                asked.report(trial, epoch, curve[epoch - 1])
            if epoch < len(curve):
                heapq.heappush(running, (now + epoch_s, number, (trial, epoch_s, epoch + 1, curve)))
            else:
                asked.end(trial, curve[-1])
                lacks = min(lacks, top - curve[-1])
                ends.append((now, lacks))


def at_time(ends: Sequence[tuple[float, float]], seconds: float) -> float:
    """Return what the best lacks at this time."""
    return [lacks for now, lacks in ends if now <= seconds][-1]


def to_best(ends: Sequence[tuple[float, float]]) -> float:
    """Return the trials to the best of the table; one more than all without it."""
    return float(sum(lacks > 0 for _, lacks in ends) + 1)


def print_row(name: str, reported: Sequence[float], unreported: Sequence[float]) -> None:
    change = difference([reported], [unreported])
    means = f"{statistics.fmean(reported):.3f} with, {statistics.fmean(unreported):.3f} without"
    print(f"  {name:20} {means}: {change.mean:+.3f} ({change.low:+.3f} to {change.high:+.3f})")


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with Pool() as pool:
        with_reports, without = (pool.map(search, [(seed, flag) for seed in range(seeds)]) for flag in (True, False))
    print(machine())
    print(f"points below the best, {AT_A_TIME} at a time, {seeds} seeds: mean, mean difference (95% interval)")
    for count in COUNTS:
        print_row(f"after {count} trials", *([ends[count - 1][1] for ends in runs] for runs in (with_reports, without)))
    for count in COUNTS:
        seconds = statistics.median(ends[count - 1][0] for ends in without)
        name = f"at the time of {count}"
        print_row(name, *([at_time(ends, seconds) for ends in runs] for runs in (with_reports, without)))
    print_row("trials to the best", *([to_best(ends) for ends in runs] for runs in (with_reports, without)))


if __name__ == "__main__":
    main()
