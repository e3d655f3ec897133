"""A real SLURM cluster of four nodes for these tests, and trials to send to it."""

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
    """The cluster, started. Where none can be installed the tests are skipped, but not in CI."""
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
    """All nodes share this machine's disk, and nobody else asks its accounting."""
    with pytest.MonkeyPatch.context() as patch:  # of its own: a test may undo what it has patched itself
        patch.setattr(base, "_LATE_S", {**base._LATE_S, "COMPLETED": 1.0, "FAILED": 1.0})
        yield


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    with job_maker(tmp_path) as make:
        yield make


@pytest.fixture
def trials(cluster: None) -> Iterator[SlurmTrials]:
    """The launcher, asking SLURM every half second."""
    launcher = SlurmTrials(SlurmLauncherConf(poll_s=0.5))
    launcher.open()
    yield launcher
    launcher.close()


@pytest.fixture
def scripted_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedSlurm:
    """No cluster: commands that answer what the test says."""
    # By the monkeypatch of the test, which may set the PATH too: what is set last is taken back first.
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return ScriptedSlurm(tmp_path / "bin")
