"""The frame of a Hydra app's main function: short error messages, and single runs that are tracked
like trials."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from traceback import walk_tb
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import run_job
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from sweeps.base.errors import ExitCode, UserError
from sweeps.base.files import CorruptFile
from sweeps.base.secrets import refuse_typed
from sweeps.base.signals import on_signals
from sweeps.hydra.mistakes import explain, explain_lacking
from sweeps.hydra.parts import (
    VERSION_BASE,
    config_name,
    let_hydra_raise,
    refused_words,
    show_traceback,
    shows_traceback,
    typed_words,
)
from sweeps.hydra.settings import SINGLE_RUN_SETTINGS, LocalLauncherConf, SweeperConf, read
from sweeps.hydra.shell_words import explain_flag, explain_order
from sweeps.launchers.local.machine import Machine
from sweeps.record.study import StudySnapshot, TrialRecord, read_state
from sweeps.record.trial_config import read_overrides
from sweeps.study.plan.compose import check, describe_unread, processes, refuse_conflicts
from sweeps.study.run import notify
from sweeps.trial import MissingObjective, Trial, current_trial, objective_of
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Point, State
from sweeps.trial.machine import facts
from sweeps.trial.machine.system_metrics import sampling
from sweeps.trial.run.process import outcome_of_error, outcome_of_return
from sweeps.trial.times import now

Task = Callable[[DictConfig, Trial], Any]


@contextmanager
def answer_mistakes(config_dir: Path) -> Iterator[None]:
    """Print a mistake in the command line in two lines, and exit with 2. HYDRA_FULL_ERROR=1 shows
    the traceback."""
    if shows_traceback():
        yield
        return
    let_hydra_raise()
    try:
        _refuse_words(sys.argv[1:], config_dir)
        with on_signals(signal.default_int_handler):
            yield
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        if not {"--help", "-h", "--hydra-help", "--cfg", "-c", "--info", "-i"}.intersection(
            sys.argv
        ):
            raise
        # Not an error, because the reader, as in --help | head, has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (UserError, HydraException, InterpolationResolutionError) as error:
        # first, because some are OSErrors
        print(
            error if isinstance(error, UserError) else _explain(error, config_dir), file=sys.stderr
        )
        raise SystemExit(ExitCode.REFUSED) from None
    except OSError as error:
        passed = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
        if run_job.__code__ not in passed or run.__code__ in passed:
            # because only Hydra's own errors, outside of `run`, concern the folder of a single run
            raise
        advice = "Start in another folder, or type hydra.run.dir=/where/there/is/room"
        print(f"the run's folder cannot be written: {error}\n{advice}", file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED) from None


def _refuse_words(words: Sequence[str], config_dir: Path) -> None:
    """Raise UserError for mistakes that Hydra does not explain."""
    for word in refused_words(words)[:1]:
        if not word.startswith("-"):
            raise UserError(explain_order(word, sys.argv))
        with _configuration(config_dir) as config:
            raise UserError(explain_flag(word, words, config))
    for word in words:
        key, sign, value = word.partition("=")
        if sign and key in ("hydra.sweeper", "hydra.launcher"):
            raise UserError(
                f"{word}: a group is chosen with a slash\nType: {key.replace('.', '/')}={value}"
            )


def run(cfg: DictConfig, task: Task) -> Any:
    """Run the task as a trial of this process's study or, without a study, as a single run."""
    whole: Any = HydraConfig.instance().cfg
    hydra = whole.hydra
    if hydra.mode is RunMode.MULTIRUN:
        return task(cfg, current_trial())
    try:
        _check_alone(cfg, whole)
        return _run_alone(cfg, task, hydra)
    except UserError as error:
        _remove_written(hydra)
        show_traceback(error)
        print(error, file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED) from None
    except MissingObjective as error:
        print(error, file=sys.stderr)
        raise SystemExit(ExitCode.FAILED) from None


def _check_alone(cfg: DictConfig, whole: DictConfig) -> None:
    """Raise UserError if the task cannot be a single run here."""
    hydra = whole.hydra
    for config in (cfg, hydra):
        refuse_typed(OmegaConf.to_container(config, resolve=False))
    notify.refuse_address(whole)
    check(cfg, starts=True)
    refuse_conflicts(hydra)
    _refuse_sweep(typed_words(hydra, "hydra"))

    # because only it is for this machine
    if OmegaConf.get_type(hydra.launcher) is LocalLauncherConf:
        Machine.here().request(whole)
    if any(word.startswith("+") for word in typed_words(hydra, "task")):
        for note in describe_unread(cfg, hydra):
            print(note)
    if processes(cfg) > 1:
        raise UserError("a trial of several processes needs a launcher.\nAdd -m to the command")


def _remove_written(hydra: Any) -> None:
    """Remove the files in which Hydra wrote the refused values, such as a password."""
    if hydra.output_subdir:
        folder = Path(hydra.runtime.output_dir, hydra.output_subdir)
        for name in ("config", "hydra", "overrides"):
            (folder / f"{name}.yaml").unlink(missing_ok=True)


def _refuse_sweep(typed: Sequence[str]) -> None:
    """Raise UserError for a setting that only a sweep uses, unless hydra.mode=RUN was typed."""
    if "hydra.mode=RUN" in sys.argv:  # sys.argv, because Hydra adds it to `typed`
        return
    for word in typed:
        key = word.partition("=")[0]
        setting = key.removeprefix("hydra.sweeper.")
        is_of_sweeper = setting != key and setting not in SINGLE_RUN_SETTINGS
        if is_of_sweeper or word.startswith(("hydra/sweeper", "hydra/launcher=slurm")):
            line = shlex.join(["python", sys.argv[0], "-m", *sys.argv[1:]])
            raise UserError(
                f"{word} is for a sweep, but this is a single run: -m is missing.\nType: {line}"
            )


def _run_alone(cfg: DictConfig, task: Task, hydra: Any) -> Any:
    """Run the task as a single run, and return its result. MLflow shows the single runs of a day as
    one study."""
    folder = Path(hydra.runtime.output_dir)
    settings = SweeperConf()
    # not BasicSweeper of an app without our defaults
    if OmegaConf.get_type(hydra.sweeper) is SweeperConf:
        settings = read(hydra.sweeper, SweeperConf)
    trials = _single_runs(folder)
    index = [trial.folder for trial in trials].index(folder)
    day = folder.parent
    study = StudySnapshot(
        f"single runs {day.name}", day, settings.objectives, settings.directions, trials
    )
    attempt = TrialFolder(folder).new_attempt()
    attempt.begin(now())
    tracked: AbstractContextManager[None] = nullcontext()
    if settings.tracking:
        tracked = _tracked(settings, study, trials[index], typed_words(hydra, "task"))

    with tracked, sampling(TrialFolder(folder)), facts.recording(attempt):
        try:
            returned = task(cfg, current_trial())
            outcome = outcome_of_return(returned, objective_of(hydra), attempt.stop_reason())
        except BaseException as error:
            outcome = outcome_of_error(error)
            raise
        finally:
            trials[index] = trials[index].with_end(attempt.close(outcome))
    if trials[index].state.is_bad:  # because of what the task returned
        print(trials[index].error, file=sys.stderr)
        raise SystemExit(ExitCode.FAILED)
    return returned


def _single_runs(folder: Path) -> list[TrialRecord]:
    """Return the run in `folder` and, in order, its ended neighbours in Hydra's folder of a day."""
    written = [file.parents[1] for file in folder.parent.glob("*/.hydra/overrides.yaml")]
    folders = sorted({folder, *written})
    numbers = _read_numbers(folders)
    new = count(1 + max(numbers.values(), default=-1))
    trials = []
    for path in folders:
        number = numbers[path] if path in numbers else next(new)
        pairs = [word.partition("=") for word in read_overrides(path)]
        params: Point = {name: value for name, sign, value in pairs if sign}
        trial = read_state(TrialRecord(number, params, State.RUNNING, path))
        if path == folder or trial.state is not State.RUNNING:
            trials.append(trial)
    return trials


def _read_numbers(folders: Sequence[Path]) -> dict[Path, int]:
    """Return the numbers that earlier runs gave these runs, so that deleting a run renumbers no
    other."""
    numbers = {}
    for folder in folders:
        with suppress(OSError, CorruptFile):
            number = TrialFolder(folder).read_tracking().get("trial")
            if isinstance(number, int):
                numbers[folder] = number
    return numbers


@contextmanager
def _tracked(
    settings: SweeperConf, study: StudySnapshot, trial: TrialRecord, overrides: Sequence[str]
) -> Iterator[None]:
    from sweeps.show.page import report
    from sweeps.tracking.tracker import Tracker  # here, because MLflow takes two seconds to import

    tracker = Tracker(settings.tracking_uri, settings.experiment, study)
    tracker.open(required=settings.tracking_required)
    os.environ.update(tracker.start_trial(trial, overrides))
    try:
        yield
    finally:
        tracker.drain(study)
        study = study.with_tracking(tracker.seconds)
        report.write(study)
        tracker.complete(study)
        if tracker.problem:
            print(tracker.problem)
        print(tracker.dashboard_line())


@contextmanager
def _configuration(config_dir: Path) -> Iterator[DictConfig]:
    """Yield the configuration without typed values, empty if it cannot be composed, while others
    can be composed."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(config_dir), **VERSION_BASE):
        try:
            config = compose("config", return_hydra_config=True)
        except HydraException:
            config = DictConfig({})
        yield config


def _explain(error: Exception, config_dir: Path) -> str:
    """Return an error of Hydra in two lines, by the configuration with the typed choices and
    without typed values."""
    name = config_name(sys.argv[1:])
    if isinstance(error, MissingConfigException) and error.missing_cfg_file == name:
        names = ", ".join(sorted(file.stem for file in config_dir.glob("*.yaml")))
        return f"--config-name={name}: {config_dir} has no such file.\nChoose one of: {names}"
    with _configuration(config_dir) as untyped:
        config = untyped
        if not config:  # because the configuration itself is wrong, or has another name
            return "\n".join(str(error).splitlines()[:2])
        groups = config.hydra.runtime.choices
        typed = {group: value for group, _, value in (word.partition("=") for word in sys.argv[1:])}
        if advice := _explain_lacking(error, typed, [group for group in typed if group in groups]):
            return advice
        if choices := [f"{group}={value}" for group, value in typed.items() if group in groups]:
            with suppress(HydraException):  # because a choice is wrong, or swept
                config = compose("config", choices, return_hydra_config=True)
        return explain(error, config)


def _explain_lacking(error: Exception, typed: Mapping[str, str], groups: Sequence[str]) -> str:
    """Return the advice for a typed value that only some choices of a swept group have; else an
    empty string."""
    key = next((key for key in typed if str(error).startswith(f"Could not override '{key}'")), "")
    for group in groups:
        if key.startswith(f"{group}.") and "," in typed[group]:
            choices = typed[group].split(",")
            having = [
                choice
                for choice in choices
                if _composes(f"{group}={choice}", f"{key}={typed[key]}")
            ]
            lacking = [choice for choice in choices if choice not in having]
            if having and lacking:
                return explain_lacking(group, having, lacking, key, typed[key])
    return ""


def _composes(*overrides: str) -> bool:
    try:
        return bool(compose("config", [*overrides]))
    except HydraException:
        return False
