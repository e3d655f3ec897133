"""Random kills, preemptions, dead nodes, damage and switches of the launcher around a study on the cluster."""

import os
import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from sweeps.launchers.slurm.queue import living_jobs
from tests import command_lines as lines
from tests.chaos.faults import TRIALS, Study, chance_of
from tests.chaos.oracle import check
from tests.command_lines import GRID, processes, wait_until
from tests.launchers.slurm.lab import cluster_sh

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.long]
ROUNDS, EPOCHS = int(os.environ.get("CHAOS_ROUNDS", "6")), 40
SLURM = ["hydra/sweeper=grid", *lines.SLURM, "hydra.launcher.mem_gb=0.5"]
SLURM += ["hydra.launcher.partition=scavenge"]
LAUNCHERS = {
    "jobs": SLURM,
    "workers": [*SLURM, "hydra.launcher.trials_per_job=null", "hydra.launcher.worker_idle_s=2"],
    "pairs": [*SLURM, "hydra.launcher.trials_per_job=null", "hydra.launcher.trials_at_once=2"],
    "ranks": [*SLURM, "hydra.launcher.nodes=2"],
    "local": GRID,
}


def kill_a_process(study: Study, chance: random.Random, driver: int) -> None:
    """Kill a trial, a rank, a worker or a script of a job."""
    study.kill_one(chance, [process for process in processes(study.folder) if process.pid != driver])


def preempt(chance: random.Random) -> None:
    """Submit a job that preempts all jobs of a node."""
    node = f"--nodelist=lab{chance.randint(1, 4)}"
    words = ["sbatch", "--partition=urgent", "--mem=7800", node, "--output=/dev/null", "--wrap=sleep 1"]
    subprocess.run(words, check=True, capture_output=True)


def restart(name: str, seconds: float) -> None:
    """Kill a daemon of the cluster, and start it again."""
    cluster_sh("kill", name)
    time.sleep(seconds)
    cluster_sh("revive", name)


def disturb(study: Study, chance: random.Random, driver: int) -> None:
    """Cause a random fault, and print its name."""
    fault = chance.choice(["process", "driver", "preemption", "node", "controller", "cancellation"])
    print("fault:", fault)
    jobs = [job.id for job in living_jobs(study.path, study.path.glob("[0-9]*"))]
    if fault == "process":
        kill_a_process(study, chance, driver)
    elif fault == "driver":
        study.kill_one(chance, [psutil.Process(driver)])
    elif fault == "preemption":
        preempt(chance)
    elif fault == "node":
        restart(f"lab{chance.randint(1, 4)}", chance.choice([1, 10]))
    elif fault == "controller":
        restart("slurmctld", 1)
    elif jobs:
        subprocess.run(["scancel", chance.choice(jobs)], check=True)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_study_survives_random_faults_of_a_cluster(tmp_path: Path, store: str, number: int) -> None:
    chance = chance_of(number)
    study = Study(tmp_path / "work", store, EPOCHS)
    for _ in range(chance.randint(1, 2)):
        name = chance.choice(list(LAUNCHERS))
        print("launcher:", name)
        driver = study.start(LAUNCHERS[name])
        for _ in range(chance.randint(1, 2)):
            time.sleep(chance.uniform(2, 10))
            if driver.poll() is None:
                disturb(study, chance, driver.pid)
        driver.kill()
        print(driver.communicate()[0])
        if chance.random() < 0.5:
            study.damage_one(chance)
    resume(study, LAUNCHERS[chance.choice(list(LAUNCHERS))])
    wait_until(lambda: not living_jobs(study.path, study.path.glob("[0-9]*")), 90)
    check(study.path, store, TRIALS, EPOCHS)


def resume(study: Study, launcher: list[str]) -> None:
    """Resume until the study is finished. If jobs of another launcher run, stop them first."""
    for _ in range(6):  # because lost params and cancelled jobs need another start
        done = study.finish(study.start(launcher))
        if done.code == 0:
            return
        if "still runs in SLURM job" in done.err:
            print(lines.sweeps(study.folder, "stop", "s").said)
            wait_until(lambda: not living_jobs(study.path, study.path.glob("[0-9]*")))
