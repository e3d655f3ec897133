"""A study to read: trials.csv, report.html, and a short Markdown."""

import csv
import io
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from sweeps.files import write_whole
from sweeps.record.costs import COSTS, of_trial
from sweeps.record.study import MIN_FOR_IMPORTANCE, StudySnapshot, TrialRecord, parameters
from sweeps.results import configurations, figures, notes, overview, page, scaling_page, tables
from sweeps.results.drawing import Figures
from sweeps.results.figure_data import kind_of
from sweeps.results.findings import Findings, findings_of
from sweeps.results.page import Section
from sweeps.results.tables import Paragraph, Part, Table, parts_as_html
from sweeps.results.trials import Trials
from sweeps.secrets import without_password
from sweeps.trial.job import State
from sweeps.wording import text

CSV, HTML = "trials.csv", "report.html"
_ROWS_IN_MARKDOWN = 25
_MOST_IN_MARKDOWN = 7800  # characters: MLflow cuts after 8000; stars for a password are longer
_ROWS_IN_HTML = 1000
_ROWS_READ_LIVE = 200
_WIDE = {"Parameters and objective", "Slices"}


def markdown(study: StudySnapshot | Findings, picture: str = "") -> str:
    """What an MLflow note holds: the outcome, a picture (Markdown), trials, best first, costs, and how it scales."""
    findings = findings_of(study)
    rows = findings.ranked[:_ROWS_IN_MARKDOWN]
    parts: list[Part] = [Paragraph("\n".join(line.markdown for line in _headline(findings))), Paragraph(picture)]
    line = configurations.of_seeds(findings)
    parts += [part for part in configurations.parts(findings, _ROWS_IN_MARKDOWN) if part != line]
    parts.append([cells[:-2] for cells in _trials(findings, rows)])  # errors are long
    parts += [_others(findings, rows), Paragraph("", figures.COST), *_costs(findings)]
    if findings.scaling:
        parts += [Paragraph("", "Scaling"), *scaling_page.build_parts(findings.scaling)]
    return tables.as_note([part for part in parts if part != Paragraph("")], _MOST_IN_MARKDOWN, f"The rest: {HTML}.")


def write(study: StudySnapshot | Findings, trials: Trials | None = None) -> Path:
    """Write trials.csv and report.html into the study's folder, and return the path of the latter.

    `trials` are what was read already of what its trials left, as a `LivePage` has them.
    """
    findings = findings_of(study)
    folder = findings.study.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / CSV, _csv(findings.study))
    trials = trials or Trials(findings.study.objective)
    trials.look(findings)
    write_whole(folder / HTML, _page(findings, trials))
    return folder / HTML


def write_live(study: StudySnapshot, trials: Trials, again_s: float, patience_s: float = math.inf) -> None:
    """Write the page of a study that runs, which looks for itself anew and expects that to be again after `again_s`.

    `trials` are known from the time before, and read on for `patience_s`. Of many, notes and scaling, for which all
    files are read, wait for the end.
    """
    findings = Findings(study, reads_all=len(study.rows) <= _ROWS_READ_LIVE)
    trials.look(findings, patience_s)
    write_whole(study.folder / HTML, _page(findings, trials, again_s), sync=False)


def _page(findings: Findings, trials: Trials, again_s: float = 0.0) -> str:
    if (study := trials.filled(findings.study)) is not findings.study:
        findings = replace(findings, study=study, origin=findings)
    curves = trials.curves()
    drawn = figures.build_figures(findings, curves)
    spent = drawn.pop(figures.COST, {})
    sections = [*overview.sections(findings, trials), *_pictures(findings, drawn, running=again_s > 0)]
    if grouped := configurations.parts(findings, most=_ROWS_IN_HTML):
        sections.append(Section("Configurations", html=parts_as_html(grouped)))
    if study.rows:
        sections.append(Section("Trials", html=_trials_as_html(findings)))
        sections.append(Section(figures.COST, spent, parts_as_html(_costs(findings))))
    if findings.scaling:
        sections.append(scaling_page.build_section(findings.scaling))
    data = {"written": int(time.time() * 1000), "again_s": again_s, "metric": figures.curve_metric(study, curves)}
    data |= trials.as_data(findings)
    return page.render_page(study.name, sections, data, overview.status(study, again_s > 0))


def _pictures(findings: Findings, drawn: dict[str, Figures], running: bool) -> list[Section]:
    """A section for each figure, or those that are alike. Those that are not wide stand two beside each other."""
    missing = _no_importance(findings.study, running)
    lacks = "Importance" not in drawn and findings.study.searched and len(drawn.get("Slices", [])) > 1
    narrow = [title for title in drawn if title not in _WIDE]
    alone = narrow[-1:] if len(narrow) % 2 else []
    sections = []
    for i, (title, shown) in enumerate(drawn.items()):
        below = Paragraph(missing).html if lacks and missing and i == len(drawn) - 1 else ""
        key = overview.key(findings) if i == 0 else ""
        sections.append(Section(title, shown, below, wide=title in _WIDE or title in alone, before=key))
    return sections


def _no_importance(study: StudySnapshot, running: bool) -> str:
    few = study.count(State.COMPLETED)
    if few >= MIN_FOR_IMPORTANCE:
        when = "from the second minute on, of more than 200 trials at the end"
        return f"How much each parameter matters is told {when}." if running else ""
    return f"How much each parameter matters is told from {MIN_FOR_IMPORTANCE} completed trials on; there are {few}."


def _trials_as_html(findings: Findings) -> str:
    rows = findings.ranked[:_ROWS_IN_HTML]
    table = _trials(findings, rows)
    at = table[0].index("state")
    for row, cells in zip(rows, table[1:], strict=False):
        cells[at] = f"{overview.MARKS[kind_of(row)]} {cells[at]}"
    below = len(table) - 1 - len(rows)
    shown = tables.as_html(table, [*(row.number for row in rows), *[None] * below])
    others = _others(findings, rows)
    return shown + others.html if others.rest else shown


def _trials(findings: Findings, rows: Sequence[TrialRecord]) -> Table:
    """One line each; below them the numbers that they noted to be seen beside."""
    beside = {subject: note for subject, note in findings.notes.items() if isinstance(note, dict)}
    names = dict.fromkeys(name for note in beside.values() for name in note)
    table = findings.table(rows)
    results = len(table[0])
    table[0] += [*names, "state", "training (s)", "error"]
    for cells, row in zip(table[1:], rows, strict=True):
        cells += [text(row.metrics.get(name, "")) for name in names]
        cost = of_trial(row)
        seconds = f"{cost['seconds/training']:.1f}" if "seconds/training" in cost else ""
        cells += [row.state.replace("_", " "), seconds, row.error.strip().partition("\n")[0]]
    for subject, note in beside.items():
        table.append([subject, *[""] * (results - 1), *(text(note.get(name, "")) for name in names), "", "", ""])
    return table


def _others(findings: Findings, shown: Sequence[TrialRecord]) -> Paragraph:
    if len(shown) == len(findings.study.rows):
        return Paragraph("")
    return Paragraph(f"The first {len(shown)} of {len(findings.study.rows)} trials; all of them are in {CSV}.")


def _costs(findings: Findings) -> list[Part]:
    """What the trials of each kind cost."""
    costs = findings.costs
    names = ["trials", *(name for name in COSTS if name in costs.get("all", {}))]
    table: Table = [["", *(name.replace("/", " ").replace("_", " ") for name in names)]]
    for kind, cost in costs.items():
        table.append([kind, *(_spent(name, cost[name]) if name in cost else "" for name in names)])
    return [table, Paragraph(f"Slots that stood empty while the last trials ran: {findings.tail_s:.1f} s.")]


def _spent(name: str, value: float) -> str:
    return f"{value:.1f}" if name.startswith("seconds/") else text(value, digits=4)


def _headline(findings: Findings) -> list[Paragraph]:
    study = findings.study
    states = [f"{count} {state.replace('_', ' ')}" for state in State if (count := study.count(state))]
    counts = Paragraph(f": {', '.join(states) or 'none was started'}.", f"{len(study.rows)} trials")
    line = configurations.answer_line(findings)
    return [counts, *([line] if line else []), *notes.paragraphs(findings.notes)]


def cells(study: StudySnapshot) -> list[list[Any]]:
    """All that is known of each trial, by number. The first row is the header; what a trial lacks is None."""
    params = parameters(study.rows)
    metrics = dict.fromkeys(name for row in study.rows for name in row.metrics if name not in study.objective)
    spent = [name.replace("/", "_") for name in COSTS]
    table: list[list[Any]] = [
        ["trial", "state", *params, *study.objective, *metrics, *spent, "attempts", "error", "folder"]
    ]
    for row in sorted(study.rows, key=attrgetter("number")):
        cost = of_trial(row)
        line = [row.number, str(row.state), *(row.params.get(name) for name in params)]
        line += row.objective or [None] * len(study.objective)
        line += [row.metrics.get(name) for name in metrics]
        line += [cost.get(name) for name in COSTS]
        table.append([*line, len(row.attempts), row.error, str(row.folder)])
    return table


def _csv(study: StudySnapshot) -> str:
    written = io.StringIO()
    masked = ([without_password(cell) if isinstance(cell, str) else cell for cell in line] for line in cells(study))
    csv.writer(written, lineterminator="\n").writerows(masked)
    return written.getvalue()
