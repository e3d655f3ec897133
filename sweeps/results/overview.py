"""What a study's page begins with: how it stands, what is best, how to get it back, and why trials failed."""

import html
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from sweeps.record.study import StudySnapshot, TrialRecord, by_failure_signature
from sweeps.results import configurations, notes
from sweeps.results.figure_data import kind_of
from sweeps.results.findings import Findings
from sweeps.results.page import Section
from sweeps.results.tables import Paragraph, parts_as_html
from sweeps.results.trials import Trials
from sweeps.secrets import without_password
from sweeps.trial.job import State
from sweeps.wording import LONGEST, short, text

MARKS = {"completed": "●", "pruned": "▼", "failed": "✖", "running": "○", "queued": "□", "to come": "·"}
_MOST_NAMED = 30
_MOST_REASONS = 20


def sections(findings: Findings, trials: Trials) -> list[Section]:
    """How it stands, the answer, and what went wrong, if something did."""
    stands = Section("How it stands", html=_counts(findings.study), wide=False)
    return [stands, _answer(findings), *_failures(findings.study, trials)]


def key(findings: Findings) -> str:
    """What the marks of the figures mean."""
    said = {"completed": "completed", "pruned": "pruned, at its last value", "failed": "failed", "running": "running"}
    said["queued"] = "queued"
    known = [kind for kind in counts(findings.study) if kind in said]
    marks = "".join(f'<span><span class="{kind}">{MARKS[kind]}</span> {said[kind]}</span>' for kind in known)
    scale = '<span>best <i class="scale"></i> worst</span>' if findings.top else ""
    return f'<div class="key">{scale}{marks}<span>Click a trial for its values, curve and log.</span></div>'


def status(summary: StudySnapshot, running: bool) -> str:
    """Whether it goes on, and when that was so."""
    over = summary.done or summary.total is None or summary.over() >= summary.total
    running = running or summary.count(State.RUNNING) > 0  # where another driver has it, or its jobs go on without
    state = "running" if running else "finished" if over else "stopped"
    written = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return (
        f'<p class="status"><b class="{state}">{state}</b> <span id="written">written {written}</span> '
        '<button id="pause" hidden></button></p>'
    )


def counts(summary: StudySnapshot) -> dict[str, int]:
    """Of every kind how many trials; they add up to the study's."""
    found = dict.fromkeys(MARKS, 0)
    for row in summary.rows:
        found[kind_of(row)] += 1
    found["to come"] = max(0, (summary.total or 0) - len(summary.rows))
    return {kind: count for kind, count in found.items() if count}


def _counts(summary: StudySnapshot) -> str:
    found = counts(summary)
    whole = sum(found.values())
    if not whole:
        return Paragraph("No trial has been started.").html
    bar = "".join(f'<i class="{kind.replace(" ", "-")}" style="flex:{count}"></i>' for kind, count in found.items())
    legend = "".join(
        f'<li><span class="{kind.replace(" ", "-")}" aria-hidden="true">{MARKS[kind]}</span> '
        f"<b>{count}</b> {_in_words(kind, summary)}"
        for kind, count in found.items()
    )
    title = f'<p class="big"><b>{summary.over()}</b> of {whole} trial{"s" * (whole > 1)} ended</p>'
    done = Paragraph(f"It is done: {summary.done}.").html if summary.done else ""
    return f'{title}<div class="bar" aria-hidden="true">{bar}</div><ul class="counts">{legend}</ul>{done}'


def _in_words(kind: str, summary: StudySnapshot) -> str:
    """With the states that it is made of, where they have other names."""
    states = [state for state in State if any(row.state is state and kind_of(row) == kind for row in summary.rows)]
    if len(states) == 1:
        return states[0].replace("_", " ")
    named = ", ".join(f"{summary.count(state)} {state.replace('_', ' ')}" for state in states)
    return f"{kind} ({named})" if named else "not begun" if summary.done else kind


def _answer(findings: Findings) -> Section:
    study, answer = findings.study, findings.answer
    line = None if answer.front else configurations.of_seeds(findings)
    body = _shown(findings) + parts_as_html([*([line] if line else []), *notes.paragraphs(findings.notes)])
    if answer.trial and study.again:
        where = f'<small class="note">in {_safe(str(Path.cwd()))}</small>'
        body += f'<p class="again">Get it back {where}:</p><p><code class="line">{_safe(study.again)}</code></p>'
    nothing = "No trial has a result." if study.over() else "No trial has ended yet."
    title = "The answer" if answer.front else "The best"
    return Section(title, html=body or Paragraph(nothing).html, wide=False)


def _shown(findings: Findings) -> str:
    """The answer in large letters."""
    study, answer = findings.study, findings.answer
    first = f"{_safe(study.objective[0])} <small>({study.directions[0]}d)</small>"
    if front := answer.front:
        links = _links(front, " ...")
        goals = " and ".join(f"{_safe(n)} ({d}d)" for n, d in zip(study.objective, study.directions, strict=True))
        count = f'<p class="big"><b>{len(front)}</b> trial{"s" * (len(front) != 1)} on the front</p>'
        return f"{count}<p>No other trial dominates in {goals}: {links}</p>"
    if best := answer.configuration:
        return f'<p class="big"><b>{fmean(best.values):.6g}</b> mean {first}</p><p>{_chips(best.params.items())}</p>'
    if trial := answer.trial:
        value = f'<p class="big"><b>{trial.objective[0]:.6g}</b> {first}</p>'
        return f"{value}<p>{_link(trial.number)} {_chips(trial.params.items())}</p>"
    return ""


def _failures(study: StudySnapshot, trials: Trials) -> list[Section]:
    """Why trials went wrong, or could not begin: equal reasons, numbers aside, once with all their trials."""
    ordered = sorted(study.rows, key=lambda row: row.number)
    reasons = sorted(
        by_failure_signature(row for row in ordered if row.state.is_bad or row.infeasible), key=len, reverse=True
    )
    all_failed = len(study.bad()) == len(study.rows) > 0
    parts = []
    for i, rows in enumerate(reasons[:_MOST_REASONS]):
        parts.append(_reason(rows, trials.log_end(rows[0]), opened=all_failed and i == 0))
    if len(reasons) > _MOST_REASONS:
        parts.append(f"<li><p>and {len(reasons) - _MOST_REASONS} other reasons: see the trials</p>")
    title = "Why every trial failed" if all_failed and len(study.rows) > 1 else "What went wrong"
    return [Section(title, html=f'<ul class="reasons">{"".join(parts)}</ul>', kind="failures")] if parts else []


def _reason(rows: list[TrialRecord], log: list[str], opened: bool) -> str:
    """Why these trials went wrong, with the end of the first one's log."""
    mark, what = f'<span class="failed">{MARKS["failed"]}</span>', f"{len(rows)} {_safe(rows[0].failure_signature[0])}"
    reason, _, rest = (without_password(part) for part in rows[0].error.strip().partition("\n"))
    parts = [f'<li><p>{mark} <b>{what}</b>: <span class="reason">{_safe(reason[:600])}</span></p>']
    if rest:
        parts.append(f"<pre>{_safe(rest[:1500])}</pre>")
    parts.append(f'<p class="note">{_links(rows, f" and {len(rows) - _MOST_NAMED} more")}</p>')
    if log:
        title = f"<summary>the log of trial {rows[0].number} ends so</summary>"
        parts.append(f"<details{' open' * opened}>{title}<pre>{_safe(chr(10).join(log))}</pre></details>")
    return "".join(parts)


def _links(rows: Sequence[TrialRecord], more: str) -> str:
    """To the first of these trials; `more` follows if they are not all."""
    return ", ".join(_link(row.number) for row in rows[:_MOST_NAMED]) + more * (len(rows) > _MOST_NAMED)


def _link(number: int) -> str:
    return f'<a href="#trial-{number}">trial {number}</a>'


def _chips(params: Iterable[tuple[str, object]]) -> str:
    shown = ((name.lstrip("+"), short(text(value), LONGEST)) for name, value in params)
    return " ".join(f"<code>{_safe(name)}={_safe(value)}</code>" for name, value in shown)


def _safe(words: str) -> str:
    return html.escape(without_password(words))
