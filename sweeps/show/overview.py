"""The first sections of a study's page: its status, its best trials, the errors of trials, and how
to reproduce it."""

import html
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean

from sweeps.base.files import CorruptFile, read_json
from sweeps.base.secrets import mask_value, without_password
from sweeps.base.wording import LONGEST, counted, short, text
from sweeps.record.study import StudySnapshot, TrialRecord, by_failure_signature
from sweeps.record.study_file import sweeps_line
from sweeps.record.trial_config import shared_settings
from sweeps.show import configurations, notes, steering
from sweeps.show.figures.figure_data import kind_of
from sweeps.show.findings import Findings, count_states
from sweeps.show.page.page import Section
from sweeps.show.tables import CSV, Paragraph, as_html, parts_as_html
from sweeps.show.trials import TrialFiles
from sweeps.trial.job import State

MARKS = {
    "completed": "●",
    "pruned": "▼",
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
    marks = ""
    for kind in filter(kinds.__contains__, MARKS):
        label = "pruned, at its last value" if kind == "pruned" else kind
        marks += f'<span><span class="{kind}">{MARKS[kind]}</span> {label}</span>'
    scale = '<span>best <i class="scale"></i> worst</span>' if findings.top else ""
    return (
        f'<div class="key">{scale}{marks}<span>Click a trial for its values, curve and'
        " log.</span></div>"
    )


def render_status(study: StudySnapshot, running: bool) -> str:
    """Return whether the study is running, finished or stopped, and the time, as HTML."""
    over = study.done or study.total is None or study.over() >= study.total
    # because another driver, or jobs without one, may run trials
    running = running or study.count(State.RUNNING) > 0
    state = "finished" if over else "stopped"
    if study.all_failed:
        state = "failed"
    if running:
        state = "running"
    written = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return (
        f'<p class="status"><b class="{state}">{state}</b> <span id="written">written'
        f' {written}</span> <button id="pause" hidden></button></p>'
    )


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
    bar = legend = ""
    for kind, counts in kinds.items():
        name = kind.replace(" ", "-")
        count = sum(counts.values())
        states = ", ".join(f"{number} {state}" for state, number in counts.items())
        label = f"{kind} ({states})" if len(counts) > 1 else next(iter(counts))
        bar += f'<i class="{name}" style="flex:{count}"></i>'
        legend += (
            f'<li><span class="{name}" aria-hidden="true">{MARKS[kind]}</span> <b>{count}</b>'
            f" {label}"
        )
    title = f'<p class="big"><b>{study.over()}</b> of {total} trial{"s" * (total > 1)} ended</p>'
    done = Paragraph(f"Done: {study.done}.").html if study.done else ""
    return (
        f'{title}<div class="bar" aria-hidden="true">{bar}</div><ul'
        f' class="counts">{legend}</ul>{done}'
    )


def _build_best(findings: Findings) -> Section:
    study = findings.study
    answer = findings.answer
    line = configurations.describe_best_configuration(findings)
    body = _render_best(findings) + parts_as_html(
        [*([line] if line else []), *notes.paragraphs(findings.notes)]
    )
    nothing = "No trial has a result." if study.over() else "No trial has ended yet."
    title = "Best configuration" if answer.best_configuration else "Best trial"
    if answer.front:
        title = "Best trials"
    return Section(title, html=body or Paragraph(nothing).html, wide=False)


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
    words = [
        f'<p>{name}: <code class="line">{_safe(line)}</code></p>'
        for name, line in lines.items()
        if line
    ]
    if page:
        link = f'<a href="{_safe(page)}" target="_blank" rel="noopener">{_safe(page)}</a>'
        words.append(f"<p>in MLflow: {link}</p>")
    commit = read_commit(study.folder)
    at = f", at commit {_safe(commit)}" if commit else ""
    words.append(
        f'<p class="note">Commands are typed in {_safe(str(Path.cwd()))}{at}. '
        f'All data: <a class="beside" href="{CSV}">{CSV}</a></p>'
    )
    words.append(_render_settings(shared_settings(study)))
    return Section("Reproduce", html="".join(words))


def _render_settings(shared: Mapping[str, str]) -> str:
    if not shared:
        return ""
    rows = [[name, mask_value(name, value)] for name, value in shared.items()]
    title = f"<summary>{counted(len(shared), 'setting')} of all trials</summary>"
    return f"<details>{title}{as_html([['setting', 'value'], *rows])}</details>"


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
    first = f"{_safe(study.objective[0])} <small>({study.directions[0]}d)</small>"
    if front := answer.front:
        count = (
            f'<p class="big"><b>{len(front)}</b> trial{"s" * (len(front) != 1)} on the Pareto'
            " front</p>"
        )
        objectives = _safe(configurations.describe_objectives(study))
        return f"{count}<p>Not dominated in {objectives}: {_links(front, ' ...')}</p>"
    if best := answer.best_configuration:
        return (
            f'<p class="big"><b>{fmean(best.values):.6g}</b> mean'
            f" {first}</p><p>{_chips(best.params.items())}</p>"
        )
    if trial := answer.best_trial:
        value = f'<p class="big"><b>{trial.objective[0]:.6g}</b> {first}</p>'
        return f"{value}<p>{_link(trial.number)} {_chips(trial.params.items())}</p>"
    return ""


def _build_errors(study: StudySnapshot, files: TrialFiles) -> list[Section]:
    """Return a section with the errors of failed and infeasible trials, each error once with its
    trials."""
    ordered = sorted(study.rows, key=lambda trial: trial.number)
    failed = (trial for trial in ordered if trial.state.is_bad or trial.infeasible)
    reasons = sorted(by_failure_signature(failed), key=len, reverse=True)
    if not reasons:
        return []
    all_failed = len(study.bad()) == len(study.rows)
    parts = []
    for i, group in enumerate(reasons[:_MOST_REASONS]):
        parts.append(_render_error(group, files.log_end(group[0]), opened=all_failed and i == 0))
    if len(reasons) > _MOST_REASONS:
        parts.append(f"<li><p>and {len(reasons) - _MOST_REASONS} other errors: see Trials</p>")
    title = "Every trial failed" if all_failed and len(study.rows) > 1 else "Errors"
    return [Section(title, html=f'<ul class="reasons">{"".join(parts)}</ul>', kind="failures")]


def _render_error(trials: list[TrialRecord], log: list[str], opened: bool) -> str:
    """Return the error that these trials share, with the end of the first trial's log, as HTML."""
    count = f"{len(trials)} {_safe(trials[0].failure_signature[0])}"
    reason, _, rest = (without_password(part) for part in trials[0].error.strip().partition("\n"))
    mark = f'<span class="failed">{MARKS["failed"]}</span>'
    parts = [f'<li><p>{mark} <b>{count}</b>: <span class="reason">{_safe(reason[:600])}</span></p>']
    if rest:
        parts.append(f"<pre>{_safe(rest[:1500])}</pre>")
    parts.append(f'<p class="note">{_links(trials, f" and {len(trials) - _MOST_NAMED} more")}</p>')
    if log:
        title = f"<summary>end of the log of trial {trials[0].number}</summary>"
        parts.append(
            f"<details{' open' * opened}>{title}<pre>{_safe(chr(10).join(log))}</pre></details>"
        )
    return "".join(parts)


def _links(trials: Sequence[TrialRecord], more: str) -> str:
    """Return links to the first 30 trials, and `more` if there are more trials."""
    return ", ".join(_link(trial.number) for trial in trials[:_MOST_NAMED]) + more * (
        len(trials) > _MOST_NAMED
    )


def _link(number: int) -> str:
    return f'<a href="#trial-{number}">trial {number}</a>'


def _chips(params: Iterable[tuple[str, object]]) -> str:
    values = ((name.lstrip("+"), short(text(value), LONGEST)) for name, value in params)
    return " ".join(f"<code>{_safe(name)}={_safe(value)}</code>" for name, value in values)


def _safe(words: str) -> str:
    return html.escape(without_password(words))
