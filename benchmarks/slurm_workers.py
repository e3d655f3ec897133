"""Warm workers against a job a trial, on the cluster that SLURM_CONF points to, side by side in one run.

    docker/slurm/cluster.sh run python benchmarks/slurm_workers.py [trials] [slots] [rounds]

Prints the seconds of each study of one-epoch trials of the digits mlp, from the command line to its end.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from side_by_side import SWEEP, machine, run, seconds, spread


def study(name: str, trials: int, settings: dict[str, object], folder: Path) -> None:
    command = [sys.executable, SWEEP, "-m", "hydra/launcher=slurm", f"seed=range({trials})", "epochs=1"]
    command += ["hydra.launcher.max_submissions_per_min=600"]
    each = {"cpus_per_task": 1, "mem_gb": 1.9, **settings}
    launcher = [f"hydra.launcher.{key}={value}" for key, value in each.items()]
    run([*command, *launcher, "tracking=none", f"hydra.sweeper.study_name={name}"], folder)


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    trials, slots, rounds = (given + [24, 2, 2][len(given) :])[:3]
    warm = {"trials_per_job": "null"}
    ways: dict[str, dict[str, object]] = {
        "a job a trial": {"array_parallelism": slots},
        "warm workers, one a slot": {**warm, "array_parallelism": slots},
        "one warm worker for all": {**warm, "array_parallelism": 1, "trials_at_once": slots},
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # a folder that the nodes see too
        for i in range(rounds):
            for n, (name, settings) in enumerate(ways.items()):
                taken[name].append(
                    seconds(lambda: study(f"{i}-{n}", trials, settings, Path(folder)))  # noqa: B023
                )
    print(f"{trials} trials of one epoch on {slots} slots, {rounds} rounds; {machine()}")
    for name, values in taken.items():
        ratios = [other / own for other, own in zip(taken["a job a trial"], values, strict=True)]
        print(f"  {name:26} {spread(values):26} {statistics.median(ratios):.1f} times faster")


if __name__ == "__main__":
    main()
