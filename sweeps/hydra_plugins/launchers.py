"""hydra/launcher=local and hydra/launcher=slurm. Imports nothing heavy: Hydra loads every plugin, also for --help."""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.launchers.contract import TrialLauncher
from sweeps.settings import LocalLauncherConf, SlurmLauncherConf, read

for _name, _node in (("sweepyard_local", LocalLauncherConf), ("sweepyard_slurm", SlurmLauncherConf)):
    ConfigStore.instance().store(group="hydra/launcher", name=_name, node=_node, provider="sweepyard")


class _OnTrials(Launcher):
    """A Hydra launcher on top of one of our own."""

    def __init__(self, **settings: Any) -> None:
        """Hydra passes the settings; they are read from each trial's own config instead."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    @abstractmethod
    def trials(self, study_folder: Path) -> TrialLauncher:
        """What our own sweeper uses."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """What somebody else's sweeper uses: a batch that waits for all."""
        from sweeps.launchers.batch import launch

        with closing(self.trials(Path(self.config.hydra.sweep.dir))) as trials:
            return launch(trials, self.config, self.hydra_context, self.task_function, job_overrides, initial_job_idx)


class LocalLauncher(_OnTrials):
    """Trials as forks of a warm process on this machine."""

    def trials(self, study_folder: Path) -> TrialLauncher:
        from sweeps.launchers.local import LocalTrials

        return LocalTrials(self.config.hydra.launcher.preload, study_folder / "fork_server.log")


class SlurmLauncher(_OnTrials):
    """Each trial as a SLURM job, or many in a warm one."""

    def trials(self, study_folder: Path) -> TrialLauncher:
        if "%" in str(study_folder):
            raise UserError(
                f"hydra/launcher=slurm: SLURM reads the % in {study_folder} as a pattern. Choose another "
                "hydra.sweeper.study_name, or start in another folder"
            )
        from sweeps.launchers.slurm.jobs import SlurmTrials
        from sweeps.launchers.slurm.workers import SlurmWorkers

        settings = read(self.config.hydra.launcher, SlurmLauncherConf)
        if settings.trials_per_job == 1:
            return SlurmTrials(settings)
        return SlurmWorkers(settings, study_folder.absolute() / "workers")
