"""The report of a study: trials.csv, report.html, and a short Markdown text."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweeps.analysis.costs import COSTS, of_trial, real_time_s
from sweeps.base.files import write_whole
from sweeps.base.wording import duration, text
from sweeps.record.study import MIN_FOR_IMPORTANCE, StudySnapshot, TrialRecord
from sweeps.show import configurations, notes, overview, tables
from sweeps.show.figures import figures
from sweeps.show.figures.classes import CLASSES, build_table
from sweeps.show.figures.curves import curve_metric
from sweeps.show.figures.drawing import Figures
from sweeps.show.figures.figure_data import FigureData, kind_of
from sweeps.show.findings import Findings, findings_of
from sweeps.show.page import page, scaling_page
from sweeps.show.page.page import Section
from sweeps.show.raw_table import render_csv
from sweeps.show.tables import CSV, HTML, Paragraph, Part, Table, parts_as_html
from sweeps.show.trials import TrialFiles
from sweeps.trial.job import State

_ROWS_IN_MARKDOWN = 25
# characters, because MLflow cuts after 8000, and masking a password may lengthen it
_MOST_IN_MARKDOWN = 7800
_ROWS_IN_HTML = 1000
_ROWS_READ_LIVE = 200
_USUAL = ("accuracy", "epoch_time")  # metrics in the table of trials, beside the objectives
_WIDE = {"Parameters and objective", "Slices", "Timeline", "Resources"}


def markdown(study: StudySnapshot | Findings, picture: str = "") -> str:
    """Return the study's MLflow note: counts, a picture (Markdown), the best trials, costs and
    scaling."""
    findings = findings_of(study)
    trials = findings.ranked[:_ROWS_IN_MARKDOWN]
    parts: list[Part] = [
        Paragraph("\n".join(line.markdown for line in _headline(findings))),
        Paragraph(picture),
    ]
    line = configurations.describe_best_configuration(findings)
    parts += [
        part for part in configurations.build_parts(findings, _ROWS_IN_MARKDOWN) if part != line
    ]
    # because errors are long
    parts.append([cells[:-2] for cells in _build_table(findings, trials)])
    parts += [_count_shown(findings, trials), Paragraph("", figures.COST), *_build_costs(findings)]
    if findings.scaling:
        parts += [Paragraph("", "Scaling"), *scaling_page.build_parts(findings.scaling)]
    return tables.as_note(
        [part for part in parts if part != Paragraph("")], _MOST_IN_MARKDOWN, f"The rest: {HTML}."
    )


def write(study: StudySnapshot | Findings, files: TrialFiles | None = None) -> Path:
    """Write trials.csv and report.html into the study's folder, and return the path of report.html.

    `files` are those of the trials that a `LivePage` has already read.
    """
    findings = findings_of(study)
    folder = findings.study.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / CSV, render_csv(findings))
    files = files or TrialFiles(findings.study.objective)
    files.look(findings)
    write_whole(folder / HTML, _render_page(findings, files))
    return folder / HTML


def render_without_logs(findings: Findings) -> str:
    """Return the page of a study without the last lines of its trials' logs."""
    files = TrialFiles(findings.study.objective, shows_logs=False)
    files.look(findings)
    return _render_page(findings, files)


def write_live(
    study: StudySnapshot, files: TrialFiles, again_s: float, patience_s: float = math.inf
) -> None:
    """Write the page of a running study. The page reloads itself and expects the next writing after
    `again_s`.

    New lines of the `files` are read for at most `patience_s`. With more than 200 trials, notes,
    scaling and who pruned trials are left out until the study ends, because they need the files of
    all trials.
    """
    findings = Findings(study, reads_all=len(study.rows) <= _ROWS_READ_LIVE)
    files.look(findings, patience_s)
    write_whole(study.folder / HTML, _render_page(findings, files, again_s), sync=False)


def _render_page(findings: Findings, files: TrialFiles, again_s: float = 0.0) -> str:
    if (study := files.filled(findings.study)) is not findings.study:
        findings = replace(findings, study=study, origin=findings)
    curves = files.curves()
    figures_by_title = figures.build_figures(FigureData(findings, curves, files.usage()))
    cost_figures = figures_by_title.pop(figures.COST, {})
    scaling_figures = figures_by_title.pop(figures.SCALING, {})
    sections = overview.build_sections(findings, files)
    sections += _build_sections(findings, figures_by_title, running=again_s > 0)
    if parts := configurations.build_parts(findings, most=_ROWS_IN_HTML):
        sections.append(Section("Configurations", html=parts_as_html(parts)))
    if study.rows:
        sections.append(Section("Trials", html=_render_table(findings)))
        sections.append(Section(figures.COST, cost_figures, parts_as_html(_build_costs(findings))))
    if findings.scaling:
        sections.append(scaling_page.build_section(findings.scaling, scaling_figures))
    data = {
        "written": int(time.time() * 1000),
        "again_s": again_s,
        "metric": curve_metric(study, curves),
    }
    data |= files.as_data(findings)
    return page.render_page(study.name, sections, data, overview.render_status(study, again_s > 0))


def _build_sections(
    findings: Findings, figures_by_title: dict[str, Figures], running: bool
) -> list[Section]:
    """Return a section for each group of figures. Two narrow sections share a row; an odd last one
    is wide."""
    narrow = [title for title in figures_by_title if title not in _WIDE]
    wide = _WIDE.union(narrow[-1:] if len(narrow) % 2 else [])
    sections: list[Section] = []
    for title, group in figures_by_title.items():
        key = "" if sections else overview.render_key(findings)
        saved_model = findings.saved_model if title == CLASSES else None
        below = tables.as_html(build_table(saved_model[1])) if saved_model else ""
        sections.append(Section(title, group, below, wide=title in wide, before=key))
    lacks_importance = (
        "Importance" not in figures_by_title and len(figures_by_title.get("Slices", [])) > 1
    )
    if (
        lacks_importance
        and findings.study.searched
        and (reason := _explain_no_importance(findings.study, running))
    ):
        sections[-1] = replace(sections[-1], html=Paragraph(reason).html)
    return sections


def _explain_no_importance(study: StudySnapshot, running: bool) -> str:
    completed = study.count(State.COMPLETED)
    if completed < MIN_FOR_IMPORTANCE:
        return (
            f"Importance is computed from {MIN_FOR_IMPORTANCE} completed trials on; there are"
            f" {completed}."
        )
    return (
        "Importance is computed from the second minute on; beyond 200 trials, at the end."
        if running
        else ""
    )


def _render_table(findings: Findings) -> str:
    trials = findings.ranked[:_ROWS_IN_HTML]
    table = _build_table(findings, trials)
    column = table[0].index("state")
    for trial, cells in zip(trials, table[1:], strict=False):
        cells[column] = f"{overview.MARKS[kind_of(trial)]} {cells[column]}"
    notes_below = len(table) - 1 - len(trials)
    rendered = tables.as_html(table, [*(trial.number for trial in trials), *[None] * notes_below])
    count = _count_shown(findings, trials)
    return rendered + count.html if count.rest else rendered


def _build_table(findings: Findings, trials: Sequence[TrialRecord]) -> Table:
    """Return a row for each trial, and below them a row for each note that is numbers."""
    note_rows = notes.numbers(findings.notes)
    names = dict.fromkeys(name for note in note_rows.values() for name in note)
    table = findings.table(trials)
    blank = [""] * (len(table[0]) - 1)
    usual = [
        name
        for name in _USUAL
        if name not in findings.study.objective and any(name in t.metrics for t in trials)
    ]
    uses_gpus = any(trial.gpu_use is not None for trial in trials)
    table[0] += [*usual, *names, "state", "training (s)", *["GPU use (%)"] * uses_gpus, "error"]
    for cells, trial in zip(table[1:], trials, strict=True):
        cells += [text(trial.metrics.get(name, "")) for name in (*usual, *names)]
        cost = of_trial(trial)
        seconds = f"{cost['seconds/training']:.1f}" if "seconds/training" in cost else ""
        use = "" if trial.gpu_use is None else f"{trial.gpu_use:.0f}"
        cells += [
            trial.state.replace("_", " "),
            seconds,
            *[use] * uses_gpus,
            trial.error.strip().partition("\n")[0],
        ]
    for subject, note in note_rows.items():
        values = [text(note.get(name, "")) for name in names]
        table.append([subject, *blank, *[""] * len(usual), *values, *[""] * (3 + uses_gpus)])
    return table


def _count_shown(findings: Findings, trials: Sequence[TrialRecord]) -> Paragraph:
    """Return how many of all trials are shown; an empty paragraph if all of them are."""
    total = len(findings.study.rows)
    shows_all = len(trials) == total
    return Paragraph(
        "" if shows_all else f"The first {len(trials)} of {total} trials; all of them are in {CSV}."
    )


def _build_costs(findings: Findings) -> list[Part]:
    """Return a table of costs by state of the trials, and the time of idle slots."""
    costs = findings.costs
    names = ["trials", *(name for name in COSTS if name in costs.get("all", {}))]
    table: Table = [["", *(name.removeprefix("seconds/").replace("_", " ") for name in names)]]
    for kind, cost in costs.items():
        table.append(
            [kind, *(_format_cost(name, cost[name]) if name in cost else "" for name in names)]
        )
    sums = (
        f"Idle slots while the last trials ran: {duration(findings.tail_s)}. Times are h:min:s,"
        " summed over trials."
    )
    if elapsed_s := real_time_s(findings.study.rows):
        sums = f"Real time in which trials ran: {duration(elapsed_s)}. {sums}"
    return [table, Paragraph(sums), *_build_efficiency(findings)]


def _build_efficiency(findings: Findings) -> list[Part]:
    """Return a table of the use of each requested resource, and advice; nothing if no request was
    recorded."""
    uses, advice = findings.efficiency
    rows = [
        [f"{use.name} ({use.unit})", *(text(v, 4) for v in (use.requested, use.median, use.worst))]
        for use in uses
    ]
    parts: list[Part] = (
        [[["used by a trial", "requested", "median", "worst"], *rows]] if rows else []
    )
    return parts + [Paragraph(str(line)) for line in advice]


def _format_cost(name: str, value: float) -> str:
    return duration(value) if name.startswith("seconds/") else text(value, digits=4)


def _headline(findings: Findings) -> list[Paragraph]:
    study = findings.study
    states = [
        f"{count} {state.replace('_', ' ')}" for state in State if (count := study.count(state))
    ]
    counts = Paragraph(f": {', '.join(states) or 'none has started'}.", f"{len(study.rows)} trials")
    line = configurations.describe_best(findings)
    return [counts, *([line] if line else []), *notes.paragraphs(findings.notes)]
