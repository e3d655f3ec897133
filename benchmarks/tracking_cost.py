"""What tracking with everything on costs a trial of ten 2-second epochs of real computation.

The training's own time, as the trial measures it, side by side with tracking and without:

    python benchmarks/tracking_cost.py [rounds]
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from side_by_side import SWEEP, machine, run, spread

EPOCHS, EPOCH_S = 10, 2.0


def train(cfg: Any, trial: Any) -> dict[str, float]:
    """Epochs of a fixed amount of work, as much as takes 2 s on this machine when nothing else runs."""
    import numpy as np

    a = np.random.default_rng(0).random((300, 300))
    for epoch in range(EPOCHS):
        for _ in range(int(cfg.trainer.products)):
            a = a @ a / np.linalg.norm(a)
        trial.report({"val_accuracy": 0.5, "val_loss": 0.5, "loss": 0.5, "accuracy": 0.5}, step=epoch + 1)
    return {"val_accuracy": 0.5}


def products_in(seconds: float) -> int:
    import numpy as np

    a = np.random.default_rng(0).random((300, 300))
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        a = a @ a / np.linalg.norm(a)
        count += 1
    return count


def measure(products: int, *extra: str) -> float:
    """Seconds that the trial's process took, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            *("trainer=own", "trainer._target_=tracking_cost.train", "trainer.preload=[numpy]"),
            f"+trainer.products={products}",
        ]
        environment = ["env", f"PYTHONPATH={Path(__file__).parent}", "OPENBLAS_NUM_THREADS=1"]
        name = "hydra.sweeper.study_name=cost"
        run([*environment, sys.executable, SWEEP, "-m", "seed=1", *arguments, *extra, name], Path(folder))
        trial = Path(folder) / "multirun" / "cost" / "0"
        end = json.loads((trial / "attempts" / "1" / "end.json").read_text())
        return float(end["seconds"]["training"])


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    products = products_in(EPOCH_S)
    on, off = [], []
    for _ in range(rounds):
        off.append(measure(products, "tracking=none"))
        on.append(measure(products))
    cost = [100 * (a - b) / b for a, b in zip(on, off, strict=True)]
    print(f"a trial of {EPOCHS} epochs of about {EPOCH_S:g} s, {rounds} rounds; {machine()}")
    print(f"  tracking=none  {spread(off)}\n  tracking       {spread(on)}")
    print(f"  cost           {statistics.median(cost):.2f} % ({min(cost):.2f} to {max(cost):.2f})")


if __name__ == "__main__":
    main()
