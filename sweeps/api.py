"""A study in Python and notebooks, as its files have it now."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from sweeps.errors import UserError
from sweeps.record.definition import Definition, find, sweeps_line
from sweeps.record.study import StudySnapshot
from sweeps.results import report
from sweeps.study.best import choose_trial
from sweeps.study.reading import read_study
from sweeps.study.refit import folders
from sweeps.trial.folder import TrialFolder

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Study:
    """Read once; load it again to see what has changed since."""

    summary: StudySnapshot
    definition: Definition

    @classmethod
    def of(cls, name: str, root: Path) -> "Study":
        """Return the study, as `sweeps.load` does."""
        folder, definition = find(name, root)
        return cls(read_study(folder, definition), definition)

    @property
    def name(self) -> str:
        return self.summary.name

    @property
    def folder(self) -> Path:
        return self.summary.folder

    @cached_property
    def trials(self) -> "pd.DataFrame":
        """Return one line a trial, by its number: state, parameters, objectives, metrics, costs, error and folder."""
        import pandas as pd

        header, *lines = report.cells(self.summary)
        return pd.DataFrame(lines, columns=header).set_index(header[0])

    @cached_property
    def curves(self) -> "pd.DataFrame":
        """Return one line for each step that a trial reported: trial, step, time (s since 1970) and metrics.

        A metric that is named as one of the first three columns has `metric.` before its name.
        """
        import pandas as pd

        own = {name: f"metric.{name}" for name in ("trial", "step", "time")}
        lines: list[dict[str, Any]] = []
        for row in sorted(self.summary.rows, key=lambda row: row.number):
            with suppress(OSError):  # of this trial alone; its damaged lines are left out
                for line in TrialFolder(row.folder).read_metrics().values:
                    metrics = {own.get(name, name): value for name, value in line.metrics.items()}
                    lines.append({"trial": row.number, "step": line.step, "time": line.time, **metrics})
        return pd.DataFrame(lines, columns=None if lines else [*own])

    @property
    def best(self) -> DictConfig:
        """Return the whole configuration of the best trial. Raises UserError if no trial has a result."""
        return self.config()

    def config(self, trial: int | None = None) -> DictConfig:
        """Return the whole configuration of a trial, by default the best.

        Raises UserError if the trial has no result, or its configuration cannot be read.
        """
        row = choose_trial(self.summary, trial)
        try:
            config = OmegaConf.load(row.folder / ".hydra" / "config.yaml")
        except Exception as error:  # whatever a damaged file holds
            raise UserError(f"the config of trial {row.number} cannot be read: {error}") from error
        if not isinstance(config, DictConfig):
            raise UserError(f"the config of trial {row.number} cannot be read: it holds no configuration")
        return config

    @cached_property
    def figures(self) -> "dict[str, Figure]":
        """Return the figures of the report, by their titles."""
        from sweeps.results.figures import build_plotly_figures

        return build_plotly_figures(self.summary)

    def model(self, trial: int | None = None) -> Any:
        """Return the model that a trial kept, by default the best, as mlflow.pyfunc loads it.

        A refit's model is preferred, above all that of a refit on all data. Raises UserError if none was kept.
        """
        from sweeps.tracking.saved_model import load_saved_model

        row = choose_trial(self.summary, trial)
        places = [*(refit / "0" for refit in reversed(folders(self.folder, row))), row.folder]
        folder = next((model for place in places if (model := TrialFolder(place).model)), None)
        if folder is None:
            raise UserError(
                f"trial {row.number} of study {self.name} kept no model\n"
                f"Train it once more and keep it: {sweeps_line('refit', self.folder)} --trial {row.number}"
            )
        return load_saved_model(folder)
