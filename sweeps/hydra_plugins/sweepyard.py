"""What Hydra finds of us: hydra/sweeper=grid and optuna, hydra/launcher=local and slurm, and the way to sweeps/conf.

Imports nothing heavy: Hydra loads every plugin, also for --help.
"""

import sys
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sweeps.errors import UserError
from sweeps.launchers.contract import TrialLauncher
from sweeps.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf, read
from sweeps.study import help as sweeps_help

# A YAML file may not have the name of a ConfigStore node, so the public names, such as grid and local, are files
# (sweeps/conf) that extend these: https://hydra.cc/docs/upgrades/1.0_to_1.1/automatic_schema_matching/
_store = ConfigStore.instance().store
_store(group="hydra/sweeper", name="sweepyard_sweeper", node=SweeperConf, provider="sweepyard")
_store(group="hydra/launcher", name="sweepyard_local", node=LocalLauncherConf, provider="sweepyard")
_store(group="hydra/launcher", name="sweepyard_slurm", node=SlurmLauncherConf, provider="sweepyard")

OmegaConf.register_new_resolver("sweepyard.help", sweeps_help.text, replace=True)


class SweepyardSearchPath(SearchPathPlugin):
    """Brings the groups in sweeps/conf, samplers and pruners among them, to every Hydra app."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("sweepyard", "pkg://sweeps.conf")


class _Ours:
    def __init__(self, **settings: Any) -> None:
        """Hydra passes the settings; they are read, typed, from the config instead."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._config = config
        self._app: Any = {"hydra_context": hydra_context, "task_function": task_function, "config": config}


class StudySweeper(_Ours, Sweeper):
    """Runs a study (`sweeps.study.driver`)."""

    def sweep(self, arguments: list[str]) -> Any:
        """Exits with 2 if something asked for cannot be, with 1 if more trials failed than may."""
        from sweeps.study.driver import Driver
        from sweeps.study.mistakes import explain

        try:
            driver = Driver(**self._app)
            summary = driver.run(self._make_launcher(), arguments)
        except (UserError, HydraException, OmegaConfBaseException) as error:
            print(error if isinstance(error, UserError) else explain(error, self._config), file=sys.stderr)
            raise SystemExit(2) from error
        if driver.failed():
            raise SystemExit(1)
        return summary

    def _make_launcher(self) -> Launcher:
        try:
            return Plugins.instance().instantiate_launcher(**self._app)
        except OmegaConfBaseException:  # which does not say which setting is wrong
            if (kind := OmegaConf.get_type(self._config.hydra.launcher)) in (LocalLauncherConf, SlurmLauncherConf):
                read(self._config.hydra.launcher, kind)
            raise


class _OnTrials(_Ours, Launcher):
    """A Hydra launcher on top of one of our own."""

    @abstractmethod
    def trials(self, study_folder: Path) -> TrialLauncher:
        """What our own sweeper uses."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """What somebody else's sweeper uses: a batch that waits for all."""
        from sweeps.launchers.batch import launch

        with closing(self.trials(Path(self._config.hydra.sweep.dir))) as trials:
            return launch(trials, job_overrides, initial_job_idx, **self._app)


class LocalLauncher(_OnTrials):
    """Trials as forks of a warm process on this machine."""

    def trials(self, study_folder: Path) -> TrialLauncher:
        from sweeps.launchers.local import LocalTrials

        return LocalTrials(self._config.hydra.launcher.preload, study_folder / "fork_server.log")


class SlurmLauncher(_OnTrials):
    """Each trial as a SLURM job, or many in a warm one."""

    def trials(self, study_folder: Path) -> TrialLauncher:
        if "%" in str(study_folder):
            raise UserError(f"SLURM reads the % in {study_folder} as a pattern: choose another study_name or folder")
        from sweeps.launchers.slurm.jobs import SlurmTrials
        from sweeps.launchers.slurm.workers import SlurmWorkers

        settings = read(self._config.hydra.launcher, SlurmLauncherConf)
        if settings.trials_per_job == 1:
            return SlurmTrials(settings)
        return SlurmWorkers(settings, study_folder.absolute() / "workers")
