"""The report of a study: trials.csv, report.html, and a short Markdown text."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from sweeps.analysis.costs import COSTS, of_trial, real_time_s
from sweeps.base.files import write_whole
from sweeps.base.wording import duration, text
from sweeps.record.study import MIN_FOR_IMPORTANCE, StudySnapshot, TrialRecord, Trials
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
    study = files.filled(findings.study)
    if study is not findings.study:
        findings = replace(findings, study=study, origin=findings)
    is_running = again_s > 0
    curves = files.curves()
    drawn = figures.build_figures(FigureData(findings, curves, files.usage()))
    below = _build_tables(findings, drawn.pop(figures.COST, {}), drawn.pop(figures.SCALING, {}))
    above = overview.build_sections(findings, files)
    sections = [*above, *_build_sections(findings, drawn, is_running), *below]
    data = {
        "written": int(time.time() * 1000),
        "again_s": again_s,
        "metric": curve_metric(study, curves),
        **files.as_data(findings),
    }
    return page.render_page(study.name, sections, data, overview.render_status(study, is_running))


def _build_tables(findings: Findings, costs: Figures, scaling: Figures) -> list[Section]:
    """Return the sections below those of figures, the last two with their figures."""
    sections = []
    parts = configurations.build_parts(findings, most=_ROWS_IN_HTML)
    if parts:
        sections.append(Section("Configurations", html=parts_as_html(parts)))
    if findings.study.rows:
        sections.append(Section("Trials", html=_render_table(findings)))
        sections.append(Section(figures.COST, costs, parts_as_html(_build_costs(findings))))
    if findings.scaling:
        sections.append(scaling_page.build_section(findings.scaling, scaling))
    return sections


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
        below = ""
        if title == CLASSES and findings.saved_model:
            below = tables.as_html(build_table(findings.saved_model[1]))
        sections.append(Section(title, group, below, wide=title in wide, before=key))
    if len(figures_by_title.get("Slices", [])) > 1 and "Importance" not in figures_by_title:
        reason = _explain_no_importance(findings.study, running)
        if reason:
            sections[-1] = replace(sections[-1], html=Paragraph(reason).html)
    return sections


def _explain_no_importance(study: StudySnapshot, running: bool) -> str:
    """Return why the importance of parameters is not shown; "" for a grid."""
    completed = study.count(State.COMPLETED)
    if not study.searched:
        return ""
    if completed < MIN_FOR_IMPORTANCE:
        return (
            f"Importance is computed from {MIN_FOR_IMPORTANCE} completed trials on; there are"
            f" {completed}."
        )
    if running:
        return "Importance is computed from the second minute on; beyond 200 trials, at the end."
    return ""


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


def _build_table(findings: Findings, trials: Trials) -> Table:
    """Return a row for each trial, and below them a row for each note that is numbers."""
    note_rows = notes.numbers(findings.notes)
    metrics = _metrics_beside(findings, trials)
    for note in note_rows.values():
        metrics |= dict.fromkeys(note)
    facts = _fact_columns(trials)
    titles = [f"metric.{name}" if name in facts else name for name in metrics]
    left = findings.table(trials)
    right = tables.build(facts, trials)

    table = [[*left[0], *titles, *right[0]]]
    for trial, first, last in zip(trials, left[1:], right[1:], strict=True):
        table.append([*first, *_metric_cells(trial.metrics, metrics), *last])
    for subject, note in note_rows.items():
        blank = [""] * (len(left[0]) - 1)
        table.append([subject, *blank, *_metric_cells(note, metrics), *[""] * len(facts)])
    return table


def _metrics_beside(findings: Findings, trials: Trials) -> dict[str, None]:
    """Return the usual metrics that trials reported beside the objectives."""
    others = [name for name in _USUAL if name not in findings.study.objective]
    return {name: None for name in others if any(name in trial.metrics for trial in trials)}


def _metric_cells(values: Mapping[str, float], metrics: Iterable[str]) -> list[str]:
    return [text(values.get(name, "")) for name in metrics]


def _fact_columns(trials: Trials) -> dict[str, Callable[[TrialRecord], str]]:
    """Return the cells of the columns right of params and metrics, by title."""
    columns: dict[str, Callable[[TrialRecord], str]] = {
        "state": lambda trial: trial.state.replace("_", " "),
        "training (s)": _training_s,
    }
    if any(trial.gpu_use is not None for trial in trials):
        columns["GPU use (%)"] = _gpu_use
    columns["error"] = lambda trial: trial.error.strip().partition("\n")[0]
    return columns


def _training_s(trial: TrialRecord) -> str:
    training_s = of_trial(trial).get("seconds/training")
    return "" if training_s is None else f"{training_s:.1f}"


def _gpu_use(trial: TrialRecord) -> str:
    return "" if trial.gpu_use is None else f"{trial.gpu_use:.0f}"


def _count_shown(findings: Findings, trials: Trials) -> Paragraph:
    """Return how many of all trials are shown; an empty paragraph if all of them are."""
    total = len(findings.study.rows)
    shows_all = len(trials) == total
    return Paragraph(
        "" if shows_all else f"The first {len(trials)} of {total} trials; all of them are in {CSV}."
    )


def _build_costs(findings: Findings) -> list[Part]:
    """Return a table of costs by state of the trials, and the time of idle slots."""
    names = ["trials", *(name for name in COSTS if name in findings.costs.get("all", {}))]
    table: Table = [["", *(name.removeprefix("seconds/").replace("_", " ") for name in names)]]
    for kind, cost in findings.costs.items():
        cells = [_format_cost(name, cost[name]) if name in cost else "" for name in names]
        table.append([kind, *cells])
    sums = (
        f"Idle slots while the last trials ran: {duration(findings.tail_s)}. The table's times are"
        " summed over trials; all are h:min:s."
    )
    elapsed_s = real_time_s(findings.study.rows)
    if elapsed_s:
        sums = f"Real time in which trials ran: {duration(elapsed_s)}. {sums}"
    return [table, Paragraph(sums), *_build_efficiency(findings)]


def _build_efficiency(findings: Findings) -> list[Part]:
    """Return a table of the use of each requested resource, and advice; nothing if no request was
    recorded."""
    uses, advice = findings.efficiency
    header = ["used by a trial", "requested", "median", "worst"]
    rows = [
        [f"{use.name} ({use.unit})", *(text(v, 4) for v in (use.requested, use.median, use.worst))]
        for use in uses
    ]
    parts: list[Part] = [[header, *rows]] if rows else []
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
