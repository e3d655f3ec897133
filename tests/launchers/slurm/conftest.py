"""Fixtures: a real SLURM cluster of four nodes, and trials for the cluster."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import CLUSTER, ScriptedSlurm, cluster_sh, job_maker

from sweeps.launchers.slurm import base
from sweeps.launchers.slurm.jobs import SlurmTrials
from sweeps.settings import SlurmLauncherConf
from sweeps.trial.job import Job


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Start the cluster. If no cluster can be installed, skip the tests, or fail in CI."""
    unable = pytest.fail if os.environ.get("CI") else pytest.skip
    if shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            unable("SLURM is not installed; as root on Debian: docker/slurm/cluster.sh install")
        installed = subprocess.run([CLUSTER, "install"], capture_output=True, text=True)
        if installed.returncode:
            unable(f"SLURM cannot be installed here: {installed.stderr[-500:]}")
    os.environ["SLURM_CONF"] = cluster_sh("env").strip().removeprefix("export SLURM_CONF=")
    try:
        cluster_sh("start")
        yield
    finally:
        cluster_sh("stop")
        del os.environ["SLURM_CONF"]


@pytest.fixture(autouse=True)
def a_quick_site() -> Iterator[None]:
    """Set short delays of the accounting, because all nodes share a disk and the accounting has no other users."""
    with pytest.MonkeyPatch.context() as patch:  # a separate patch, because a test may undo the test's own patches
        patch.setattr(base, "_LATE_S", {**base._LATE_S, "COMPLETED": 1.0, "FAILED": 1.0})
        yield


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    with job_maker(tmp_path) as make:
        yield make


@pytest.fixture
def trials(cluster: None) -> Iterator[SlurmTrials]:
    """Yield a launcher that asks SLURM every half second."""
    launcher = SlurmTrials(SlurmLauncherConf(poll_s=0.5))
    launcher.open()
    yield launcher
    launcher.close()


@pytest.fixture
def scripted_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedSlurm:
    """Return SLURM commands whose answers the test chooses, without a cluster."""
    # because a test may set the PATH too, and the test's monkeypatch restores the last value first
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return ScriptedSlurm(tmp_path / "bin")
