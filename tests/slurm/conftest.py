"""A real SLURM cluster of four nodes for these tests, and trials to send to it."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext
from omegaconf import open_dict

from sweeps.launchers.contract import Exit, TrialJob, pack_app
from sweeps.launchers.slurm import SlurmTrials
from sweeps.settings import SlurmLauncherConf
from sweeps.trial_folder import TrialFolder

CLUSTER = Path(__file__).parents[2] / "docker/slurm/cluster.sh"


def cluster_sh(*arguments: str) -> str:
    """What the cluster's script prints; raises CalledProcessError if it fails."""
    done = subprocess.run([CLUSTER, *arguments], check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return done.stdout


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


@contextmanager
def job_maker(tmp_path: Path) -> Iterator[Callable[..., TrialJob]]:
    """(number, task_function, **launcher settings) -> a trial as the driver makes them."""
    (tmp_path / "config.yaml").write_text("x: 1\n")
    with initialize_config_dir(str(tmp_path), job_name="app", version_base="1.3"):
        study = f"study-{tmp_path.name}"

        def make(number: int, task: Callable[[Any], Any], **settings: Any) -> TrialJob:
            sweep = [
                f"hydra.sweep.dir={tmp_path / study}",
                f"hydra.sweep.subdir={number}",
                "hydra/launcher=slurm",
            ]
            config = compose("config", [*sweep, "hydra.mode=MULTIRUN"], return_hydra_config=True)
            with open_dict(config):
                config.hydra.job.id, config.hydra.job.num = f"app_{number}", number
                config.hydra.launcher.update({"mem_gb": 0.5, "cpus_per_task": 1, **settings})
            context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())
            folder = TrialFolder(tmp_path / study / str(number))
            return TrialJob(
                number, study, config, pack_app(task, context), folder, folder.new_attempt(), ("objective",)
            )

        yield make


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
