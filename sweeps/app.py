"""Around a Hydra app's main function: answers to mistakes, and single runs that are checked and tracked like trials."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from sweeps.errors import UserError
from sweeps.results.summary import Row, Summary, look
from sweeps.settings import LocalLauncherConf, SweeperConf, read
from sweeps.signals import on_signals
from sweeps.study.compose import check, explain
from sweeps.tracking.secrets import refuse_typed
from sweeps.trial import Trial, current_trial, objective_of
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import End, Point, State
from sweeps.trial.process import end_of_error, end_of_return
from sweeps.trial.system_metrics import sampling

Task = Callable[[DictConfig, Trial], Any]


@contextmanager
def answer_mistakes(config_dir: Path, config_name: str = "config") -> Iterator[None]:
    """Say in two lines what is wrong in a command line, and exit with 2. HYDRA_FULL_ERROR=1 shows the traceback."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        yield
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise its errors instead of printing them
    try:
        with on_signals(signal.default_int_handler):
            yield
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except (HydraException, InterpolationResolutionError) as error:
        print(explain(error, _known(config_dir, config_name)), file=sys.stderr)
        raise SystemExit(2) from None
    finally:
        del os.environ["HYDRA_FULL_ERROR"]


def run(cfg: DictConfig, task: Task) -> Any:
    """Run the task as a trial: of the study that this process belongs to, or else as a single run of its own."""
    if HydraConfig.get().mode is RunMode.MULTIRUN:
        return task(cfg, current_trial())
    try:
        both = (cfg, HydraConfig.instance().cfg)
        refuse_typed(*(OmegaConf.to_container(one, resolve=False) for one in both))
        check(cfg)
        _check_machine()
        return _run_alone(cfg, task)
    except UserError as error:
        hydra = HydraConfig.get()
        if hydra.output_subdir:  # Hydra wrote down what was typed, before anybody could refuse it
            for name in ("config", "hydra", "overrides"):
                Path(hydra.runtime.output_dir, hydra.output_subdir, f"{name}.yaml").unlink(missing_ok=True)
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def _check_machine() -> None:
    """A single run is trained here, whatever the launcher; what it asks of the local one tells its GPUs."""
    from sweeps.launchers.local import check_machine
    from sweeps.launchers.resources import visible_gpus

    wanted = read(HydraConfig.get().launcher, object)
    if isinstance(wanted, LocalLauncherConf):
        check_machine(wanted, len(visible_gpus()))


def _run_alone(cfg: DictConfig, task: Task) -> Any:
    """The single runs of a day are shown in MLflow as one study, whose folder is the one that Hydra gives them."""
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    settings = read(hydra.sweeper, SweeperConf)
    summary = Summary(
        f"single runs {folder.parent.name}",
        folder.parent,
        settings.objectives,
        settings.directions,
        [row for row in _single_runs(folder.parent) if row.folder == folder or row.state is not State.RUNNING],
    )
    unlisted = Row(len(summary.rows), {}, State.RUNNING, folder)  # with hydra.output_subdir=null
    row = next((row for row in summary.rows if row.folder == folder), unlisted)
    summary.rows += [row] if row is unlisted else []
    attempt = TrialFolder(folder).new_attempt()
    attempt.begin(attempt_began := time.time())
    returned, end = None, End(State.FAILED)
    overrides: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    with _tracked(settings, summary, row, overrides), sampling(TrialFolder(folder)):
        try:
            returned = task(cfg, current_trial())
            end = end_of_return(returned, objective_of(hydra), attempt.heard())
        except BaseException as error:
            end = end_of_error(error)
            raise
        finally:
            end.seconds["training"] = time.time() - attempt_began
            row.take(attempt.close(end))
    return returned


def _single_runs(day: Path) -> list[Row]:
    """The runs in Hydra's folder of a day, in order. One without an end was refused or killed, or still runs."""
    rows = []
    for number, overrides in enumerate(sorted(day.glob("*/.hydra/overrides.yaml"))):
        try:
            words = yaml.safe_load(overrides.read_text()) or []
        except (yaml.YAMLError, UnicodeDecodeError):
            words = []  # another run's file: it is shown without its values
        pairs = (str(word).partition("=") for word in words)
        params: Point = {name: value for name, sign, value in pairs if sign}
        rows.append(look(Row(number, params, State.RUNNING, overrides.parents[1])))
    return rows


@contextmanager
def _tracked(settings: SweeperConf, summary: Summary, row: Row, overrides: Sequence[str]) -> Iterator[None]:
    if not settings.tracking:
        yield
        return
    from sweeps.results import report
    from sweeps.tracking.tracker import Tracker  # MLflow takes two seconds

    tracker = Tracker(settings.tracking_uri, settings.experiment, summary)
    tracker.open()
    os.environ.update(tracker.start_trial(row, overrides))
    try:
        yield
    finally:
        tracker.drain(summary)
        report.write(summary)
        tracker.complete(summary)
        print(tracker.how_to_look())


def _known(config_dir: Path, config_name: str) -> DictConfig:
    """The configuration with the choices made on the command line, but not its values: one of those is the mistake."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(config_dir), version_base="1.3"):
        known = compose(config_name, return_hydra_config=True)
        choices = [text for text in sys.argv[1:] if text.partition("=")[0] in known.hydra.runtime.choices]
        try:
            return compose(config_name, choices, return_hydra_config=True)
        except HydraException:  # the mistake is in the choices, or they are swept
            return known
