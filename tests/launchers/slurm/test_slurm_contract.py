"""The contract of all launchers, on a real cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.trial.job import State
from sweeps.trial.run.sent_job import Job
from tests.launchers.launcher_contract import LauncherContract, raises, segfaults


class TestSlurmTrials(LauncherContract):
    LAUNCHER = "slurm"
    SETTINGS: ClassVar[dict[str, Any]] = {"mem_gb": 0.5, "cpus_per_task": 1, "trials_per_job": 1}
    # test_ends.py has the others: SLURM tells of each only after seconds.
    BAD_ENDS: ClassVar[dict[Any, Any]] = {
        raises: (State.FAILED, "RuntimeError: too large"),
        segfaults: (State.FAILED, "Segmentation fault"),
    }


class _SubmitsWorkersAtOnce(SlurmTrials):
    """Workers that are submitted at once, because the suite does not poll while a trial begins."""

    def submit(self, job: Job) -> bool:
        queued = super().submit(job)
        self.workers.observe()
        return queued


class TestSlurmWorkers(LauncherContract):
    LAUNCHER = "slurm"
    SETTINGS: ClassVar[dict[str, Any]] = {"mem_gb": 0.5, "cpus_per_task": 1, "trials_per_job": None}

    @pytest.fixture
    def trials(self, cluster: None, tmp_path: Path) -> Iterator[SlurmTrials]:
        settings = SlurmLauncherConf(poll_s=0.5, max_submissions_per_min=600, trials_per_job=None, array_parallelism=1)
        launcher = _SubmitsWorkersAtOnce(settings, tmp_path)
        launcher.open()
        yield launcher
        launcher.close()
