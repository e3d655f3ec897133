"""Three tests of Hydra's own suite for launchers, one of each kind, on the real cluster.

Hydra's side of a launcher does not depend on SLURM: ../test_hydra_launcher_suite.py runs the whole suite.
"""

import pytest
from hydra.test_utils.launcher_common_tests import BatchedSweeperTestSuite, IntegrationTestSuite, LauncherTestSuite

from tests.launchers.test_hydra_launcher_suite import _defaults_of_hydra_1_1  # noqa: F401 - a fixture

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("cluster", "hydra_restore_singletons")]
SETTINGS = ["hydra.launcher.poll_s=0.5", "hydra.launcher.max_submissions_per_min=600", "hydra.launcher.mem_gb=0.5"]


@pytest.mark.parametrize("launcher_name, overrides", [("slurm", SETTINGS)])
class TestSlurmLauncher:
    test_sweep_with_custom_resolver = LauncherTestSuite.test_sweep_with_custom_resolver


@pytest.mark.parametrize(
    "launcher_name, overrides", [("slurm", ["hydra/sweeper=basic", "hydra.sweeper.max_batch_size=2", *SETTINGS])]
)
class TestSlurmLauncherBatched:
    test_sweep_2_jobs_2_batches = BatchedSweeperTestSuite.test_sweep_2_jobs_2_batches


@pytest.mark.parametrize("task_launcher_cfg", [{}])
@pytest.mark.parametrize("extra_flags", [["-m", "hydra/launcher=slurm", "hydra.job.chdir=true", *SETTINGS]])
class TestSlurmLauncherIntegration:
    get_test_app_working_dir = IntegrationTestSuite.get_test_app_working_dir
    get_test_scratch_dir = IntegrationTestSuite.get_test_scratch_dir
    generate_custom_cmd = IntegrationTestSuite.generate_custom_cmd
    test_to_absolute_path_multirun = IntegrationTestSuite.test_to_absolute_path_multirun
