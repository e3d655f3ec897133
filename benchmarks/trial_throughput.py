"""Seconds for N trials of one epoch of the digits mlp, two at a time: a sweep with tracking, side by side with fresh
processes without tracking, and with hydra-joblib-launcher, whose workers run all their trials in one process.

    python benchmarks/trial_throughput.py [trials] [rounds]
"""

import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from side_by_side import SWEEP, machine, run, seconds, spread

AT_ONCE = 2


def sweep(trials: int, folder: Path) -> None:
    run([sys.executable, SWEEP, "-m", "epochs=1", f"seed=range({trials})"], folder)


def fresh_processes(trials: int, folder: Path) -> None:
    def one(seed: int) -> None:
        run([sys.executable, SWEEP, "epochs=1", f"seed={seed}", "tracking=none"], folder)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(trials)))


def joblib(trials: int, folder: Path) -> None:
    settings = ["hydra/sweeper=basic", "hydra/launcher=joblib", f"hydra.launcher.n_jobs={AT_ONCE}"]
    plain = [f"{Path(__file__).parent}/plain_app.py", "-m", *settings, "epochs=1", f"seed=range({trials})"]
    run([sys.executable, *plain], folder)


def main() -> None:
    trials, rounds = (int(word) for word in (sys.argv[1:] + ["16", "3"][len(sys.argv) - 1 :]))
    ways = {"sweep": sweep, "fresh processes": fresh_processes, "joblib": joblib}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                taken[name].append(seconds(lambda way=way, folder=folder: way(trials, Path(folder))))
    print(f"{trials} trials of one epoch, {AT_ONCE} at a time, {rounds} rounds; {machine()}")
    for name, values in taken.items():
        ratios = [other / own for other, own in zip(values, taken["sweep"], strict=True)]
        print(f"  {name:16} {spread(values):30} {statistics.median(ratios):.2f} times the sweep")


if __name__ == "__main__":
    main()
