"""What reports within an epoch cost: `trainer.report_every_steps=10` against reports by epoch, side by side.

python benchmarks/step_reports.py [rounds]
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from side_by_side import ROOT, SWEEP, machine, run, spread

MNIST = ROOT.parent / "shared" / "data" / "mnist.npz"
CASES = {"CNN": ["model=cnn", "steps=500"], "784-128-10": ["model=mlp", "steps=1719"]}


def epoch_s(folder: str, settings: list[str], every: str) -> float:
    """Return the seconds of the only epoch of a trial, batch size 32, with validation."""
    words = [sys.executable, SWEEP, "-m", "dataset=mnist", f"dataset.path={MNIST}", "tracking=none"]
    words += [
        f"hydra.sweeper.study_name=every_{every}",
        "batch_size=32",
        f"trainer.report_every_steps={every}",
        *settings,
    ]
    run(words, Path(folder))
    lines = (Path(folder) / "multirun" / f"every_{every}" / "0" / "metrics.jsonl").read_text().splitlines()
    return float(json.loads(lines[-1])["metrics"]["epoch_time"])


def main(rounds: int) -> None:
    print(machine())
    for name, settings in CASES.items():
        ratios = []
        for _ in range(rounds):
            with TemporaryDirectory() as folder:
                ratios.append(epoch_s(folder, settings, "10") / epoch_s(folder, settings, "null"))
        print(f"{name}: {spread(ratios, 'times as long')}, {rounds} rounds", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
