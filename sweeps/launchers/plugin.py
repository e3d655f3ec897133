"""What hydra/launcher=local and hydra/launcher=slurm have in common as Hydra's plugins."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from sweeps.launchers.contract import TrialLauncher


class TrialsPlugin(Launcher):
    """A Hydra launcher on top of one of our own. Imports nothing heavy: Hydra loads every plugin, also for --help."""

    def __init__(self, **settings: Any) -> None:
        """Hydra passes the settings; they are read from each trial's own config instead."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    @abstractmethod
    def trials(self, study_folder: Path) -> "TrialLauncher":
        """What our own sweeper uses."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """What somebody else's sweeper uses: a batch that waits for all."""
        from sweeps.launchers.batch import launch

        trials = self.trials(Path(self.config.hydra.sweep.dir))
        try:
            return launch(
                trials, self.config, self.hydra_context, self.task_function, job_overrides, initial_job_idx
            )
        finally:
            trials.close()
