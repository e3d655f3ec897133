"""A table of a study's trials or configurations for a paper: LaTeX, Markdown or CSV."""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from sweeps.errors import UserError
from sweeps.record.comparison import interval
from sweeps.record.study import parameters
from sweeps.results.findings import Findings
from sweeps.results.report import raw_table
from sweeps.wording import printable, text

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}


@dataclass(frozen=True)
class _Cell:
    """A value, or the mean of several seeds with half of its 95% interval."""

    value: Any
    half: float | None = None
    is_best: bool = False

    def format(self, sign: str) -> str:
        """Return the value as text, with its interval after `sign`. The interval has two digits, as has the mean."""
        if not isinstance(self.value, float) or self.half is None:
            return printable(text(self.value if self.value is not None else ""))
        if not self.half:
            return f"{text(self.value)}{sign}0"
        digits = max(0, 1 - math.floor(math.log10(self.half)))
        return f"{self.value:.{digits}f}{sign}{self.half:.{digits}f}"


def render_table(findings: Findings, columns: Sequence[str], style: str) -> str:
    """Return the completed trials, best first, or with several seeds the configurations, in a style of STYLES.

    Without `columns`, the columns are the params and the objectives. Raises UserError for an unknown column.
    """
    study = findings.study
    header, *lines = raw_table(study)
    by_number = {line[0]: dict(zip(header, line, strict=True)) for line in lines}
    groups = [[trial] for trial in findings.top]
    if configurations := findings.ranking.configurations:
        groups = [[trial for trial in each.raced or each.rows if trial.result] for each in configurations]
    rows = [[by_number[trial.number] for trial in group] for group in groups if group]
    names = {name.lstrip("+"): name for name in header}
    if unknown := [column for column in columns if column not in names]:
        raise UserError(f"--columns {','.join(unknown)}: unknown column.\nChoose among {', '.join(names)}")
    seed_key = configurations[0].key if configurations else None
    default = [*(name for name in parameters(study.rows) if name != seed_key), *study.objective]
    chosen = [names[column] for column in columns] or default
    swept = {*parameters(study.rows), *header[:2]}
    cells = {name: [_cell(group, name, name in swept) for group in rows] for name in chosen}
    for name, direction in zip(study.objective, study.directions, strict=True):
        values = [cell.value for cell in cells.get(name, []) if isinstance(cell.value, float)]
        best = (max if direction == "maximize" else min)(values, default=None)
        cells[name] = [replace(cell, is_best=cell.value == best) for cell in cells.get(name, [])]
    table = {name.lstrip("+"): cells[name] for name in chosen}
    return STYLES[style](table, len(rows))


def _cell(group: Sequence[Mapping[str, Any]], name: str, is_param: bool) -> _Cell:
    """Return the value of a trial, or the mean over the trials of a configuration."""
    values = [row[name] for row in group]
    numbers = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    if is_param or len(group) == 1 or len(numbers) < len(values):
        shared = values[0] if all(value == values[0] for value in values) else ", ".join(map(str, values))
        return _Cell(float(shared) if isinstance(shared, float) else shared)
    low, high = interval(numbers)
    return _Cell(fmean(numbers), (high - low) / 2)


def _as_csv(table: Mapping[str, Sequence[_Cell]], count: int) -> str:
    """Return the numbers in full. A mean has half of its 95% interval in the next column."""
    columns: dict[str, list[Any]] = {}
    for name, cells in table.items():
        columns[name] = [printable(cell.value) if isinstance(cell.value, str) else cell.value for cell in cells]
        if any(cell.half is not None for cell in cells):
            columns[f"{name}_interval"] = [cell.half for cell in cells]
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([[*columns], *zip(*columns.values(), strict=True)])
    return stream.getvalue().rstrip("\n")


def _as_markdown(table: Mapping[str, Sequence[_Cell]], count: int) -> str:
    rows = [[*table], ["---"] * len(table)]
    for i in range(count):
        words = [(cells[i].format(" ± ").replace("|", "\\|"), cells[i].is_best) for cells in table.values()]
        rows.append([f"**{word}**" if is_best else word for word, is_best in words])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _as_latex(table: Mapping[str, Sequence[_Cell]], count: int) -> str:
    """Return a tabular with the rules of booktabs."""

    def escape(words: str) -> str:
        return re.sub(r"[\\~^&%$#_{}]", lambda match: _LATEX[match[0]], words)

    numeric = (all(isinstance(cell.value, int | float) for cell in cells) for cells in table.values())
    lines = [rf"\begin{{tabular}}{{{''.join('r' if column else 'l' for column in numeric)}}}", r"\toprule"]
    lines += [" & ".join(map(escape, table)) + r" \\", r"\midrule"]
    for i in range(count):
        words = [(escape(cells[i].format("±")).replace("±", r" $\pm$ "), cells[i].is_best) for cells in table.values()]
        lines.append(" & ".join(rf"\textbf{{{word}}}" if is_best else word for word, is_best in words) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


STYLES: Mapping[str, Callable[[Mapping[str, Sequence[_Cell]], int], str]] = {
    "latex": _as_latex,
    "markdown": _as_markdown,
    "csv": _as_csv,
}
