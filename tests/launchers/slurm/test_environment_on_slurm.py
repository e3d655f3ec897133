"""Modules, containers, staged data and named clusters on a real cluster."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import wait_for

from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.trial.job import State
from sweeps.trial.run.sent_job import Job
from tests import command_lines as lines
from tests.launchers.slurm.test_driver_on_slurm import SLURM, WARM

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.long]
MODULES = Path("/usr/share/modules/init/bash")
APP = """
import os

import hydra
from sweeps.trial import staged


@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    print("container:", os.environ.get("APPTAINER_CONTAINER"), "data:", staged("data/x"), flush=True)
    assert staged("data/x").read_text() == "numbers"
    return int(os.environ.get("LOADED", 0)) + cfg.x


if __name__ == "__main__":
    main()
"""
APPTAINER = """#!/bin/bash
# A stand-in for Apptainer: refuses what Apptainer refuses, and runs the command outside of a container.
[ "$1 $2 $3" = "exec --pwd $PWD" ] && [ "$4" = --bind ] && [ -f "$6" ] || exit 9
IFS=, read -ra mounts <<<"$5"
for mount in "${mounts[@]}"; do [ -e "${mount%%:*}" ] || exit 9; done
export APPTAINER_CONTAINER=$6
exec "${@:7}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("numbers")
    return tmp_path


def run(folder: Path, *arguments: str, **variables: str) -> lines.Done:
    settings = ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s", *SLURM]
    return lines.run(["app.py", "-m", *settings, *arguments], folder, variables)


@pytest.mark.parametrize("way", [[], [WARM]], ids=["jobs", "workers"])
def test_trials_in_a_container_read_staged_data(folder: Path, way: list[str]) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "apptainer").write_text(APPTAINER)
    (folder / "bin" / "apptainer").chmod(0o755)
    (folder / "an image.sif").touch()
    (folder / "disk").mkdir()
    contained = ["hydra.launcher.container=an image.sif", f"hydra.launcher.python={sys.executable}"]
    variables = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(folder / "disk")}
    done = run(folder, *contained, "hydra.launcher.stage=[data]", "+x=1,2", *way, **variables)
    assert done.code == 0, done.said
    for trial in ("0", "1"):
        (log,) = (folder / "multirun" / "s" / trial / "attempts" / "1").glob("log")
        assert f"container: {folder / 'an image.sif'} data: {folder / 'disk'}/sweepyard-" in log.read_text()
    wait_for(lambda: not [*(folder / "disk").glob("sweepyard-*")])  # because a dismissed worker ends after the driver


@pytest.mark.skipif(not MODULES.exists(), reason="environment-modules is not installed")
def test_trials_have_their_modules(folder: Path, make_job: Callable[..., Job], trials: SlurmTrials) -> None:
    (folder / "modules" / "good").mkdir(parents=True)
    (folder / "modules" / "good" / "1").write_text("#%Module\nsetenv LOADED 1\n")
    done = run(folder, "hydra.launcher.modules=[good]", "+x=1", MODULEPATH=str(folder / "modules"))
    assert done.code == 0, done.said
    assert "2" in (folder / "multirun" / "s" / "0" / "attempts" / "1" / "end.json").read_text()
    missing = run(folder, "hydra.launcher.modules=[good,nosuch/1]", "+x=1", MODULEPATH=str(folder / "modules"))
    assert missing.code == 2
    assert len(missing.err.splitlines()) == 2
    assert "Unable to locate a modulefile for 'nosuch/1'\n" in missing.err
    job = make_job(0, print, modules=["nosuch/1"])  # as if only the login node had it
    assert trials.submit(job)
    ((_, end),) = trials.poll(60)
    assert end.state is State.REFUSED
    assert end.error.startswith(
        "it ended before its processes started; module load nosuch/1 failed (status 1) (SLURM job"
    )
    assert "Unable to locate a modulefile for 'nosuch/1'" in end.error


def test_python_without_sweepyard_is_refused(folder: Path) -> None:
    other = shutil.which("python3", path="/usr/bin")
    done = run(folder, f"hydra.launcher.python={other}", "+x=1", PYTHONPATH="")
    assert done.code == 3, done.said
    assert "trial 0 refused: it ended before the trial began" in done.out
    assert "No module named" in done.out or "the driver has Python" in done.out


def test_jobs_on_a_named_cluster_are_found_by_every_command(folder: Path) -> None:
    named = ["hydra.launcher.clusters=lab", "+x=1,2", "hydra.launcher.detach=true"]
    assert run(folder, *named, "+hydra.launcher.additional_parameters.begin=now+1hour").code == 0
    assert "SLURM jobs: 2 " in lines.sweeps(folder, "status", "s").out
    elsewhere = run(folder, "+x=1,2")
    assert elsewhere.code == 2
    assert "Type hydra.launcher.clusters=lab" in elsewhere.err
    assert "cancelled 2 queued jobs" in lines.sweeps(folder, "stop", "s").out
