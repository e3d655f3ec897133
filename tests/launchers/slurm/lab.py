"""The cluster's script, a SLURM that tests write themselves, and trials for both.

This code is not in conftest.py, because jobs import the module by name.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext
from omegaconf import open_dict

from sweeps.hydra.settings import SlurmLauncherConf, read
from sweeps.launchers.slurm.script.request import request
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Objective
from sweeps.trial.run.app import pack_app
from sweeps.trial.run.sent_job import Job

_TAKE = r"""
name=$(sed -n "s/^#SBATCH --job-name=//p" "$1"); last=$(sed -n "s/^#SBATCH --array=0-\([0-9]*\).*/\1/p" "$1")
touch "$F/taken"; id=$(($(wc -l < "$F/taken") + 1))
if [ "$last" ]; then seq -f "${id}_%g $name" 0 "$last"; else echo "$id $name"; fi >> "$F/taken"
"""
CLUSTER = Path(__file__).parents[3] / "docker/slurm/cluster.sh"


def cluster_sh(*arguments: str) -> str:
    """Return the output of the cluster's script; raise CalledProcessError if the script fails."""
    done = subprocess.run([CLUSTER, *arguments], check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return done.stdout


def slurm(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout


@contextmanager
def job_maker(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Yield a function (number, task_function, **launcher settings) that prepares an attempt as the driver does."""
    (tmp_path / "config.yaml").write_text("x: 1\n")
    with initialize_config_dir(str(tmp_path), job_name="app", version_base="1.3"):
        study = f"study-{tmp_path.name}"
        sweep = [f"hydra.sweep.dir={tmp_path / study}", "hydra/launcher=slurm", "hydra.mode=MULTIRUN"]
        composed = compose("config", sweep, return_hydra_config=True)
        context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())

        def make(number: int, task: Callable[[Any], Any], **settings: Any) -> Job:
            config = deepcopy(composed)
            with open_dict(config):
                config.hydra.job.id, config.hydra.job.num = f"app_{number}", number
                config.hydra.sweep.subdir = str(number)
                config.hydra.launcher.update({"mem_gb": 0.5, "cpus_per_task": 1, "trials_per_job": 1, **settings})
            folder = TrialFolder(tmp_path / study / str(number))
            resources = request(read(config.hydra.launcher, SlurmLauncherConf))
            attempt, app = folder.new_attempt().number, pack_app(task, context)
            return Job(study, number, attempt, config, resources, folder, app, Objective())

        yield make


def wait_for(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


class ScriptedSlurm:
    """The commands sbatch, squeue, sacct and scancel as scripts that take milliseconds and that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.say("squeue", 'cat "$F/jobs" 2>/dev/null || true')
        self.say("sacct", "echo 'sacct: error: Slurm accounting storage is disabled' >&2; exit 1")
        self.say("scancel", 'echo "$@" >> "$F/scancelled"')
        self.say("srun", "")
        self.accept()

    def say(self, command: str, script: str) -> None:
        aside = self.folder / f".{command}"  # because the old script may be starting
        aside.write_text(f'#!/bin/sh\nF="{self.folder}"\n{script}\n')
        aside.chmod(0o755)
        aside.replace(self.folder / command)

    def accept(self) -> None:
        """Make sbatch take every job, with the ids 1, 2, ..."""
        self.say("sbatch", f'{_TAKE}cp "$1" "$F/script"; env > "$F/environment"; echo "Submitted batch job $id"')

    def refuse(self, words: str) -> None:
        self.say("sbatch", f'echo >> "$F/refused"; echo "sbatch: error: {words}" >&2; exit 1')

    def never_answer(self, but_take: bool) -> None:
        """Make sbatch time out, as under a slow controller, after taking the job or not."""
        take = _TAKE if but_take else ""
        self.say("sbatch", f'{take}echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1')

    def lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    @property
    def ids(self) -> list[str]:
        """Return the ids of the taken jobs, and of elements of arrays; the first job has the id 1."""
        return [line.split()[0] for line in self.lines("taken")]

    @property
    def names(self) -> list[str]:
        """Return the names of the taken jobs, and of elements of arrays."""
        jobs = [line.split() for line in self.lines("taken")]
        return [f"{name}_{job_id.partition('_')[2]}" if "_" in job_id else name for job_id, name in jobs]

    def list(self, *states: str) -> None:
        """Set squeue's states of jobs 1, 2, ... ("RUNNING", "PENDING Priority"); empty for a forgotten job."""
        rows = []
        for taken, state in zip(self.lines("taken"), states, strict=False):
            job_id, name = taken.split()
            word, _, reason = state.partition(" ")
            rows += [f"{job_id}|{word}|{reason or 'None'}|{name}"] if state else []
        (self.folder / "jobs").write_text("\n".join(rows) + "\n")


@contextmanager
def scripted(folder: Path) -> Iterator[ScriptedSlurm]:
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    try:
        yield ScriptedSlurm(folder)
    finally:
        os.environ["PATH"] = os.environ["PATH"].removeprefix(f"{folder}:")
