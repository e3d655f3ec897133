"""A study in Python and notebooks: a snapshot of its files."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from sweeps.after.best import choose_trial
from sweeps.after.refit import folders
from sweeps.base.errors import UserError
from sweeps.record.definition import Definition
from sweeps.record.study import StudySnapshot, parameters, result_of
from sweeps.record.study_file import find, sweeps_line
from sweeps.record.trial_config import read_values
from sweeps.show.raw_table import raw_table
from sweeps.show.terminal.lines import relative_path, tally
from sweeps.space.grammar import space_of
from sweeps.study.folder.reading import read_study
from sweeps.trial.folder import TrialFolder
from sweeps.trial.machine import facts

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Study:
    """A snapshot of a study: tables, the best configuration, and figures::

        import sweeps

        study = sweeps.load("mine")
        table = study.trials[["state", "loss"]]
        curve = study.curves.query("trial == 0").plot("step", "loss")
        print(study.best.lr)  # the whole configuration of the best trial
        study.figures["Learning curves"].write_html("curves.html")

    Load the study again to see later changes.

    Attributes:
        name: The study's name.
        folder: The study's folder.
        snapshot: The trials as the record has them, for what is not in the tables.
        definition: What the study was asked for: command, search space, objectives.
    """

    snapshot: StudySnapshot
    definition: Definition

    @classmethod
    def of(cls, name: str, root: Path) -> "Study":
        """Read the study `name` in the folder `root`."""
        folder, definition = find(name, root)
        return cls(read_study(folder, definition), definition)

    def __repr__(self) -> str:
        """Return five lines: the trials by state, the objectives, the best trial, the folder and
        the attributes."""
        study = self.snapshot
        trial = None
        with suppress(UserError):
            trial = choose_trial(self.snapshot, None)
        objectives = zip(study.objective, study.directions, strict=True)
        best = (
            f"trial {trial.number}: {result_of(trial, study)}   {trial.name}"
            if trial
            else "no trial has a result"
        )
        return (
            f"study {study.name}: {tally(study)}\n"
            f"objective: {', '.join(f'{name} ({direction})' for name, direction in objectives)}\n"
            f"best: {best}\n"
            f"folder: {relative_path(study.folder)}\n"
            "attributes: trials, curves, best, config(7), figures, model()"
        )

    @property
    def name(self) -> str:
        return self.snapshot.name

    @property
    def folder(self) -> Path:
        return self.snapshot.folder

    @cached_property
    def trials(self) -> "pd.DataFrame":
        """Return one line for each trial, by number.

        The columns are state, params, objectives, metrics, costs, error and folder. A metric has
        the value that the trial returned, or else reported last. `final NAME` is the value that was
        reported last of a metric that is also returned; `best NAME` is the best that was reported
        of an objective, a loss or an accuracy.

        Then come host, cpu_model, gpu_model and versions of the newest attempt, and all other
        settings as the training used them, by their dotted names. A param with the name of another
        column gets the prefix `param.`, another setting `config.`.
        """
        import pandas as pd

        header, *lines = raw_table(self.snapshot)
        params = {param.lstrip("+") for param in parameters(self.snapshot.rows)}
        taken = {*header, *facts.PROCESS}
        details: list[dict[str, Any]] = []
        for trial in sorted(self.snapshot.rows, key=lambda trial: trial.number):
            recorded = facts.read(TrialFolder(trial.folder))
            settings = {**self.snapshot.fixed, **read_values(trial.folder), **recorded.settings}
            names = {
                name: f"config.{name}" if name in taken else name
                for name in settings
                if name not in params
            }
            details.append(
                {**recorded.process, **{column: settings[name] for name, column in names.items()}}
            )
        columns = [
            *dict.fromkeys([*facts.PROCESS, *(name for detail in details for name in detail)])
        ]
        table = pd.DataFrame(lines, columns=header).join(pd.DataFrame(details, columns=columns))
        return table.set_index(header[0])

    @cached_property
    def curves(self) -> "pd.DataFrame":
        """Return one line for each step that a trial reported: trial, step, time (s since 1970) and
        metrics.

        A metric with the name of one of the first three columns gets the prefix `metric.`. Damaged
        lines are omitted.
        """
        import pandas as pd

        renamed = {name: f"metric.{name}" for name in ("trial", "step", "time")}
        lines: list[dict[str, Any]] = []
        for trial in sorted(self.snapshot.rows, key=lambda trial: trial.number):
            with suppress(OSError):  # because an unreadable file concerns this trial only
                for line in TrialFolder(trial.folder).read_metrics().values:
                    metrics = {
                        renamed.get(name, name): value for name, value in line.metrics.items()
                    }
                    lines.append(
                        {"trial": trial.number, "step": line.step, "time": line.time, **metrics}
                    )
        return pd.DataFrame(lines, columns=None if lines else [*renamed])

    @property
    def best(self) -> DictConfig:
        """Return the whole configuration of the best trial. Raises UserError if no trial has a
        result."""
        return self.config()

    def config(self, trial: int | None = None) -> DictConfig:
        """Return the whole configuration of a trial.

        Args:
            trial: The trial's number; None for the best trial.

        Raises:
            UserError: The trial has no result, or its configuration cannot be read.
        """
        record = choose_trial(self.snapshot, trial)
        try:
            config = OmegaConf.load(record.folder / ".hydra" / "config.yaml")
        except Exception as error:  # because a damaged file raises many kinds of errors
            raise UserError(
                f"the config of trial {record.number} cannot be read: {error}"
            ) from error
        if not isinstance(config, DictConfig):
            raise UserError(
                f"the config of trial {record.number} cannot be read: the file has no keys"
            )
        return config

    @cached_property
    def figures(self) -> "dict[str, Figure]":
        """Return the figures of the report, by their titles."""
        from sweeps.choose.sampler.importance import with_importance
        from sweeps.show.figures.figures import build_plotly_figures

        return build_plotly_figures(
            with_importance(self.snapshot, space_of(self.definition.parameters))
        )

    def model(self, trial: int | None = None) -> Any:
        """Load the saved model of a trial with mlflow.pyfunc.

        The model of a refit is preferred, first of a refit on all data.

        Args:
            trial: The trial's number; None for the best trial.

        Raises:
            UserError: No model was saved.
        """
        from sweeps.tracking.saved_model import load_saved_model

        record = choose_trial(self.snapshot, trial)
        trained = [
            *(refit / "0" for refit in reversed(folders(self.folder, record))),
            record.folder,
        ]
        model = next((model for folder in trained if (model := TrialFolder(folder).model)), None)
        if model is None:
            raise UserError(
                f"trial {record.number} of study {self.name} has no saved model\nTrain it once more"
                f" and save its model: {sweeps_line('refit', self.folder)} --trial {record.number}"
            )
        return load_saved_model(model)
