"""The table of all recorded data of a study's trials: for trials.csv, printed tables and
notebooks."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sweeps.analysis.costs import COSTS, of_trial
from sweeps.base.wording import printable
from sweeps.record.inside import is_inside
from sweeps.record.study import StudySnapshot, TrialRecord, parameters
from sweeps.show import notes
from sweeps.show.findings import Findings
from sweeps.trial.folder import TrialFolder
from sweeps.trial.machine import facts
from sweeps.trial.metrics import METRICS

_COLUMNS = (
    "trial",
    "state",
    *(name.replace("/", "_") for name in COSTS),
    "gpu_use",
    "attempts",
    "error",
    "folder",
)
"""The columns that are neither params nor metrics."""
# of metrics that are no objectives, by their last word
_DIRECTIONS = {"loss": "minimize", "accuracy": "maximize"}


@dataclass(frozen=True)
class _Reported:
    """The values of a metric that a trial reported; low and high are of the finite values."""

    last: float
    low: float = math.inf
    high: float = -math.inf

    def add(self, value: float) -> "_Reported":
        if not math.isfinite(value):
            return replace(self, last=value)
        return _Reported(value, min(self.low, value), max(self.high, value))

    def best(self, direction: str) -> float | None:
        value = self.high if direction == "maximize" else self.low
        return value if math.isfinite(value) else None


def _read_reported(trial: TrialRecord, study: StudySnapshot) -> dict[str, _Reported]:
    """Return the values that the trial reported, by metric; none if its file cannot be read."""
    folder = TrialFolder(trial.folder)
    reported: dict[str, _Reported] = {}
    if not is_inside(folder.path / METRICS, study.folder):
        return reported
    try:
        lines = folder.read_metrics().values
    except OSError:  # because one unreadable trial must not hide the others
        return reported
    for line in lines:
        for name, value in line.metrics.items():
            reported[name] = reported.get(name, _Reported(value)).add(value)
    return reported


def metric_column(name: str, params: Sequence[str]) -> str:
    """Return the name of a metric's column: with the prefix `metric.` if a param or another column
    has its name, or may have it, as `best loss`."""
    taken = {*_COLUMNS, *(param.lstrip("+") for param in params)}
    is_taken = name in taken or name.startswith(("best ", "final "))
    return f"metric.{name}" if is_taken else name


def param_column(name: str) -> str:
    """Return the column of a param, with the prefix `param.` if its name is that of another
    column."""
    key = name.lstrip("+")
    return f"param.{key}" if key in {*_COLUMNS, *facts.PROCESS} else name


def raw_table(
    study: StudySnapshot, constants: Mapping[str, Mapping[str, float]] | None = None
) -> list[list[Any]]:
    """Return a header and a row for each trial, by number, of all recorded data; None for missing
    data.

    A metric has the value that the trial returned, or else reported last. `final NAME` is the value
    reported last of a metric that trials also return, and `best NAME` the best reported value.
    `constants` are further rows by their names, such as a solution in closed form.
    """
    constants = constants or {}
    params = parameters(study.rows)
    reported = [_read_reported(trial, study) for trial in study.rows]
    columns = _metric_columns(study, params, [*reported, *constants.values()])
    pairs = zip(study.rows, reported, strict=True)
    rows = [_row(trial, values, study, columns) for trial, values in pairs]
    for subject, note in constants.items():
        rows.append({"trial": subject, **{columns[name]: note[name] for name in note}})
    titles = _titles(study, map(param_column, params), columns.values(), reported)
    return [titles, *([row.get(title) for title in titles] for row in rows)]


def _titles(
    study: StudySnapshot,
    params: Iterable[str],
    metrics: Iterable[str],
    reported: Sequence[Mapping[str, _Reported]],
) -> list[str]:
    finals = [f"final {name}" for name in _returned_and_reported(study, reported)]
    bests = [f"best {name}" for name in _directions(study, reported)]
    return [*_COLUMNS[:2], *params, *metrics, *finals, *bests, *_COLUMNS[2:]]


def _row(
    trial: TrialRecord,
    reported: Mapping[str, _Reported],
    study: StudySnapshot,
    columns: Mapping[str, str],
) -> dict[str, Any]:
    """Return the cells of a trial by title; `columns` are the titles of metrics."""
    row: dict[str, Any] = {name.replace("/", "_"): cost for name, cost in of_trial(trial).items()}
    row |= {param_column(name): value for name, value in trial.params.items()}
    for name, value in _metric_values(trial, reported, study).items():
        row[columns[name]] = value
    for name, values in reported.items():
        row[f"final {name}"] = values.last
    for name, direction in _directions(study, [reported]).items():
        row[f"best {name}"] = reported[name].best(direction)
    return {
        **row,
        "trial": trial.number,
        "state": str(trial.state),
        "gpu_use": trial.gpu_use,
        "attempts": len(trial.attempts),
        "error": trial.error,
        "folder": str(trial.folder),
    }


def _metric_values(
    trial: TrialRecord, reported: Mapping[str, _Reported], study: StudySnapshot
) -> dict[str, float | None]:
    """Return the returned value of each metric, or else the one reported last; of an objective, the
    returned one alone."""
    last = {name: values.last for name, values in reported.items()}
    returned = dict(zip(study.objective, trial.objective, strict=False))
    return {**last, **trial.metrics, **dict.fromkeys(study.objective), **returned}


def _metric_columns(
    study: StudySnapshot, params: Sequence[str], others: Iterable[Mapping[str, object]]
) -> dict[str, str]:
    """Return the titles of all metrics: first the objectives, then those that trials returned."""
    names = dict.fromkeys(study.objective)
    for by_name in (*(trial.metrics for trial in study.rows), *others):
        names |= dict.fromkeys(by_name)
    return {name: metric_column(name, params) for name in names}


def _returned_and_reported(
    study: StudySnapshot, reported: Iterable[Mapping[str, _Reported]]
) -> list[str]:
    """Return the metrics that trials reported and also returned, the objectives first."""
    returned = dict.fromkeys(study.objective)
    for trial in study.rows:
        if trial.attempts:
            returned |= dict.fromkeys(trial.attempts[-1].metrics)
    names = set(chain.from_iterable(reported))
    return [name for name in returned if name in names]


def _directions(
    study: StudySnapshot, reported: Iterable[Mapping[str, _Reported]]
) -> dict[str, str]:
    """Return the direction of each reported metric of which the better values are known, the
    objectives first."""
    names = dict.fromkeys(chain.from_iterable(reported))
    of_objectives = dict(zip(study.objective, study.directions, strict=True))
    directions = {name: direction for name, direction in of_objectives.items() if name in names}
    for name in names:
        last_word = name.rpartition("_")[2]
        if name not in of_objectives and last_word in _DIRECTIONS:
            directions[name] = _DIRECTIONS[last_word]
    return directions


def render_csv(findings: Findings) -> str:
    """Return trials.csv."""
    header, *rows = raw_table(findings.study, notes.numbers(findings.notes))
    # because a spreadsheet would compute +x
    names = [printable_cell(name.lstrip("+")) for name in header]
    return as_csv([names, *(map(printable_cell, row) for row in rows)])


def as_csv(rows: Iterable[Iterable[Any]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def printable_cell(cell: Any) -> Any:
    """Return a cell without passwords and control characters. A text that a spreadsheet would
    compute gets a quote.

    Source: https://owasp.org/www-community/attacks/CSV_Injection
    """
    if not isinstance(cell, str):
        return cell
    return f"'{printable(cell)}" if cell.startswith(("=", "+", "-", "@")) else printable(cell)
