"""hydra/launcher=slurm."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.settings import SlurmLauncherConf

ConfigStore.instance().store(
    group="hydra/launcher", name="sweepyard_slurm", node=SlurmLauncherConf, provider="sweepyard"
)


class SlurmLauncher(Launcher):
    """Each trial as a SLURM job."""

    def __init__(self, **settings: Any) -> None:
        """Hydra passes the settings; they are read from each trial's own config instead."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def trials(self, study_folder: Path) -> Any:
        """What our own sweeper uses: a `sweeps.launchers.contract.TrialLauncher`."""
        from sweeps.launchers.slurm import (
            SlurmTrials,
            read_settings,
        )  # Hydra imports every plugin, also for --help

        return SlurmTrials(read_settings(self.config))

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from sweeps.launchers.batch import launch

        trials = self.trials(Path(self.config.hydra.sweep.dir))
        try:
            return launch(
                trials, self.config, self.hydra_context, self.task_function, job_overrides, initial_job_idx
            )
        finally:
            trials.close()
