"""The first sections of a study's page: its status, its best trials, the errors of trials, and how
to reproduce it."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from sweeps.analysis.no_result import explain_no_result
from sweeps.base.files import CorruptFile, read_json
from sweeps.base.secrets import mask_value, without_password
from sweeps.base.wording import LONGEST, short, text
from sweeps.record.study import StudySnapshot, TrialRecord, by_failure_signature
from sweeps.record.study_file import sweeps_line
from sweeps.record.trial_config import shared_settings
from sweeps.show import configurations, notes, steering
from sweeps.show.figures.figure_data import kind_of
from sweeps.show.findings import Findings, count_states
from sweeps.show.markup import fill
from sweeps.show.page.page import Section
from sweeps.show.tables import CSV, Paragraph, parts_as_html
from sweeps.show.trials import TrialFiles
from sweeps.trial.job import Point, State

MARKS = {
    "completed": "●",
    "pruned": "▼",
    "paused": "◇",
    "failed": "✖",
    "running": "○",
    "queued": "□",
    "not started": "·",
}
_MOST_NAMED = 30
_MOST_REASONS = 20


def build_sections(findings: Findings, files: TrialFiles) -> list[Section]:
    """Return the sections on the study's status, its best trials, and the errors, if there are
    any."""
    changes = parts_as_html(steering.paragraphs(findings.steering))
    status = Section("Status", html=_render_counts(findings.study) + changes, wide=False)
    errors = _build_errors(findings.study, files)
    return [status, _build_best(findings), *errors, _build_reproduction(findings)]


def render_key(findings: Findings) -> str:
    """Return the key of the figures' marks as HTML."""
    kinds = {kind_of(trial) for trial in findings.study.rows}
    marks = [(kind, mark) for kind, mark in MARKS.items() if kind in kinds]
    return fill("key", marks, bool(findings.top))


def render_status(study: StudySnapshot, running: bool) -> str:
    """Return whether the study is running, finished or stopped, and the time, as HTML."""
    over = study.done or study.total is None or study.over() >= study.total
    state = "finished" if over else "stopped"
    if study.all_failed:
        state = "failed"
    # because another driver, or jobs without one, may run trials
    if running or study.count(State.RUNNING):
        state = "running"
    return fill("status", state, time.strftime("%Y-%m-%d %H:%M:%S %Z"))


def count_kinds(study: StudySnapshot) -> dict[str, dict[str, int]]:
    """Return the number of trials by the kind of their mark and by state. The counts add up to the
    study's total."""
    kind_by_state = {trial.state.value: kind_of(trial) for trial in study.rows}
    kinds: dict[str, dict[str, int]] = {kind: {} for kind in MARKS}
    for state, count in count_states(study).items():
        kinds[kind_by_state.get(state, state)][state.replace("_", " ")] = count
    return {kind: counts for kind, counts in kinds.items() if counts}


def _render_counts(study: StudySnapshot) -> str:
    kinds = count_kinds(study)
    total = sum(sum(counts.values()) for counts in kinds.values())
    if not total:
        return Paragraph("No trial has started.").html
    counts = fill("counts", kinds, MARKS, study.over(), total)
    return counts + Paragraph(f"Done: {study.done}.").html if study.done else counts


def _build_best(findings: Findings) -> Section:
    answer = findings.answer
    line = configurations.describe_best_configuration(findings)
    lines = [line] if line else []
    body = _render_best(findings) + parts_as_html([*lines, *notes.paragraphs(findings.notes)])
    if not body:
        reason, advice = explain_no_result(findings.study)
        text = f"No trial has a result: {reason}. {advice}." if reason else "No trial has a result."
        body = Paragraph(text if findings.study.over() else "No trial has ended yet.").html
    title = "Best configuration" if answer.best_configuration else "Best trial"
    return Section("Best trials" if answer.front else title, html=body, wide=False)


def _build_reproduction(findings: Findings) -> Section:
    """Return the commands of the study, and what else its trials share: commit, fixed settings and
    files."""
    study = findings.study
    page = _read_mlflow_page(study.folder)
    lines = {
        "the study": study.command,
        "its best trial": study.best_command if findings.answer.best_trial else "",
        "in MLflow": sweeps_line("ui", study.folder) if page == "" else "",
    }
    shared = shared_settings(study)
    settings = [(None, [name, mask_value(name, value)]) for name, value in shared.items()]
    commit = read_commit(study.folder)
    html = fill("reproduction", lines, page, str(Path.cwd()), commit, CSV, settings)
    return Section("Reproduce", html=html)


def _read_mlflow_page(study: Path) -> str | None:
    """Return the address of the study's page on an MLflow server; "" if MLflow is a file, None
    without MLflow."""
    file = study / "tracking.json"
    if not file.exists():
        return None
    page = ""
    with suppress(CorruptFile, OSError):
        page = str((read_json(file) or {}).get("page", ""))
    return page if page.startswith(("http://", "https://")) else ""


def read_commit(study: Path) -> str:
    """Return the commit of the newest code that the trials ran; "" if it is unknown."""
    with suppress(CorruptFile, OSError):
        copies = [path for path in study.glob("code/*/code.json") if path.parent.name.isdecimal()]
        for newest in sorted(copies, key=lambda path: int(path.parent.name))[-1:]:
            return str((read_json(newest) or {}).get("commit", ""))
    return ""


def _render_best(findings: Findings) -> str:
    """Return the Pareto front, the best configuration or the best trial in large letters."""
    study = findings.study
    answer = findings.answer
    goal = study.objective[0], study.directions[0]
    if answer.front:
        objectives = configurations.describe_objectives(study)
        return fill("front", answer.front, _MOST_NAMED, objectives)
    if best := answer.best_configuration:
        return fill("best", f"{fmean(best.values):.6g}", *goal, None, _chips(best.params))
    if trial := answer.best_trial:
        value = f"{trial.objective[0]:.6g}"
        return fill("best", value, *goal, trial.number, _chips(trial.params))
    return ""


def _chips(params: Point) -> list[tuple[str, str]]:
    return [(name.lstrip("+"), short(text(value), LONGEST)) for name, value in params.items()]


def _build_errors(study: StudySnapshot, files: TrialFiles) -> list[Section]:
    """Return a section with the errors of failed and infeasible trials, each error once with its
    trials."""
    failed = (trial for trial in study.rows if trial.state.is_bad or trial.infeasible)
    reasons = sorted(by_failure_signature(failed), key=len, reverse=True)
    if not reasons:
        return []
    groups = [_describe_error(trials, files) for trials in reasons[:_MOST_REASONS]]
    all_failed = len(study.bad()) == len(study.rows)
    groups[0]["opened"] = all_failed
    others = len(reasons) - _MOST_REASONS
    html = fill("errors", groups, MARKS["failed"], _MOST_NAMED, others)
    title = "Every trial failed" if all_failed and len(study.rows) > 1 else "Errors"
    return [Section(title, html=html, kind="failures")]


def _describe_error(trials: Sequence[TrialRecord], files: TrialFiles) -> dict[str, Any]:
    """Return the error that these trials share, with the end of the first trial's log."""
    first = trials[0]
    # without passwords before they are cut, because half a password would not be recognized
    reason, _, rest = without_password(first.error.strip()).partition("\n")
    return {
        "trials": trials,
        "state": first.failure_signature[0],
        "reason": reason[:600],
        "rest": rest[:1500],
        "log": "\n".join(files.log_end(first)),
    }
