"""A study to read afterwards: trials.csv, report.html (one file, also offline), and a short Markdown."""

import csv
import html
import io
from collections.abc import Iterable
from pathlib import Path

from sweeps.files import write_whole
from sweeps.results import ledger
from sweeps.results.figures import as_html
from sweeps.results.summary import Row, Summary
from sweeps.trial.job import State

CSV = "trials.csv"
HTML = "report.html"
_ROWS_IN_MARKDOWN = 25
_ROWS_IN_HTML = 1000


def markdown(summary: Summary) -> str:
    """The outcome and the table of trials, best first; of many trials the first, to fit an MLflow note."""
    rows, params = ranked(summary), parameters(summary)
    header = ["#", *params, *summary.objective, "state"]
    lines = [*_headline(summary), "", _markdown_row(header), _markdown_row(["---"] * len(header))]
    lines += [_markdown_row(_cells(row, params, len(summary.objective))) for row in rows[:_ROWS_IN_MARKDOWN]]
    if len(rows) > _ROWS_IN_MARKDOWN:
        lines += ["", f"The first {_ROWS_IN_MARKDOWN} of {len(rows)} trials; all of them are in {CSV}."]
    header, *costs = ledger_table(summary)
    lines += ["", "**What it cost**", "", _markdown_row(header), _markdown_row(["---"] * len(header))]
    return "\n".join([*lines, *map(_markdown_row, costs), "", _tail(summary)])


def write(summary: Summary) -> Path:
    """Write trials.csv and report.html into the study's folder, and return the path of the latter."""
    summary.folder.mkdir(parents=True, exist_ok=True)
    write_whole(summary.folder / CSV, _csv(summary))
    page = _PAGE.format(
        title=html.escape(summary.name),
        headline="".join(f"<p>{html.escape(line).replace('**', '')}</p>" for line in _headline(summary)),
        figures=as_html(summary),
        table=_html_table(summary),
        ledger=_html_ledger(summary),
    )
    path = summary.folder / HTML
    write_whole(path, page)
    return path


def ledger_table(summary: Summary) -> list[list[str]]:
    """What the trials of each kind cost, in rows of cells; the first row is the header."""
    costs = ledger.of_study(summary.rows)
    phases = [name for name in ledger.PHASES if name in costs["all"].seconds]
    spent = [f"{name.replace('_', ' ')} (s)" for name in phases]
    cells = [["trials", "number", *spent, "GPU-hours", "energy (kWh)"]]
    for kind, cost in costs.items():
        seconds = [f"{cost.seconds.get(name, 0.0):.1f}" for name in phases]
        energy = "" if cost.energy_kwh is None else f"{cost.energy_kwh:.4g}"
        cells.append([kind, str(cost.trials), *seconds, f"{cost.gpu_hours:.4g}", energy])
    return cells


def ranked(summary: Summary) -> list[Row]:
    """All trials: the completed ones best first, then the others by number."""
    top = summary.top(len(summary.rows))
    placed = {row.number for row in top}
    return top + sorted((row for row in summary.rows if row.number not in placed), key=lambda row: row.number)


def parameters(summary: Summary) -> list[str]:
    """Every parameter that was swept in some trial."""
    return list(dict.fromkeys(name for row in summary.rows for name in row.params))


def _headline(summary: Summary) -> list[str]:
    states = [f"{count} {state.replace('_', ' ')}" for state in State if (count := summary.count(state))]
    lines = [f"**{len(summary.rows)} trials**: {', '.join(states) or 'none was started'}."]
    if best := summary.best():
        values = zip(summary.objective, best.objective, summary.directions, strict=True)
        shown = ", ".join(f"{name} {value:.6g} ({direction}d)" for name, value, direction in values)
        lines.append(f"**Best: trial {best.number}**, {best.name}: {shown}.")
    return lines


def _tail(summary: Summary) -> str:
    return f"Slots that stood empty while the last trials ran: {ledger.tail_s(summary.rows):.1f} s."


def _cells(row: Row, params: Iterable[str], objectives: int) -> list[str]:
    values = [_text(row.params[name]) if name in row.params else "" for name in params]
    objective = [_text(value) for value in row.objective] or [""] * objectives
    return [str(row.number), *values, *objective, row.state.replace("_", " ")]


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _csv(summary: Summary) -> str:
    params = parameters(summary)
    metrics = list(dict.fromkeys(name for row in summary.rows for name in row.metrics))
    metrics = [name for name in metrics if name not in summary.objective]
    costs = {row.number: ledger.of_trial(row) for row in summary.rows}
    spent = [*(f"seconds_{name}" for name in ledger.PHASES), "gpu_hours", "energy_kwh"]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["trial", "state", *params, *summary.objective, *metrics, *spent, "attempts", "error", "folder"])
    for row in sorted(summary.rows, key=lambda row: row.number):
        cost = costs[row.number]
        cells = [row.number, row.state, *(row.params.get(name, "") for name in params)]
        cells += row.objective or [""] * len(summary.objective)
        cells += [row.metrics.get(name, "") for name in metrics]
        cells += [round(cost.seconds.get(name, 0.0), 3) for name in ledger.PHASES]
        cells += [cost.gpu_hours, "" if cost.energy_kwh is None else cost.energy_kwh]
        table.writerow([*cells, len(row.attempts), row.error, row.folder])
    return text.getvalue()


def _html_table(summary: Summary) -> str:
    rows, params = ranked(summary), parameters(summary)
    header = ["trial", *params, *summary.objective, "state", "training (s)", "error"]
    lines = [_html_row(header, "th")]
    for row in rows[:_ROWS_IN_HTML]:
        seconds = f"{ledger.of_trial(row).seconds.get('training', 0.0):.1f}" if row.attempts else ""
        cells = [*_cells(row, params, len(summary.objective)), seconds, row.error.strip().partition("\n")[0]]
        lines.append(_html_row(cells, "td", row.state))
    more = f"<p>The first {_ROWS_IN_HTML} of {len(rows)} trials; all of them are in {CSV}.</p>"
    return f"<table>{''.join(lines)}</table>" + (more if len(rows) > _ROWS_IN_HTML else "")


def _html_ledger(summary: Summary) -> str:
    header, *costs = ledger_table(summary)
    lines = [_html_row(header, "th"), *(_html_row(cells, "td", "cost") for cells in costs)]
    return f"<table>{''.join(lines)}</table><p>{_tail(summary)}</p>"


def _html_row(cells: Iterable[str], tag: str, kind: str = "") -> str:
    shown = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f'<tr class="{kind}">{shown}</tr>'


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; color: #222 }}
h1 {{ font-size: 1.5em }} h2 {{ font-size: 1.15em; margin-top: 2em }} p {{ margin: .3em 0 }}
table {{ border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums }}
th, td {{ text-align: left; padding: .3em 1em .3em 0; border-bottom: 1px solid #e4e4e4 }}
tr.completed:nth-child(2) {{ font-weight: 600 }} tr:not(.completed, .cost) td {{ color: #999 }}
</style></head><body>
<h1>{title}</h1>
{headline}
{figures}
<h2>Trials</h2>
{table}
<h2>What it cost</h2>
{ledger}
</body></html>
"""
