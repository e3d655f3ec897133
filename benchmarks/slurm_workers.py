"""Warm workers against a job a trial, on the cluster that SLURM_CONF points to, side by side in one run.

    docker/slurm/cluster.sh run python benchmarks/slurm_workers.py [trials] [slots]

Prints the seconds of each study of one-epoch trials of the digits mlp, from the command line to its end, and the
CPU seconds of the driver.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
WAYS = {"a job a trial": "1", "warm workers": "null"}


def run(name: str, trials: int, slots: int, per_job: str, folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of the driver of one study."""
    seeds = ",".join(map(str, range(trials)))
    settings = [f"array_parallelism={slots}", f"trials_per_job={per_job}", "cpus_per_task=1", "mem_gb=1.9"]
    command = [sys.executable, ROOT / "sweep.py", "-m", "hydra/launcher=slurm", f"seed={seeds}", "epochs=1"]
    command += [f"hydra.launcher.{setting}" for setting in settings]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [*command, f"hydra.sweeper.study_name={name}", "tracking=none"],
        check=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - started, cpu


def main() -> None:
    trials, slots = int((sys.argv[1:] or ["24"])[0]), int((sys.argv[2:] or ["2"])[0])
    print(f"{trials} trials, {slots} slots, {os.cpu_count()} cores")
    wall = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # a folder that the nodes see too
        for way, per_job in WAYS.items():
            wall[way], cpu = run(way.replace(" ", "-"), trials, slots, per_job, Path(folder))
            print(f"{way:14} {wall[way]:7.1f} s   driver {cpu:5.1f} s of CPU", flush=True)
    print(f"ratio {wall['a job a trial'] / wall['warm workers']:.1f}")


if __name__ == "__main__":
    main()
