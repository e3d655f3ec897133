"""A table of a study's trials or configurations for a paper: LaTeX, Markdown or CSV."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from sweeps.analysis.comparison import interval
from sweeps.base.errors import UserError
from sweeps.base.wording import printable, text, without_noise
from sweeps.hydra.near import advise_names
from sweeps.record.study import TrialRecord, parameters
from sweeps.record.study_file import sweeps_line
from sweeps.show import notes
from sweeps.show.figures.classes import build_columns
from sweeps.show.findings import Findings
from sweeps.show.raw_table import metric_column, param_column, printable_cell, raw_table
from sweeps.show.tables import as_markdown
from sweeps.trial.directions import is_fraction

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}


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
        if self.is_fraction and (low < 0 or high > 1):
            return (
                f"{self.value:.{digits}f} ({max(0.0, low):.{digits}f} to"
                f" {min(1.0, high):.{digits}f})"
            )
        return f"{self.value:.{digits}f}{sign}{self.half:.{digits}f}"


def render_table(findings: Findings, columns: Sequence[str], style: str) -> str:
    """Return the completed trials, best first, or with several seeds the configurations, in a style
    of STYLES.

    Without `columns`, the columns are the params and the objectives. Raises UserError for an
    unknown column.
    """
    study = findings.study
    constants = notes.numbers(findings.notes)
    header, *lines = raw_table(study, constants)
    cells_of = {line[0]: dict(zip(header, line, strict=True)) for line in lines}
    groups, halves = _group(findings)
    if not groups:
        reason = f"Show the reason: {sweeps_line('status', study.folder)}"
        raise UserError(f"study {study.name}: no trial has a result.\n{reason}")

    params = parameters(study.rows)
    param_columns = [param_column(key) for key in params]
    objectives = {metric_column(name, params): i for i, name in enumerate(study.objective)}
    table: dict[str, list[_Cell]] = {}
    for name in _chosen(header, columns) or _usual(findings, params, constants.values()):
        is_shared = name in param_columns or name == header[0]
        cells = [
            _cell(name, [cells_of[trial.number][name] for trial in group], is_shared)
            for group in groups
        ]
        if objectives.get(name) == 0 and halves:  # after a race the interval is wider
            cells = _with_halves(cells, halves)
        best = _best_rows(findings, groups, objectives[name]) if name in objectives else ()
        table[name.lstrip("+")] = [replace(cell, is_best=i in best) for i, cell in enumerate(cells)]
    added = _add_constants(table, [cells_of[subject] for subject in constants], header[0])
    return STYLES[style](table, len(groups) + added)


def _group(findings: Findings) -> tuple[list[list[TrialRecord]], list[float]]:
    """Return the completed trials of each row, best first, and half of each interval if rows are
    configurations."""
    configurations = findings.ranking.configurations
    if not configurations:
        return [[trial] for trial in findings.top], []

    groups: list[list[TrialRecord]] = []
    halves: list[float] = []
    for configuration in configurations:
        group = [trial for trial in configuration.raced or configuration.rows if trial.result]
        if group:
            low, high = replace(configuration, is_fraction=False).interval
            groups.append(group)
            halves.append((high - low) / 2)
    return groups, halves


def _chosen(header: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the names in the header of the columns that were typed. Raises UserError for an
    unknown column."""
    names = {name.lstrip("+"): name for name in header}
    typed = [column.lstrip("+") for column in columns]
    if unknown := [column for column in typed if column not in names]:
        advice = advise_names("--columns", typed, [*names])
        raise UserError(f"--columns {','.join(unknown)}: unknown column.\n{advice}")
    return [names[column] for column in typed]


def _usual(
    findings: Findings, params: Sequence[str], constants: Iterable[Mapping[str, float]]
) -> list[str]:
    """Return the columns without a choice: params but the seed, objectives, and what the constants
    have."""
    configurations = findings.ranking.configurations
    seed = configurations[0].key if configurations else None
    columns = [
        param_column(key)
        for key in params
        if seed is None or param_column(key) != param_column(seed)
    ]
    metrics = [*findings.study.objective, *(name for values in constants for name in values)]
    return [*dict.fromkeys([*columns, *(metric_column(name, params) for name in metrics)])]


def _with_halves(cells: Sequence[_Cell], halves: Sequence[float]) -> list[_Cell]:
    pairs = zip(cells, halves, strict=True)
    return [cell if cell.half is None else replace(cell, half=half) for cell, half in pairs]


def _add_constants(
    table: Mapping[str, list[_Cell]], rows: Sequence[Mapping[str, Any]], key: str
) -> int:
    """Add a row for each constant that has a value in the table, and return the number of added
    rows.

    The row's name is in the first column without a value.
    """
    added = 0
    for row in rows:
        values = {name: row.get(name, row.get(f"+{name}")) for name in table if name != key}
        free = next((name for name in table if values.get(name) is None), None)
        if free is None or all(value is None for value in values.values()):
            continue
        for name, cells in table.items():
            cells.append(_Cell(row[key] if name == free else values.get(name)))
        added += 1
    return added


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
    return STYLES[style](
        {name: [*map(_Cell, cells)] for name, cells in columns.items()}, len(columns["class"])
    )


def _best_rows(
    findings: Findings, groups: Sequence[Sequence[TrialRecord]], objective: int
) -> list[int]:
    """Return the rows with the best value of an objective; with several seeds, the row of the best
    configuration."""
    if findings.ranking.configurations:
        best = findings.ranking.best
        return [
            i for i, group in enumerate(groups) if best and group[0] in (best.raced or best.rows)
        ]
    values = [group[0].objective[objective] for group in groups]
    best_of = max if findings.study.directions[objective] == "maximize" else min
    return [i for i, value in enumerate(values) if value == best_of(values)]


def _cell(name: str, values: Sequence[Any], is_param: bool) -> _Cell:
    """Return the value of a trial in the column `name`, or the mean over the trials of a
    configuration."""
    numbers = [
        float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)
    ]
    if is_param or len(values) == 1 or len(numbers) < len(values):
        shared = (
            values[0]
            if all(value == values[0] for value in values)
            else ", ".join(map(text, values))
        )
        return _Cell(float(shared) if isinstance(shared, float) else shared)
    low, high = interval(numbers)
    bounded = is_fraction(name) and all(0 <= number <= 1 for number in numbers)
    return _Cell(fmean(numbers), (high - low) / 2, is_fraction=bounded)


def _as_csv(table: Mapping[str, Sequence[_Cell]], count: int) -> str:
    """Return the numbers in full, of 32 bits without noise. A mean has half of its 95% interval in
    the next column."""
    columns: dict[str, list[Any]] = {}
    for name, cells in table.items():
        columns[name] = [printable_cell(without_noise(cell.value)) for cell in cells]
        if any(cell.half is not None for cell in cells):
            columns[f"{name}_interval"] = [cell.half for cell in cells]
    stream = io.StringIO()
    header = map(printable_cell, columns)
    csv.writer(stream, lineterminator="\n").writerows(
        [[*header], *zip(*columns.values(), strict=True)]
    )
    return stream.getvalue().rstrip("\n")


def _as_markdown(table: Mapping[str, Sequence[_Cell]], count: int) -> str:
    rows = [[*table]]
    for i in range(count):
        words = [(cells[i].format(" ± "), cells[i].is_best) for cells in table.values()]
        rows.append([f"**{word}**" if is_best else word for word, is_best in words])
    return as_markdown(rows, gap="")


def _as_latex(table: Mapping[str, Sequence[_Cell]], count: int) -> str:
    """Return a tabular with the rules of booktabs."""

    def escape(words: str) -> str:
        return re.sub(r"[\\~^&%$#_{}]", lambda match: _LATEX[match[0]], words)

    numeric = (
        all(isinstance(cell.value, int | float | None) for cell in cells)
        for cells in table.values()
    )
    lines = [
        rf"\begin{{tabular}}{{{''.join('r' if column else 'l' for column in numeric)}}}",
        r"\toprule",
    ]
    lines += [" & ".join(map(escape, table)) + r" \\", r"\midrule"]
    for i in range(count):
        words = [
            (escape(cells[i].format("±")).replace("±", r" $\pm$ "), cells[i].is_best)
            for cells in table.values()
        ]
        # {} because a row that begins with [ would be read as the length of a gap.
        lines.append(
            "{}"
            + " & ".join(rf"\textbf{{{word}}}" if is_best else word for word, is_best in words)
            + r" \\"
        )
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


STYLES: Mapping[str, Callable[[Mapping[str, Sequence[_Cell]], int], str]] = {
    "latex": _as_latex,
    "markdown": _as_markdown,
    "csv": _as_csv,
}
