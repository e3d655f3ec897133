"""A study to read afterwards: trials.csv, report.html (one file, also offline), and a short Markdown."""

import csv
import io
from operator import attrgetter
from pathlib import Path
from typing import Any

from sweeps.files import write_whole
from sweeps.results import groups, ledger, notes, scaling, scaling_page, tables
from sweeps.results.figures import as_html
from sweeps.results.scaling import Scaling
from sweeps.results.summary import Row, Summary, parameters, text
from sweeps.results.tables import Part, Table
from sweeps.trial.folder import Note
from sweeps.trial.job import State

CSV, HTML = "trials.csv", "report.html"
_ROWS_IN_MARKDOWN = 25
_MOST_IN_MARKDOWN = 7900  # characters: MLflow cuts after 8000, and a password may have become longer stars
_ROWS_IN_HTML = 1000


def markdown(summary: Summary) -> str:
    """What an MLflow note holds: the outcome, trials, best first, costs, and how the study scales."""
    return _short(summary, notes.of_study(summary.rows), scaling.of_study(summary))


def write(summary: Summary, measured: Scaling | None = None) -> Path:
    """Write trials.csv and report.html into the study's folder, and return the path of the latter.

    The page ends with what was `measured` of a study that scales. `summary.note` is then what `markdown` makes.
    """
    summary.folder.mkdir(parents=True, exist_ok=True)
    write_whole(summary.folder / CSV, _csv(summary))
    rows, noted = ranked(summary)[:_ROWS_IN_HTML], notes.of_study(summary.rows)
    figures, measured = as_html(summary), measured or scaling.of_study(summary)
    parts = [tables.paragraphs(_headline(summary, noted)), figures]
    grouped = groups.parts(summary, most=_ROWS_IN_HTML)
    parts += ["<h2>Configurations</h2>"] if grouped else []
    parts += [tables.paragraphs([part]) if isinstance(part, str) else tables.as_html(part) for part in grouped]
    parts += ["<h2>Trials</h2>", f"{tables.as_html(_trials(summary, rows, noted))}<p>{_others(summary, rows)}</p>"]
    parts += ["<h2>What it cost</h2>", f"{tables.as_html(_costs(summary))}<p>{_tail(summary)}</p>"]
    parts += [scaling_page.section(measured, script=not figures)] if measured else []
    path = summary.folder / HTML
    write_whole(path, tables.page(summary.name, "\n".join(parts)))
    summary.note = _short(summary, noted, measured)
    return path


def _short(summary: Summary, noted: dict[str, Note], measured: Scaling | None) -> str:
    rows = ranked(summary)[:_ROWS_IN_MARKDOWN]
    trials = [cells[:-2] for cells in _trials(summary, rows, noted)]  # errors are long
    parts: list[Part] = ["\n".join(_headline(summary, noted))]
    parts += [part for part in groups.parts(summary, most=_ROWS_IN_MARKDOWN) if part != groups.headline(summary)]
    parts += [trials, _others(summary, rows)]
    parts += ["**What it cost**", _costs(summary), _tail(summary)]
    parts += ["**Scaling**", *scaling_page.parts(measured)] if measured else []
    return tables.as_note([part for part in parts if part], _MOST_IN_MARKDOWN, f"The rest: {HTML}.")


def ranked(summary: Summary) -> list[Row]:
    """All trials: the completed ones best first, then the others by number."""
    top = summary.top()
    placed = {row.number for row in top}
    return top + sorted((row for row in summary.rows if row.number not in placed), key=attrgetter("number"))


def _trials(summary: Summary, rows: list[Row], noted: dict[str, Note]) -> Table:
    """One line each; below them the numbers that they noted to be seen beside."""
    beside = {subject: note for subject, note in noted.items() if isinstance(note, dict)}
    names = dict.fromkeys(name for note in beside.values() for name in note)
    table = summary.table(rows)
    results = len(table[0])
    table[0] += [*names, "state", "training (s)", "error"]
    for cells, row in zip(table[1:], rows, strict=True):
        cells += [text(row.metrics.get(name, "")) for name in names]
        seconds = ledger.of_trial(row).get("seconds/training", 0.0)
        cells += [row.state.replace("_", " "), f"{seconds:.1f}", row.error.strip().partition("\n")[0]]
    for subject, note in beside.items():
        table.append([subject, *[""] * (results - 1), *(text(note.get(name, "")) for name in names), "", "", ""])
    return table


def _others(summary: Summary, shown: list[Row]) -> str:
    if len(shown) == len(summary.rows):
        return ""
    return f"The first {len(shown)} of {len(summary.rows)} trials; all of them are in {CSV}."


def _costs(summary: Summary) -> Table:
    """What the trials of each kind cost."""
    costs = ledger.of_study(summary.rows)
    names = ["trials", *(name for name in ledger.COSTS if name in costs.get("all", {}))]
    header = [name.replace("/", " ").replace("_", " ") for name in names]
    lines = [[text(cost[name], digits=4) if name in cost else "" for name in names] for cost in costs.values()]
    return [["", *header], *([kind, *line] for kind, line in zip(costs, lines, strict=True))]


def _headline(summary: Summary, noted: dict[str, Note]) -> list[str]:
    states = [f"{count} {state.replace('_', ' ')}" for state in State if (count := summary.count(state))]
    lines = [f"**{len(summary.rows)} trials**: {', '.join(states) or 'none was started'}."]
    if front := summary.front():
        shown = ", ".join(str(row.number) for row in summary.top(len(front)))
        goals = ", ".join(f"{n} ({d}d)" for n, d in zip(summary.objective, summary.directions, strict=True))
        lines.append(f"**The answer: trials {shown}**, which no other dominates in {goals}.")
    elif of_seeds := groups.headline(summary):
        lines.append(of_seeds)
    elif best := summary.best():
        values = zip(summary.objective, best.objective, summary.directions, strict=True)
        shown = ", ".join(f"{name} {value:.6g} ({direction}d)" for name, value, direction in values)
        lines.append(f"**Best: trial {best.number}**, {best.name}: {shown}.")
    said = {subject: note for subject, note in noted.items() if not isinstance(note, dict)}
    return lines + [f"**{subject}**: {notes.text_of(note)}" for subject, note in said.items()]


def _tail(summary: Summary) -> str:
    return f"Slots that stood empty while the last trials ran: {ledger.tail_s(summary.rows):.1f} s."


def cells(summary: Summary) -> list[list[Any]]:
    """All that is known of each trial, by number. The first row is the header; what a trial lacks is None."""
    params = parameters(summary.rows)
    metrics = dict.fromkeys(name for row in summary.rows for name in row.metrics if name not in summary.objective)
    spent = [name.replace("/", "_") for name in ledger.COSTS]
    table: list[list[Any]] = [
        ["trial", "state", *params, *summary.objective, *metrics, *spent, "attempts", "error", "folder"]
    ]
    for row in sorted(summary.rows, key=attrgetter("number")):
        cost = ledger.of_trial(row)
        found = [row.number, str(row.state), *(row.params.get(name) for name in params)]
        found += row.objective or [None] * len(summary.objective)
        found += [row.metrics.get(name) for name in metrics]
        found += [cost.get(name) for name in ledger.COSTS]
        table.append([*found, len(row.attempts), row.error, str(row.folder)])
    return table


def _csv(summary: Summary) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(cells(summary))
    return written.getvalue()
