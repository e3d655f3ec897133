"""Hydra's own conformance suite for launchers, on ours: somebody else's sweeper may use them."""

import pytest
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)


@pytest.mark.parametrize("launcher_name, overrides", [("local", [])])
class TestLocalLauncher(LauncherTestSuite):
    pass


@pytest.mark.parametrize(
    "launcher_name, overrides",
    [("local", ["hydra/sweeper=basic", "hydra.sweeper.max_batch_size=2"])],
)
class TestLocalLauncherBatched(BatchedSweeperTestSuite):
    pass


@pytest.mark.parametrize("task_launcher_cfg", [{}])
@pytest.mark.parametrize(
    "extra_flags", [["-m", "hydra/launcher=local", "hydra.job.chdir=true"]], ids=["local"]
)
class TestLocalLauncherIntegration(IntegrationTestSuite):
    pass
