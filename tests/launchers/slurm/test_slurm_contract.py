"""The contract of all launchers, on a real cluster."""

from typing import Any, ClassVar

from sweeps.trial.folder import State
from tests.launchers.launcher_contract import LauncherContract, raises, segfaults


class TestSlurmTrials(LauncherContract):
    LAUNCHER = "slurm"
    SETTINGS: ClassVar[dict[str, Any]] = {"mem_gb": 0.5, "cpus_per_task": 1}
    # test_ends.py has the others: SLURM tells of each only after seconds.
    BAD_ENDS: ClassVar[dict[Any, Any]] = {
        raises: (State.FAILED, "RuntimeError: too large"),
        segfaults: (State.FAILED, "Segmentation fault"),
    }
