"""Seconds for 40 trials of 1 to 10 s in 4 slots: our loop, side by side with batches of 4 that wait for their slowest
(the same trials under hydra-joblib-launcher) and with the best that this order allows (each trial in the slot that is
free first, nothing between two trials).

    python benchmarks/slots_kept_full.py [rounds]
"""

import random
import statistics
import sys
import tempfile
import time
from heapq import heapify, heapreplace
from pathlib import Path
from typing import Any

from side_by_side import SWEEP, machine, run, seconds, spread

SLOTS = 4
_SOURCE = random.Random(0)
DURATIONS_S = [round(_SOURCE.uniform(1, 10), 1) for _ in range(40)]


def train(cfg: Any, trial: Any) -> dict[str, float]:
    time.sleep(DURATIONS_S[cfg.seed])
    return {"val_accuracy": 0.5}


def best_possible() -> float:
    slots = [0.0] * SLOTS
    heapify(slots)
    for duration in DURATIONS_S:
        heapreplace(slots, slots[0] + duration)
    return max(slots)


def ours(folder: Path) -> None:
    # They only sleep: cores are not what bounds them, and TensorFlow need not be imported.
    warm = ["trainer.preload=[trainers.config.schema,sweeps.app]", "hydra.launcher.cpus_per_task=0"]
    sweep(folder, f"hydra.sweeper.n_jobs={SLOTS}", *warm)


def batches(folder: Path) -> None:
    joblib = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={SLOTS}"]
    sweep(folder, *joblib, f"hydra.sweeper.n_jobs={SLOTS}")


def sweep(folder: Path, *settings: str) -> None:
    environment = ["env", f"PYTHONPATH={Path(__file__).parent}"]
    trials = ["trainer=own", "trainer._target_=slots_kept_full.train", f"seed=range({len(DURATIONS_S)})"]
    run([*environment, sys.executable, SWEEP, "-m", *settings, *trials], folder)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    best = best_possible()
    taken: dict[str, list[float]] = {"ours": [], "batches": []}
    for _ in range(rounds):
        for name, way in (("ours", ours), ("batches", batches)):
            with tempfile.TemporaryDirectory() as folder:
                taken[name].append(seconds(lambda way=way, folder=folder: way(Path(folder))))
    print(f"{len(DURATIONS_S)} trials of 1 to 10 s in {SLOTS} slots, {rounds} rounds; {machine()}")
    print(f"  best possible  {best:.1f} s")
    for name, values in taken.items():
        print(f"  {name:13}  {spread(values):28} {100 * (statistics.median(values) / best - 1):.1f} % above the best")


if __name__ == "__main__":
    main()
