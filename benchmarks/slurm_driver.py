"""What the driver does on the cluster that SLURM_CONF points to.

    docker/slurm/cluster.sh run python benchmarks/slurm_driver.py [jobs] [in flight] [trials] [slots]

- jobs: each trial a job of 5 s; the seconds from the end of one to the submission that takes its place, read from the
  times of the files that both leave.
- trials: that return at once, on warm workers; trials a second, and the CPU seconds of the driver.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from side_by_side import SWEEP, machine, spread


def train(cfg: Any, trial: Any) -> dict[str, float]:
    time.sleep(cfg.trainer.sleep_s)
    return {"val_accuracy": 0.5}


def study(folder: Path, name: str, trials: int, sleep_s: float, *settings: str) -> tuple[float, float]:
    """Run it; the wall seconds of all, and the CPU seconds of the driver."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [
        sys.executable,
        SWEEP,
        "-m",
        "hydra/launcher=slurm",
        "trainer=own",
        "trainer._target_=slurm_driver.train",
        f"+trainer.sleep_s={sleep_s}",
    ]
    command += ["hydra.launcher.mem_gb=0.2", "hydra.launcher.cpus_per_task=1"]
    command += ["hydra.launcher.max_submissions_per_min=600"]
    command += [f"hydra.launcher.{setting}" for setting in settings]
    command += [f"seed=range({trials})", f"hydra.sweeper.study_name={name}"]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - started, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def gaps(folder: Path, in_flight: int) -> list[float]:
    """Seconds from each end that made room, while as many were in flight as may be, to the submission that took it."""
    ends = [(file.stat().st_mtime, False) for file in folder.glob("*/attempts/1/end.json")]
    submissions = [(file.stat().st_mtime, True) for file in folder.glob("*/attempts/1/job.json")]
    found, free, count = [], deque[float](), 0
    for at, submitted in sorted(ends + submissions):
        count += 1 if submitted else -1
        if submitted and free:
            found.append(at - free.popleft())
        elif not submitted and count + 1 + len(free) == in_flight:
            free.append(at)
    return found


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    jobs, in_flight, trials, slots = (given + [180, 100, 1000, 16][len(given) :])[:4]
    print(machine())
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # a folder that the nodes see too
        folder = Path(name)
        study(folder, "jobs", jobs, 5, f"array_parallelism={in_flight}")
        waited = gaps(folder / "multirun" / "jobs", in_flight)
        print(f"{jobs} jobs, {in_flight} in flight: from one's end to the next one's submission", flush=True)
        print(f"  {spread(waited)}, {len(waited)} times", flush=True)
        wall, cpu = study(folder, "warm", trials, 0, f"array_parallelism={slots}", "trials_per_job=null")
        print(f"{trials} trials on {slots} warm workers: {trials / wall:.1f} a second, driver {cpu:.1f} s of CPU")
        began = [file.stat().st_mtime for file in folder.glob("multirun/warm/*/attempts/1/started")]
        print(f"  once the workers were there: {(trials - 1) / (max(began) - min(began)):.1f} a second")


if __name__ == "__main__":
    main()
