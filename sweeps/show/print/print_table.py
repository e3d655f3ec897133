"""A table of a study's trials or configurations for a paper: LaTeX, Markdown or CSV."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sweeps.analysis.comparison import interval
from sweeps.analysis.no_result import no_result_error
from sweeps.base.errors import UserError
from sweeps.base.wording import printable, text, without_noise
from sweeps.hydra.near import advise_names
from sweeps.record.study import TrialRecord, parameters
from sweeps.record.study_file import sweeps_line
from sweeps.show import notes
from sweeps.show.figures.classes import build_columns
from sweeps.show.findings import Findings
from sweeps.show.raw_table import as_csv, metric_column, param_column, printable_cell, raw_table
from sweeps.show.tables import as_markdown
from sweeps.trial.directions import is_fraction

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Cell:
    """A value, or the mean of several seeds with half of its 95% interval, which is cut at the ends
    of a fraction."""

    value: Any
    half: float | None = None
    is_best: bool = False
    is_fraction: bool = False  # whether no value can be below 0 or above 1

    def format(self, sign: str) -> str:
        """Return the value as text, with its interval after `sign`. The interval has two digits, as
        has the mean."""
        if not isinstance(self.value, float) or self.half is None:
            return printable(text(self.value if self.value is not None else ""))
        if not self.half:
            return f"{text(self.value)}{sign}0"
        digits = max(0, 1 - math.floor(math.log10(self.half)))
        low = self.value - self.half
        high = self.value + self.half
        mean = f"{self.value:.{digits}f}"
        if self.is_fraction and (low < 0 or high > 1):
            return f"{mean} ({max(0.0, low):.{digits}f} to {min(1.0, high):.{digits}f})"
        return f"{mean}{sign}{self.half:.{digits}f}"


@dataclass(frozen=True)
class _Group:
    """The completed trials of a row: one trial, or those of a configuration."""

    trials: Sequence[TrialRecord]
    half: float | None = None  # of the interval of a configuration's mean, wider after a race


def render_table(findings: Findings, columns: Sequence[str], style: str) -> str:
    """Return the completed trials, best first, or with several seeds the configurations, in a style
    of STYLES.

    Without `columns`, the columns are the params and the objectives. Raises UserError for an
    unknown column.
    """
    study = findings.study
    groups = _groups(findings)
    if not groups:
        raise no_result_error(study, f"study {study.name}: no trial has a result")
    constants = notes.numbers(findings.notes)
    header, *lines = raw_table(study, constants)
    cells_of = {line[0]: dict(zip(header, line, strict=True)) for line in lines}
    rows = [[cells_of[trial.number] for trial in group.trials] for group in groups]
    names = _chosen(header, columns) or _usual(findings, constants.values())
    shared = {header[0], *map(param_column, parameters(study.rows))}
    table = {name.lstrip("+"): _column(name, rows, name in shared) for name in names}
    _mark_best(table, findings, groups)
    _add_constants(table, [cells_of[subject] for subject in constants], header[0])
    return _render(table, style)


def _column(name: str, rows: Sequence[Sequence[Mapping[str, Any]]], is_param: bool) -> list[_Cell]:
    """Return the cell of a column in each row, from the cells of the row's trials."""
    return [_cell(name, [cells[name] for cells in row], is_param) for row in rows]


def _render(table: Mapping[str, Sequence[_Cell]], style: str) -> str:
    import pandas as pd  # here, because the import takes half a second

    return STYLES[style](pd.DataFrame(table))


def _groups(findings: Findings) -> list[_Group]:
    """Return the completed trials of each row, best first."""
    configurations = findings.ranking.configurations
    if not configurations:
        return [_Group([trial]) for trial in findings.top]

    groups = []
    for configuration in configurations:
        trials = [trial for trial in configuration.raced or configuration.rows if trial.result]
        if trials:
            low, high = replace(configuration, is_fraction=False).interval
            groups.append(_Group(trials, (high - low) / 2))
    return groups


def _chosen(header: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the names in the header of the columns that were typed. Raises UserError for an
    unknown column."""
    names = {name.lstrip("+"): name for name in header}
    typed = [column.lstrip("+") for column in columns]
    if unknown := [column for column in typed if column not in names]:
        advice = advise_names("--columns", typed, [*names])
        raise UserError(f"--columns {','.join(unknown)}: unknown column.\n{advice}")
    return [names[column] for column in typed]


def _usual(findings: Findings, constants: Iterable[Mapping[str, float]]) -> list[str]:
    """Return the columns without a choice: params but the seed, objectives, and what the constants
    have."""
    params = parameters(findings.study.rows)
    configurations = findings.ranking.configurations
    seed = param_column(configurations[0].key) if configurations else None
    columns = [column for column in map(param_column, params) if column != seed]
    metrics = [*findings.study.objective, *(name for values in constants for name in values)]
    return [*dict.fromkeys([*columns, *(metric_column(name, params) for name in metrics)])]


def _add_constants(
    table: Mapping[str, list[_Cell]], rows: Sequence[Mapping[str, Any]], key: str
) -> None:
    """Add a row for each constant that has a value in the table. The row's name is in the first
    column without a value."""
    for row in rows:
        values = {name: row.get(name, row.get(f"+{name}")) for name in table if name != key}
        free = next((name for name in table if values.get(name) is None), None)
        if free is None or all(value is None for value in values.values()):
            continue
        for name, cells in table.items():
            cells.append(_Cell(row[key] if name == free else values.get(name)))


def render_classes(findings: Findings, style: str) -> str:
    """Return precision, recall and F1 of each class of the best saved model. Raises UserError
    without such a model."""
    if not (best := findings.saved_model):
        raise UserError(
            f"study {findings.study.name}: none of its best trials saved a model that predicts"
            " classes.\nTrain the best trial again, and type the name of the refit here:"
            f" {sweeps_line('refit', findings.study.folder)}"
        )
    columns = build_columns(best[1])
    return _render({name: [*map(_Cell, cells)] for name, cells in columns.items()}, style)


def _mark_best(table: dict[str, list[_Cell]], findings: Findings, groups: Sequence[_Group]) -> None:
    """Mark the best cells of each objective, and give means of the first objective the interval of
    their configuration."""
    study = findings.study
    params = parameters(study.rows)
    for objective, metric in enumerate(study.objective):
        name = metric_column(metric, params)
        best = _best_rows(findings, groups, objective)
        for i, cell in enumerate(table.get(name, ())):
            half = cell.half
            if objective == 0 and half is not None:
                half = groups[i].half
            table[name][i] = replace(cell, half=half, is_best=i in best)


def _best_rows(findings: Findings, groups: Sequence[_Group], objective: int) -> list[int]:
    """Return the rows with the best value of an objective; with several seeds, the row of the best
    configuration."""
    firsts = [group.trials[0] for group in groups]
    if findings.ranking.configurations:
        best = findings.ranking.best
        return [i for i, trial in enumerate(firsts) if best and trial in (best.raced or best.rows)]
    values = [trial.objective[objective] for trial in firsts]
    best_of = max if findings.study.directions[objective] == "maximize" else min
    return [i for i, value in enumerate(values) if value == best_of(values)]


def _cell(name: str, values: Sequence[Any], is_param: bool) -> _Cell:
    """Return the value of a trial in the column `name`, or the mean over the trials of a
    configuration."""
    numbers = [
        float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)
    ]
    if is_param or len(values) == 1 or len(numbers) < len(values):
        are_equal = all(value == values[0] for value in values)
        return _Cell(values[0] if are_equal else ", ".join(map(text, values)))
    low, high = interval(numbers)
    bounded = is_fraction(name) and all(0 <= number <= 1 for number in numbers)
    return _Cell(fmean(numbers), (high - low) / 2, is_fraction=bounded)


def _as_csv(table: "pd.DataFrame") -> str:
    """Return the numbers in full, of 32 bits without noise. A mean has half of its 95% interval in
    the next column."""
    columns: dict[str, list[Any]] = {}
    for name, cells in table.items():
        columns[str(name)] = [printable_cell(without_noise(cell.value)) for cell in cells]
        if any(cell.half is not None for cell in cells):
            columns[f"{name}_interval"] = [cell.half for cell in cells]
    header = [printable_cell(name) for name in columns]
    return as_csv([header, *zip(*columns.values(), strict=True)]).rstrip("\n")


def _as_markdown(table: "pd.DataFrame") -> str:
    def words(cell: _Cell) -> str:
        plain = cell.format(" ± ")
        return f"**{plain}**" if cell.is_best else plain

    return as_markdown([[*table], *table.map(words).to_numpy().tolist()], gap="")


def _as_latex(table: "pd.DataFrame") -> str:
    """Return a tabular with the rules of booktabs."""
    bold = table.map(lambda cell: "textbf:--rwrap" if cell.is_best else "")
    is_number = table.map(lambda cell: isinstance(cell.value, int | float | None)).all()
    words = table.map(lambda cell: cell.format("±")).style.hide(axis="index")
    words = words.format(escape="latex").format_index(escape="latex", axis="columns")
    words = words.apply(lambda _: bold, axis=None)

    latex = words.to_latex(
        hrules=True, column_format="".join("r" if column else "l" for column in is_number)
    )
    # {} because a row that begins with [ or * would be read as an argument of the row's end before.
    latex = re.sub(r"^(?=[\[*])", "{}", latex.rstrip("\n"), flags=re.MULTILINE)
    return latex.replace("±", r" $\pm$ ")


STYLES: Mapping[str, Callable[["pd.DataFrame"], str]] = {
    "latex": _as_latex,
    "markdown": _as_markdown,
    "csv": _as_csv,
}
