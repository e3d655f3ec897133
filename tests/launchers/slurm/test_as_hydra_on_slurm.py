"""Jobs of Hydra apps get as SLURM jobs, too, what Hydra's own launcher gives them."""

import subprocess
from pathlib import Path

import pytest

from tests.command_lines import SLURM
from tests.hydra.case_files import Case, read_cases
from tests.hydra.differences import compare
from tests.hydra.observing import HYDRA, observe
from tests.launchers.slurm.lab import wait_for

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("cluster")]

_JOBS = ["template", "dataclasses", "callbacks_of_the_script", "env_set", "main_module", "hydra_of_a_choice"]
_WORKERS = ["subdir_by_overrides", "pools", "end_of_the_process"]
_OF_SLURM = {"variables"}
"""Parts of a job's facts that SLURM itself changes."""


def _await_jobs() -> None:
    """Wait for the ends of the jobs, because a study ends with its results, before the last exit handlers have run."""
    listed = ["squeue", "-h", "-t", "RUNNING,COMPLETING"]
    wait_for(lambda: not subprocess.run(listed, capture_output=True, check=True).stdout, timeout_s=90)


def _params() -> list[object]:
    cases = {case.name: case for case in read_cases()}
    ways = [(name, 1) for name in _JOBS] + [(name, 2) for name in _WORKERS]
    return [pytest.param(cases[name], trials_per_job, id=name) for name, trials_per_job in ways]


@pytest.mark.parametrize(("case", "trials_per_job"), _params())
def test_jobs_get_what_hydra_gives_them(case: Case, trials_per_job: int, tmp_path: Path) -> None:
    words = ["hydra/sweeper=grid", *SLURM, "hydra.launcher.timeout_min=5", "hydra.launcher.mem_gb=0.5"]
    words += [f"hydra.launcher.trials_per_job={trials_per_job}", "hydra.sweeper.tracking=false"]
    hydra = observe(case, tmp_path / "hydra" / "app", HYDRA)
    ours = observe(case, tmp_path / "ours" / "app", words, _await_jobs)
    lines = [line for line in compare(case, hydra, ours) if line.partition(":")[0].split(".")[1] not in _OF_SLURM]
    if lines:
        pytest.fail("\n".join([*lines, "", ours.done.said]), pytrace=False)
