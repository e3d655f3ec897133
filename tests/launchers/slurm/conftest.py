"""A real SLURM cluster of four nodes for these tests, and trials to send to it."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import CLUSTER, cluster_sh, job_maker

from sweeps.launchers.contract import Exit, TrialJob
from sweeps.launchers.slurm.jobs import SlurmTrials
from sweeps.settings import SlurmLauncherConf


@pytest.fixture(scope="session", autouse=True)
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


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., TrialJob]]:
    with job_maker(tmp_path) as make:
        yield make


@pytest.fixture
def trials() -> Iterator[SlurmTrials]:
    """The launcher, asking SLURM every half second."""
    launcher = SlurmTrials(SlurmLauncherConf(poll_s=0.5))
    launcher.open()
    yield launcher
    launcher.close()


@pytest.fixture
def ends(trials: SlurmTrials) -> Callable[..., dict[int, Exit]]:
    """ends(n): the next n exits by number, within `timeout_s`."""

    def wait(count: int, timeout_s: float = 60) -> dict[int, Exit]:
        found: dict[int, Exit] = {}
        deadline = time.monotonic() + timeout_s
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {sorted(found)} ended"
            found |= {over.number: over for over in trials.poll(0.5)}
        return found

    return wait
