"""Hydra's plugins of sweepyard: hydra/sweeper=grid and optuna, hydra/launcher=local and slurm, and
sweeps/conf.

This module imports nothing slow, because Hydra loads every plugin, even for --help.
"""

import os
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_loader import ConfigLoader
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

from sweeps.base.errors import ExitCode, UserError
from sweeps.base.streams import open_closed_streams
from sweeps.hydra.foreign_settings import LAUNCHERS, adopt
from sweeps.hydra.functions import extend_grammar
from sweeps.hydra.parts import (
    drop_stored,
    on_command_line,
    on_help,
    overrides_of_groups,
    own_app_answers,
    register_resolver,
    show_traceback,
    shows_traceback,
    typed_words,
)
from sweeps.hydra.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf, read
from sweeps.launchers.contract import TrialLauncher
from sweeps.study.plan import topics

if TYPE_CHECKING:
    from sweeps.launchers.slurm.trials.driver_job import DriverJob

# The public names, such as grid and local, are YAML files (sweeps/conf) that extend these nodes,
# because a file may not have the name of a node:
# https://hydra.cc/docs/upgrades/1.0_to_1.1/automatic_schema_matching/
_store = ConfigStore.instance().store
_store(group="hydra/sweeper", name="sweepyard_sweeper", node=SweeperConf, provider="sweepyard")
_store(group="hydra/launcher", name="sweepyard_local", node=LocalLauncherConf, provider="sweepyard")
_store(group="hydra/launcher", name="sweepyard_slurm", node=SlurmLauncherConf, provider="sweepyard")
for _name, (_ours, _plugin) in LAUNCHERS.items():
    if find_spec(f"hydra_plugins.{_plugin}") is None:
        _store(
            group="hydra/launcher",
            name=_name,
            node={"defaults": [_ours, "_self_"]},
            provider="sweepyard",
        )

open_closed_streams()  # here, because Hydra loads its plugins before it or the app opens a file
extend_grammar()
register_resolver("sweepyard.help", topics.overview, replace=True)


def _answer(
    error: Exception,
    typed: Sequence[str],
    compose: Callable[[Sequence[str]], DictConfig],
    loader: ConfigLoader,
) -> None:
    """Print a mistake in the command line of an app with our sweeper in two lines, and exit with
    2."""
    from sweeps.hydra.config_files import explain_file

    if not shows_traceback() and (mistake := explain_file(error, loader)):
        _answer_file(mistake, typed)
    if isinstance(error, ValueError):
        mistake = _explain_no_name(typed, loader)
        if not mistake:
            return
        error = UserError(mistake)
        if own_app_answers():
            raise error
    # also if `let_hydra_raise` set it, because then our own app answers
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        return
    from sweeps.hydra.mistakes import explain

    for start in ("hydra/", "hydra/sweeper=", "="):  # ever fewer choices, because one may be wrong
        with suppress(HydraException, ValueError):
            config = compose([word for word in typed if word.startswith(start)])
            if OmegaConf.get_type(config.hydra, "sweeper") is SweeperConf:
                print(explain(error, config, typed), file=sys.stderr)
                raise SystemExit(ExitCode.REFUSED) from None
            return
    answer = explain(error, OmegaConf.create())
    # of a file, which is also read without typed words
    if answer.startswith(("hydra/sweeper=", "hydra/launcher=")):
        print(answer, file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED) from None


def _explain_no_name(typed: Sequence[str], loader: ConfigLoader) -> str:
    """Return which typed choice of a group is no name, for which Hydra raises a ValueError; empty
    if each is one."""
    from sweeps.hydra.wrong_choices import explain_no_name

    for override, names in overrides_of_groups(loader, typed):
        if problem := explain_no_name(override, names):
            return problem
    return ""


def _answer_file(mistake: str, typed: Sequence[str]) -> None:
    """Print a mistake in a file of an app with our sweeper, and exit with 2; return for another
    app, whose mistakes Hydra answers."""
    if own_app_answers():
        raise UserError(mistake)
    file = Path(mistake.partition(":")[0])
    words = " ".join(typed) + (file.read_text(errors="replace") if file.is_file() else "")
    if re.search(r"hydra[/.:]\s*(sweeper|launcher)", words):
        print(mistake, file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED) from None


def _adopt(config: DictConfig, is_sweep: bool) -> None:
    """Take over settings of other plugins. Print those without effect if a sweep starts; exit with
    2 on a mistake."""
    try:
        notes = adopt(config.hydra)
        if is_sweep and OmegaConf.get_type(config.hydra, "sweeper") is SweeperConf:
            from sweeps.hydra.config_files import keep_written

            keep_written(config)
            # because Hydra does not explain what it cannot resolve
            read(config.hydra.sweeper, SweeperConf)
    except UserError as error:
        show_traceback(error)
        print(error, file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED) from None
    if is_sweep:
        for note in notes:
            print(note)


def _explain_topics(config: DictConfig, words: Sequence[str]) -> str:
    """Return the help on topics; exit with 2 if there is none on one."""
    try:
        return topics.explain(config, words)
    except UserError as error:
        show_traceback(error)
        print(error, file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED) from None


on_command_line(_answer, _adopt)
on_help(_explain_topics)


class SweepyardSearchPath(SearchPathPlugin):
    """The search path with the groups of sweeps/conf, such as samplers and pruners, for every Hydra
    app."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        drop_stored("optuna_sweeper")  # of hydra-optuna-sweeper, whose names sweepyard serves
        search_path.append("sweepyard", "pkg://sweeps.conf")


class _Plugin:
    def __init__(self, **settings: Any) -> None:
        """Take Hydra's settings, which are not used, because `settings.read` returns them typed."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._config = config
        self._app: Any = {
            "hydra_context": hydra_context,
            "task_function": task_function,
            "config": config,
        }


class StudySweeper(_Plugin, Sweeper):
    """The sweeper that runs a study (`sweeps.study.run.driver`)."""

    def sweep(self, arguments: list[str]) -> Any:
        """Run the study. Exit with a code of `ExitCode` unless the study is finished."""
        from sweeps.hydra import neighbours
        from sweeps.hydra.mistakes import explain
        from sweeps.study.run.driver import Driver

        neighbours.warn()
        driver = None
        try:
            driver = Driver(**self._app)
            study = driver.run(self._make_launcher(), arguments)
        except (UserError, HydraException, OmegaConfBaseException) as error:
            show_traceback(error)
            print(
                error if isinstance(error, UserError) else explain(error, self._config),
                file=sys.stderr,
            )
            raise SystemExit(
                ExitCode.NOT_FINISHED if driver and driver.has_begun else ExitCode.REFUSED
            ) from error
        if driver.exit_code:
            raise SystemExit(driver.exit_code)
        return study

    def _make_launcher(self) -> Launcher:
        target = OmegaConf.select(self._config, "hydra.launcher._target_")
        if target and target not in Plugins.instance().class_name_to_class:
            advice = "Type hydra/launcher=local or hydra/launcher=slurm, or install its plugin"
            raise UserError(
                f"hydra.launcher._target_={target}: no installed plugin has this class.\n{advice}"
            )
        try:
            from sweeps.launchers.batch import run_locked

            # for launchers of other libraries
            task_function = partial(run_locked, self._app["task_function"])
            return Plugins.instance().instantiate_launcher(
                **{**self._app, "task_function": task_function}
            )
        except OmegaConfBaseException:  # because it does not name the wrong setting
            if (kind := OmegaConf.get_type(self._config.hydra.launcher)) in (
                LocalLauncherConf,
                SlurmLauncherConf,
            ):
                read(self._config.hydra.launcher, kind)
            raise


class _HydraLauncher(_Plugin, Launcher):
    """A Hydra launcher on top of a `TrialLauncher`."""

    @abstractmethod
    def trials(self, study_folder: Path) -> TrialLauncher:
        """Return the launcher for our own sweeper."""

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run a batch of trials for another sweeper, and wait for all of them."""
        from sweeps.launchers.batch import launch

        if initial_job_idx == 0:
            self._advise_sweeper()
        with closing(self.trials(Path(self._config.hydra.sweep.dir))) as trials:
            return launch(trials, job_overrides, initial_job_idx, **self._app)

    def _advise_sweeper(self) -> None:
        """Print that Hydra's own sweeper makes no study, unless somebody typed this sweeper."""
        choices = self._config.hydra.runtime.choices
        typed = [word.partition("=")[0] for word in typed_words(self._config.hydra, "hydra")]
        if choices["hydra/sweeper"] == "basic" and "hydra/sweeper" not in typed:
            print(
                f"hydra/launcher={choices['hydra/launcher']}: Hydra's own sweeper makes no study,"
                " which could be resumed and shown.\nAdd hydra/sweeper=grid or"
                " hydra/sweeper=optuna; or hydra/sweeper=basic, if this is meant",
                file=sys.stderr,
            )


class LocalLauncher(_HydraLauncher):
    """Trials as forks of a warm process on this machine."""

    def trials(self, study_folder: Path) -> TrialLauncher:
        from sweeps.launchers.local.launcher import LocalTrials

        return LocalTrials(self._config.hydra.launcher.preload, study_folder / "fork_server.log")


class SlurmLauncher(_HydraLauncher):
    """Each trial as a SLURM job, or many trials in a warm job."""

    def driver_job(self, study_folder: Path) -> "DriverJob | None":
        """Return the job of the study's driver; None if the driver runs here.

        Raises UserError if a setting of that job was typed, and the driver runs here.
        """
        settings = read(self._config.hydra.launcher, SlurmLauncherConf)
        if settings.driver == "here":
            # not of a file, which may prepare for both places
            for word in typed_words(self._config.hydra, "hydra"):
                if word.startswith("hydra.launcher.driver_"):
                    advice = f"Add hydra.launcher.driver=job, or remove {word}"
                    raise UserError(
                        f"{word}: it is a setting of the driver's job, and the driver runs"
                        f" here.\n{advice}"
                    )
            return None
        from sweeps.launchers.slurm.trials.driver_job import DriverJob

        return DriverJob(study_folder.absolute(), settings)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run a batch of trials for another sweeper. Raises UserError for driver=job, because that
        needs our record."""
        if self._config.hydra.launcher.driver != "here":
            problem = (
                f"hydra.launcher.driver=job: {self._config.hydra.sweeper._target_} cannot resume a"
                " study"
            )
            raise UserError(
                f"{problem}.\nRemove hydra.launcher.driver=job, or choose hydra/sweeper=grid or"
                " optuna"
            )
        return super().launch(job_overrides, initial_job_idx)

    def trials(self, study_folder: Path) -> TrialLauncher:
        for sign in "%\\":  # https://slurm.schedmd.com/sbatch.html, filename pattern
            if sign in str(study_folder):
                problem = f"SLURM reads the {sign} in {study_folder} as part of a pattern."
                raise UserError(f"{problem}\nChoose another study_name or folder")
        from sweeps.launchers.slurm.launcher import SlurmTrials

        return SlurmTrials(
            read(self._config.hydra.launcher, SlurmLauncherConf), study_folder.absolute()
        )
