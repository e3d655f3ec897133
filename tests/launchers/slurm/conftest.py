"""Fixtures: trials for the SLURM cluster."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import ScriptedSlurm, job_maker

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.follow import following
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.trial.run.sent_job import Job


@pytest.fixture(autouse=True)
def a_quick_site() -> Iterator[None]:
    """Set short delays of the accounting, because all nodes share a disk and the accounting has no other users."""
    with pytest.MonkeyPatch.context() as patch:  # a separate patch, because a test may undo the test's own patches
        patch.setattr(following, "_LATE_S", {**following._LATE_S, "COMPLETED": 1.0, "FAILED": 1.0})
        yield


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    with job_maker(tmp_path) as make:
        yield make


@pytest.fixture
def trials(cluster: None, tmp_path: Path) -> Iterator[SlurmTrials]:
    """Yield a launcher that asks SLURM every half second."""
    launcher = SlurmTrials(
        SlurmLauncherConf(poll_s=0.5, max_submissions_per_min=600, trials_per_job=1), tmp_path / "study"
    )
    launcher.open()
    yield launcher
    launcher.close()


@pytest.fixture
def scripted_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedSlurm:
    """Return SLURM commands whose answers the test chooses, without a cluster."""
    # because a test may set the PATH too, and the test's monkeypatch restores the last value first
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr("sweeps.base.looks.LOOKS_PER_S", 1e9)
    return ScriptedSlurm(tmp_path / "bin")
