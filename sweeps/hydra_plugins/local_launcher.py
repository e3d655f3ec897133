"""hydra/launcher=local."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.settings import LocalLauncherConf

ConfigStore.instance().store(
    group="hydra/launcher", name="sweepyard_local", node=LocalLauncherConf, provider="sweepyard"
)


class LocalLauncher(Launcher):
    """Trials as forks of a warm process on this machine."""

    def __init__(self, **settings: Any) -> None:
        """Hydra passes the settings; they are read from each trial's own config instead."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def trials(self, study_folder: Path) -> Any:
        """What our own sweeper uses: a `sweeps.launchers.contract.TrialLauncher`."""
        from sweeps.launchers.local import LocalTrials  # Hydra imports every plugin, also for --help

        return LocalTrials(self.config.hydra.launcher.preload, study_folder / "fork_server.log")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from sweeps.launchers.batch import launch

        trials = self.trials(Path(self.config.hydra.sweep.dir))
        try:
            return launch(
                trials, self.config, self.hydra_context, self.task_function, job_overrides, initial_job_idx
            )
        finally:
            trials.close()
