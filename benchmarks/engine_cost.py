"""The engine's own cost: trials of a function that returns at once, two at a time, tracking on.

Seconds a trial around trial 10, 100 and 1,000, from the times at which the trials left their results:

    python benchmarks/engine_cost.py [trials] [rounds]
"""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from side_by_side import SWEEP, machine, run, spread

AROUND = 10


def train(cfg: Any, trial: Any) -> dict[str, float]:
    return {"val_accuracy": 0.5}


def seconds_a_trial(trials: int) -> dict[int, float]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["trainer=own", "trainer._target_=engine_cost.train", f"seed=range({trials + AROUND})"]
        environment = ["env", f"PYTHONPATH={Path(__file__).parent}"]
        name = "hydra.sweeper.study_name=cost"
        run([*environment, sys.executable, SWEEP, "-m", *arguments, name], Path(folder))
        study = Path(folder) / "multirun" / "cost"
        ended = sorted(file.stat().st_mtime for file in study.glob("*/attempts/1/end.json"))
    return {
        n: (ended[n + AROUND - 1] - ended[max(0, n - AROUND)]) / (n + AROUND - 1 - max(0, n - AROUND))
        for n in (10, 100, 1000)
        if n <= trials
    }


def main() -> None:
    trials, rounds = (int(word) for word in (sys.argv[1:] + ["1000", "3"][len(sys.argv) - 1 :]))
    measured = [seconds_a_trial(trials) for _ in range(rounds)]
    print(f"{trials} trials that return at once, {rounds} rounds; {machine()}")
    for n in measured[0]:
        print(f"  around trial {n:5}  {spread([one[n] for one in measured])} a trial")
    ratios = [max(one.values()) / min(one.values()) for one in measured]
    print(
        f"  the slowest is {statistics.median(ratios):.2f} times the fastest ({min(ratios):.2f} to {max(ratios):.2f})"
    )


if __name__ == "__main__":
    main()
