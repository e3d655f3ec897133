"""A search against a grid on MNIST 784-128-10: learning rate (1e-5 to 1) and batch size (32 to 1024).

The grid trains 7 x 6 pairs for 10 epochs each. The search, with asynchronous successive halving, is run with
several seeds of its sampler; its epochs are counted, and its best pair is compared with the grid's by val_accuracy.

    python benchmarks/search_pays.py [path/to/mnist.npz] [seeds] [trials of a search]
"""

import csv
import statistics
import sys
import tempfile
from pathlib import Path

from side_by_side import ROOT, SWEEP, machine, run

EPOCHS = 10
RATES = ",".join(f"{10 ** (-5 + 5 * i / 6):.3g}" for i in range(7))
BATCHES = "32,64,128,256,512,1024"


def sweep(path: str, *settings: str) -> tuple[float, int, str]:
    """The best val_accuracy, the epochs that all trials trained, and the best pair."""
    with tempfile.TemporaryDirectory() as folder:
        data = ["dataset=mnist", f"dataset.path={path}", f"epochs={EPOCHS}", "hydra.sweeper.study_name=s"]
        run([sys.executable, SWEEP, "-m", *data, f"batch_size={BATCHES}", *settings], Path(folder))
        study = Path(folder) / "multirun" / "s"
        epochs = sum(len(file.read_text().splitlines()) for file in study.glob("*/metrics.jsonl"))
        with (study / "trials.csv").open() as file:
            done = [row for row in csv.DictReader(file) if row["state"] == "completed"]
    best = max(done, key=lambda row: float(row["val_accuracy"]))
    return float(best["val_accuracy"]), epochs, f"lr={float(best['lr']):.3g} batch_size={best['batch_size']}"


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else str(ROOT.parent / "shared" / "data" / "mnist.npz")
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    trials = sys.argv[3] if len(sys.argv) > 3 else "16"
    grid = sweep(path, f"lr={RATES}")
    print(f"MNIST 784-128-10, lr (log 1e-5..1) x batch size (32..1024), {EPOCHS} epochs; {machine()}")
    print(f"  grid of 7 x 6   {100 * grid[0]:.2f} %  {grid[1]} epochs  {grid[2]}", flush=True)
    search = ["hydra/sweeper=optuna", "hydra/sweeper/pruner=asha", f"hydra.sweeper.n_trials={trials}"]
    found = []
    for seed in range(seeds):
        sampler = f"hydra.sweeper.sampler.seed={seed}"
        found.append(sweep(path, *search, sampler, "lr=tag(log, interval(1e-5, 1))"))
        accuracy, epochs, pair = found[-1]
        print(f"  search, seed {seed}  {100 * accuracy:.2f} %  {epochs} epochs  {pair}", flush=True)
    behind = statistics.median(100 * (grid[0] - accuracy) for accuracy, _, _ in found)
    share = statistics.median(100 * epochs / grid[1] for _, epochs, _ in found)
    print(f"  median          {behind:.2f} percentage points below the grid's best, with {share:.0f} % of its epochs")


if __name__ == "__main__":
    main()
