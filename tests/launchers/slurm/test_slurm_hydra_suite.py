"""Hydra's own conformance suite for launchers, on the real cluster."""

import pytest
from hydra import version
from hydra.test_utils.launcher_common_tests import BatchedSweeperTestSuite, IntegrationTestSuite, LauncherTestSuite

pytestmark = pytest.mark.usefixtures("cluster")
SETTINGS = ["hydra.launcher.poll_s=0.5", "hydra.launcher.mem_gb=0.5"]


@pytest.fixture(autouse=True)
def defaults_of_hydra_1_1() -> None:
    """What the suite expects; a test that ran before may have composed with another version_base."""
    version.setbase("1.1")


@pytest.mark.parametrize("launcher_name, overrides", [("slurm", SETTINGS)])
class TestSlurmLauncher(LauncherTestSuite):
    pass


@pytest.mark.parametrize(
    "launcher_name, overrides", [("slurm", ["hydra/sweeper=basic", "hydra.sweeper.max_batch_size=2", *SETTINGS])]
)
class TestSlurmLauncherBatched(BatchedSweeperTestSuite):
    pass


@pytest.mark.parametrize("task_launcher_cfg", [{}])
@pytest.mark.parametrize("extra_flags", [["-m", "hydra/launcher=slurm", "hydra.job.chdir=true", *SETTINGS]])
class TestSlurmLauncherIntegration(IntegrationTestSuite):
    pass
