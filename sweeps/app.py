"""Around a Hydra app's main function: answers to mistakes, and single runs that are checked and tracked like trials."""

import os
import sys
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
from omegaconf import DictConfig

from sweeps import outcome
from sweeps.compose import check, explain
from sweeps.errors import UserError
from sweeps.settings import LocalLauncherConf, SweeperConf, read
from sweeps.summary import Row, Summary
from sweeps.system_metrics import sampling
from sweeps.trial import Trial, current_trial
from sweeps.trial_folder import State, TrialFolder

Task = Callable[[DictConfig, Trial], Any]


@contextmanager
def answer_mistakes(config_dir: Path, config_name: str = "config") -> Iterator[None]:
    """Say in two lines what is wrong in a command line, and exit with 2. HYDRA_FULL_ERROR=1 shows the traceback."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        yield
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise its errors instead of printing them
    try:
        yield
    except HydraException as error:
        print(explain(error, _known(config_dir, config_name)), file=sys.stderr)
        raise SystemExit(2) from None
    finally:
        del os.environ["HYDRA_FULL_ERROR"]


def run(cfg: DictConfig, task: Task) -> Any:
    """Run the task as a trial: of the study that this process belongs to, or else as a single run of its own."""
    if HydraConfig.get().mode is RunMode.MULTIRUN:
        return task(cfg, current_trial())
    try:
        check(cfg)
        _check_machine()
        return _run_alone(cfg, task)
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def _check_machine() -> None:
    """A single run is trained here, whatever the launcher; what it asks of the local one tells its GPUs."""
    from sweeps.launchers.gpus import visible_gpus
    from sweeps.launchers.local import check_machine

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
        [
            row
            for row in _single_runs(folder.parent)
            if row.folder == folder or row.state is not State.RUNNING
        ],
    )
    row = next(row for row in summary.rows if row.folder == folder)
    with _tracked(settings, summary, row, hydra.overrides.task), sampling(TrialFolder(folder)):
        try:
            returned = task(cfg, current_trial())
            result = outcome.of_return(returned, settings.objectives)
        except Exception as error:
            result = outcome.of_error(error)
            raise
        finally:
            TrialFolder(folder).write_result(result)
            row.take(result)
    return returned


def _single_runs(day: Path) -> list[Row]:
    """The runs in Hydra's folder of a day, in order. One without a result was refused or killed, or still runs."""
    rows = []
    for number, overrides in enumerate(sorted(day.glob("*/.hydra/overrides.yaml"))):
        params = dict(text.split("=", 1) for text in yaml.safe_load(overrides.read_text()) if "=" in text)
        row = Row(number, params, State.RUNNING, overrides.parents[1])
        if result := TrialFolder(row.folder).read_result():
            row.take(result)
        rows.append(row)
    return rows


@contextmanager
def _tracked(settings: SweeperConf, summary: Summary, row: Row, overrides: Sequence[str]) -> Iterator[None]:
    if not settings.tracking:
        yield
        return
    from sweeps import report
    from sweeps.tracking import Tracker  # MLflow takes two seconds

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
