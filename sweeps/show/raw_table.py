"""The table of all recorded data of a study's trials: for trials.csv, printed tables and
notebooks."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from sweeps.analysis.costs import COSTS, of_trial
from sweeps.base.wording import printable
from sweeps.record.inside import is_inside
from sweeps.record.study import StudySnapshot, TrialRecord, parameters
from sweeps.show import notes
from sweeps.show.findings import Findings
from sweeps.show.tables import Column, build
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
    has its name."""
    return (
        f"metric.{name}" if name in {*_COLUMNS, *(param.lstrip("+") for param in params)} else name
    )


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
    trials = sorted(study.rows, key=attrgetter("number"))
    reported = {trial.number: _read_reported(trial, study) for trial in trials}
    params = parameters(study.rows)

    columns = [
        Column("trial", attrgetter("number")),
        Column("state", lambda trial: str(trial.state)),
    ]
    columns += _param_columns(params)
    columns += _metric_columns(study, trials, reported, constants.values(), params)
    columns += _reported_columns(study, trials, reported)
    columns += _cost_columns(trials)

    table = build(columns, trials)
    for subject, values in constants.items():
        by_title = {metric_column(name, params): value for name, value in values.items()}
        table.append([subject, *(by_title.get(column.title) for column in columns[1:])])
    return table


def _param_columns(params: Sequence[str]) -> list[Column[TrialRecord]]:
    def column(param: str) -> Column[TrialRecord]:
        return Column(param_column(param), lambda trial: trial.params.get(param))

    return [column(param) for param in params]


def _metric_columns(
    study: StudySnapshot,
    trials: Sequence[TrialRecord],
    reported: Mapping[int, Mapping[str, _Reported]],
    constants: Iterable[Mapping[str, float]],
    params: Sequence[str],
) -> list[Column[TrialRecord]]:
    """Return a column for each metric, the objectives first."""

    def objective(position: int, name: str) -> Column[TrialRecord]:
        return Column(
            metric_column(name, params),
            lambda trial: trial.objective[position] if trial.objective else None,
        )

    def metric(name: str) -> Column[TrialRecord]:
        def cell(trial: TrialRecord) -> float | None:
            last = reported[trial.number].get(name)
            return trial.metrics.get(name, last.last if last else None)

        return Column(metric_column(name, params), cell)

    columns = [objective(position, name) for position, name in enumerate(study.objective)]
    names = _metrics(trials, reported.values(), constants)
    return columns + [metric(name) for name in names if name not in study.objective]


def _reported_columns(
    study: StudySnapshot,
    trials: Sequence[TrialRecord],
    reported: Mapping[int, Mapping[str, _Reported]],
) -> list[Column[TrialRecord]]:
    """Return the columns of the last values, and of the best ones."""

    def final(name: str) -> Column[TrialRecord]:
        def cell(trial: TrialRecord) -> float | None:
            values = reported[trial.number].get(name)
            return values.last if values else None

        return Column(f"final {name}", cell)

    def best(name: str, direction: str) -> Column[TrialRecord]:
        def cell(trial: TrialRecord) -> float | None:
            values = reported[trial.number].get(name)
            return values.best(direction) if values else None

        return Column(f"best {name}", cell)

    columns = [final(name) for name in _returned_and_reported(study, trials, reported)]
    directions = _directions(study, reported.values())
    return columns + [best(name, direction) for name, direction in directions.items()]


def _cost_columns(trials: Sequence[TrialRecord]) -> list[Column[TrialRecord]]:
    """Return the columns of what a trial cost, and of how it ended."""
    costs = {trial.number: of_trial(trial) for trial in trials}

    def cost(name: str) -> Column[TrialRecord]:
        return Column(name.replace("/", "_"), lambda trial: costs[trial.number].get(name))

    return [
        *(cost(name) for name in COSTS),
        Column("gpu_use", attrgetter("gpu_use")),
        Column("attempts", lambda trial: len(trial.attempts)),
        Column("error", attrgetter("error")),
        Column("folder", lambda trial: str(trial.folder)),
    ]


def _metrics(
    trials: Sequence[TrialRecord],
    reported: Iterable[Mapping[str, _Reported]],
    constants: Iterable[Mapping[str, float]],
) -> list[str]:
    """Return the names of all metrics: first those that trials returned."""
    names = dict[str, None]()
    for by_name in (*(trial.metrics for trial in trials), *reported, *constants):
        names |= dict.fromkeys(by_name)
    return [*names]


def _returned_and_reported(
    study: StudySnapshot,
    trials: Sequence[TrialRecord],
    reported: Mapping[int, Mapping[str, _Reported]],
) -> list[str]:
    """Return the metrics that trials reported and also returned, the objectives first."""
    returned = dict.fromkeys(study.objective)
    for trial in trials:
        if trial.attempts:
            returned |= dict.fromkeys(trial.attempts[-1].metrics)
    return [name for name in returned if any(name in by_name for by_name in reported.values())]


def _directions(
    study: StudySnapshot, reported: Iterable[Mapping[str, _Reported]]
) -> dict[str, str]:
    """Return the direction of each reported metric of which the better values are known, the
    objectives first."""
    names = dict[str, None]()
    for by_name in reported:
        names |= dict.fromkeys(by_name)
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
