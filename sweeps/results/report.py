"""A study to read: trials.csv, report.html, and a short Markdown."""

import csv
import io
import time
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from sweeps.files import write_whole
from sweeps.results import figures, groups, ledger, notes, overview, page, scaling, scaling_page, tables
from sweeps.results.page import Section
from sweeps.results.scaling import Scaling
from sweeps.results.seen import kind_of
from sweeps.results.summary import ENOUGH, Row, Summary, parameters, text
from sweeps.results.tables import Part, Table
from sweeps.results.trials import Trials
from sweeps.secrets import without_password
from sweeps.trial.folder import Note
from sweeps.trial.job import State

CSV, HTML = "trials.csv", "report.html"
_ROWS_IN_MARKDOWN = 25
_MOST_IN_MARKDOWN = 7800  # characters: MLflow cuts after 8000; a picture comes before, stars for a password are longer
_ROWS_IN_HTML = 1000
_ROWS_READ_LIVE = 200
_WIDE = {"Parameters and objective", "Slices"}


def markdown(summary: Summary) -> str:
    """What an MLflow note holds: the outcome, trials, best first, costs, and how the study scales."""
    return _short(summary, notes.of_study(summary.rows), scaling.of_study(summary))


def write(summary: Summary, measured: Scaling | None = None) -> Path:
    """Write trials.csv and report.html into the study's folder, and return the path of the latter.

    The page ends with what was `measured` of a study that scales. `summary.note` is then what `markdown` makes.
    """
    summary.folder.mkdir(parents=True, exist_ok=True)
    write_whole(summary.folder / CSV, _csv(summary))
    noted, measured = notes.of_study(summary.rows), measured or scaling.of_study(summary)
    path = summary.folder / HTML
    write_whole(path, _page(summary, Trials(summary), noted, measured))
    summary.note = _short(summary, noted, measured)
    return path


def write_live(summary: Summary, trials: Trials, again_s: float) -> None:
    """Write the page of a study that runs, which looks for itself anew and expects that to be again after `again_s`.

    `trials` are known from the time before. Of many, notes and scaling, for which all files are read, wait for the end.
    """
    few = len(summary.rows) <= _ROWS_READ_LIVE
    noted, measured = (notes.of_study(summary.rows), scaling.of_study(summary)) if few else ({}, None)
    write_whole(summary.folder / HTML, _page(summary, trials, noted, measured, again_s), sync=False)


def _page(
    summary: Summary, trials: Trials, noted: dict[str, Note], measured: Scaling | None, again_s: float = 0.0
) -> str:
    trials.look()
    curves = trials.curves()
    metric = figures.curve_metric(summary, curves)
    data = {"written": int(time.time() * 1000), "again_s": again_s, "metric": metric, **trials.as_data()}
    sections = overview.sections(summary, trials, [line for line in _headline(summary, noted)[1:] if line])
    drawn = figures.of_study(summary, curves)
    spent = drawn.pop(figures.COST, {})
    pictures = [Section(title, found, wide=title in _WIDE) for title, found in drawn.items()]
    if "Importance" not in drawn and summary.searched and len(drawn.get("Slices", [])) > 1:
        pictures[-1].html = tables.paragraphs([_no_importance(summary, running=again_s > 0)])
    narrow = [one for one in pictures if not one.wide]
    for one in narrow[-1:] if len(narrow) % 2 else []:
        one.wide = True  # nothing stands beside it
    sections += [replace(pictures[0], before=overview.key(summary)), *pictures[1:]] if drawn else pictures
    if grouped := groups.parts(summary, most=_ROWS_IN_HTML):
        sections.append(Section("Configurations", html=tables.parts_as_html(grouped)))
    rows = ranked(summary)[:_ROWS_IN_HTML]
    table = _trials(summary, rows, noted)
    at = table[0].index("state")
    for row, cells in zip(rows, table[1:], strict=False):
        cells[at] = f"{overview.MARKS[kind_of(row)]} {cells[at]}"
    shown = tables.as_html(table, [*(row.number for row in rows), *[None] * (len(table) - 1 - len(rows))])
    if rows:
        costs = tables.as_html(_costs(summary)) + tables.paragraphs([_tail(summary)])
        sections.append(Section("Trials", html=shown + tables.paragraphs([_others(summary, rows)])))
        sections.append(Section(figures.COST, spent, costs))
    sections += [scaling_page.section(measured)] if measured else []
    return page.page(summary.name, sections, data, overview.status(summary, again_s > 0))


def _no_importance(summary: Summary, running: bool) -> str:
    few = summary.count(State.COMPLETED)
    if few >= ENOUGH:
        when = "from the second minute on, of more than 200 trials at the end"
        return f"How much each parameter matters is told {when}." if running else ""
    return f"How much each parameter matters is told from {ENOUGH} completed trials on; there are {few}."


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
        cost = ledger.of_trial(row)
        seconds = f"{cost['seconds/training']:.1f}" if "seconds/training" in cost else ""
        cells += [row.state.replace("_", " "), seconds, row.error.strip().partition("\n")[0]]
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
    lines = [[_spent(name, cost[name]) if name in cost else "" for name in names] for cost in costs.values()]
    return [["", *header], *([kind, *line] for kind, line in zip(costs, lines, strict=True))]


def _spent(name: str, value: float) -> str:
    return f"{value:.1f}" if name.startswith("seconds/") else text(value, digits=4)


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
    masked = ([without_password(cell) if isinstance(cell, str) else cell for cell in line] for line in cells(summary))
    csv.writer(written, lineterminator="\n").writerows(masked)
    return written.getvalue()
