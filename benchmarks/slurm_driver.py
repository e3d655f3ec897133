"""What the driver does on the cluster that SLURM_CONF points to, with trials that return at once.

    docker/slurm/cluster.sh run python benchmarks/slurm_driver.py [jobs] [in flight] [trials] [slots]

- jobs: each trial a job; the seconds from the end of one to the submission that takes its place, read from the times of
  the files that both leave.
- trials: on warm workers; trials a second, and the CPU seconds of the driver.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from side_by_side import SWEEP, machine, spread


def train(cfg: Any, trial: Any) -> dict[str, float]:
    return {"val_accuracy": 0.5}


def study(folder: Path, name: str, trials: int, *settings: str) -> tuple[float, float]:
    """Run it; the wall seconds of all, and the CPU seconds of the driver."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, SWEEP, "-m", "hydra/launcher=slurm", "trainer._target_=slurm_driver.train"]
    command += ["hydra.launcher.preload=[]", "hydra.launcher.mem_gb=0.2", "hydra.launcher.cpus_per_task=1"]
    command += [f"hydra.launcher.{setting}" for setting in settings]
    command += [f"seed=range({trials})", f"hydra.sweeper.study_name={name}"]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - started, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def gaps(folder: Path, in_flight: int) -> list[float]:
    """Seconds between the k-th end and the submission that followed it."""
    ends = sorted(file.stat().st_mtime for file in folder.glob("*/attempts/1/exit.json"))
    submissions = sorted(file.stat().st_mtime for file in folder.glob("*/attempts/1/job.json"))
    return [submitted - ended for submitted, ended in zip(submissions[in_flight:], ends, strict=False)]


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    jobs, in_flight, trials, slots = (given + [140, 100, 1000, 16][len(given) :])[:4]
    print(machine())
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # a folder that the nodes see too
        folder = Path(name)
        study(folder, "jobs", jobs, f"array_parallelism={in_flight}")
        waited = gaps(folder / "multirun" / "jobs", in_flight)
        print(
            f"{jobs} jobs, {in_flight} in flight: from an end to the next submission {spread(waited)}",
            flush=True,
        )
        wall, cpu = study(folder, "warm", trials, f"array_parallelism={slots}", "trials_per_job=null")
        print(
            f"{trials} trials on {slots} warm workers: {trials / wall:.1f} a second, driver {cpu:.1f} s of CPU"
        )
        began = [file.stat().st_mtime for file in folder.glob("multirun/warm/*/attempts/1/began")]
        print(f"  once the workers were there: {(trials - 1) / (max(began) - min(began)):.1f} a second")


if __name__ == "__main__":
    main()
