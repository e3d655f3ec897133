"""Hydra's own suite for launchers, on our launchers, because another sweeper may use our launchers."""

import pytest
from hydra import version
from hydra.test_utils.launcher_common_tests import BatchedSweeperTestSuite, IntegrationTestSuite, LauncherTestSuite

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _defaults_of_hydra_1_1() -> None:
    """Set the version_base of the suite, because an earlier test may have composed with another version_base."""
    version.setbase("1.1")


@pytest.mark.parametrize("launcher_name, overrides", [("local", [])])
class TestLocalLauncher(LauncherTestSuite):
    pass


@pytest.mark.parametrize(
    "launcher_name, overrides", [("local", ["hydra/sweeper=basic", "hydra.sweeper.max_batch_size=2"])]
)
class TestLocalLauncherBatched(BatchedSweeperTestSuite):
    pass


@pytest.mark.parametrize("task_launcher_cfg", [{}])
@pytest.mark.parametrize("extra_flags", [["-m", "hydra/launcher=local", "hydra.job.chdir=true"]], ids=["local"])
class TestLocalLauncherIntegration(IntegrationTestSuite):
    pass
