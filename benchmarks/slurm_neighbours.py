"""What a grid of short trials costs the SLURM cluster that SLURM_CONF points to: ours, and others, one after the other.

    python -m venv peers && peers/bin/pip install 'hydra-core==1.3.*' hydra-submitit-launcher==1.2.0
    docker/slurm/cluster.sh run python benchmarks/slurm_neighbours.py peers/bin/python \
        [--trials 200] [--seconds 5] [--rounds 2]

A trial sleeps. All ways request one core and 1 GB, for at most 256 jobs at a time. Scripts on the PATH, in front of
SLURM's commands, count the calls. The starts and lengths of the jobs are those of the accounting.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from side_by_side import machine, run

APP = """
import time

import hydra

@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    time.sleep(cfg.seconds)
    return 0.0

if __name__ == "__main__":
    main()
"""
MAP = """
import sys
import time

import submitit

executor = submitit.AutoExecutor(folder="log")
executor.update_parameters(timeout_min=60, cpus_per_task=1, mem_gb=1, slurm_array_parallelism=256)
for job in executor.map_array(time.sleep, [float(sys.argv[2])] * int(sys.argv[1])):
    job.result()
"""
ASKING = ("squeue", "sacct", "scontrol", "scancel")
COLUMNS = ["s", "sbatch", "in 1 s", *ASKING, "asked in 1 min", "jobs", "starts in 1 min", "under 2 min"]


def commands(trials: int, seconds: float, peers: str) -> dict[str, list[str]]:
    """Return the command line of each way."""
    grid = ["-m", f"+x=range({trials})", f"+seconds={seconds:g}", "hydra.launcher.mem_gb=1"]
    ours = [
        sys.executable,
        "app.py",
        *grid,
        "hydra/sweeper=grid",
        "hydra/launcher=slurm",
        "hydra.sweeper.tracking=false",
    ]
    theirs = [peers, "app.py", *grid, "hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1"]
    return {
        "ours, default settings": ours,
        "ours, a job for each trial": [*ours, "hydra.launcher.trials_per_job=1", "hydra.launcher.array=never"],
        "submitit, map_array": [peers, "map.py", str(trials), f"{seconds:g}"],
        "hydra-submitit-launcher": theirs,
    }


def count_calls(folder: Path) -> dict[str, str]:
    """Write scripts that count the calls of SLURM's commands, and return the environment that has them."""
    folder.mkdir()
    for name in ("sbatch", *ASKING):
        script = f'#!/bin/sh\necho "$(date +%s.%N) {name}" >> "{folder}/calls"\nexec {shutil.which(name)} "$@"\n'
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def answer(*command: str) -> list[list[str]]:
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return [line.split("|") for line in output.splitlines()]


def most_in(times: Sequence[float], window_s: float) -> int:
    return max((sum(start <= at < start + window_s for at in times) for start in times), default=0)


def measure(command: list[str], folder: Path) -> list[float]:
    """Run a way in `folder`, and return a number for each of COLUMNS."""
    environment = count_calls(folder / "bin")
    (folder / "app.py").write_text(APP)
    (folder / "map.py").write_text(MAP)
    began = time.time()
    run(command, folder, environment)
    taken_s = time.time() - began
    while answer("squeue", "--noheader", "--me"):
        time.sleep(1)
    time.sleep(3)  # because the accounting is late
    lines = [line.split() for line in (folder / "bin" / "calls").read_text().splitlines()]
    calls = {name: [float(at) for at, called in lines if called == name] for name in ("sbatch", *ASKING)}
    asked = [at for name in ASKING for at in calls[name]]
    since = datetime.fromtimestamp(began).isoformat(timespec="seconds")
    rows = answer("sacct", "-X", "--noheader", "--parsable2", f"--starttime={since}", "--format=Start,ElapsedRaw")
    starts = [datetime.fromisoformat(start).timestamp() for start, _ in rows if start[:1].isdecimal()]
    short = sum(int(elapsed_s) < 120 for start, elapsed_s in rows if start[:1].isdecimal())
    asking = [len(calls[name]) for name in ASKING]
    jobs = [len(starts), most_in(starts, 60), short]
    return [taken_s, len(calls["sbatch"]), most_in(calls["sbatch"], 1), *asking, most_in(asked, 60), *jobs]


def shown(values: Sequence[float]) -> str:
    """Return the median and, if the rounds differ, the range."""
    low, middle, high = (f"{value:.0f}" for value in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peers")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    ways = commands(given.trials, given.seconds, str(Path(given.peers).absolute()))
    results: dict[str, list[list[float]]] = {name: [] for name in ways}
    slots = sum(int(row[0]) for row in answer("sinfo", "--noheader", "--Node", "--partition=main", "--format=%c"))
    print(
        f"{given.trials} trials of {given.seconds:g} s, {given.rounds} rounds, {slots} slots; {machine()}", flush=True
    )
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # a folder that the nodes see too
        for number in range(given.rounds):
            for way, command in ways.items():
                folder = Path(name) / f"{number}-{len(results[way])}-{way.replace(' ', '_').replace(',', '')}"
                folder.mkdir()
                results[way].append(measure(command, folder))
                print(f"round {number + 1}, {way}:", *map(round, results[way][-1]), file=sys.stderr, flush=True)
    print(" | ".join(["", *COLUMNS]))
    for way, rounds in results.items():
        print(" | ".join([way, *(shown(values) for values in zip(*rounds, strict=True))]))


if __name__ == "__main__":
    main()
