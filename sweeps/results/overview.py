"""What a study's page begins with: how it stands, what is best, how to get it back, and why trials failed."""

import html
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from sweeps.results import groups
from sweeps.results.page import Section
from sweeps.results.seen import kind_of
from sweeps.results.summary import LONGEST, Summary, by_way, short, text
from sweeps.results.tables import paragraphs
from sweeps.results.trials import Trials
from sweeps.secrets import without_password
from sweeps.trial.job import State

MARKS = {"completed": "●", "pruned": "▼", "failed": "✖", "running": "○", "waiting": "□", "to come": "·"}
_MOST_NAMED = 30
_MOST_REASONS = 20


def sections(summary: Summary, trials: Trials, said: Sequence[str]) -> list[Section]:
    """`said` is what is best, in lines."""
    stands = Section("How it stands", html=_counts(summary), wide=False)
    return [stands, *_answer(summary, said), *_failures(summary, trials)]


def key(summary: Summary) -> str:
    """What the marks of the figures mean."""
    said = {"completed": "completed", "pruned": "pruned, at its last value", "failed": "failed", "running": "running"}
    said["waiting"] = "open"
    found = [
        f'<span><span class="{kind}">{MARKS[kind]}</span> {said[kind]}</span>'
        for kind in counts(summary)
        if kind in said
    ]
    scale = '<span>best <i class="scale"></i> worst</span>' if summary.top(1) else ""
    return f'<div class="key">{scale}{"".join(found)}<span>Click a trial for its values, curve and log.</span></div>'


def status(summary: Summary, running: bool) -> str:
    """Whether it goes on, and when that was so."""
    over = summary.done or summary.total is None or summary.over() >= summary.total
    running = running or summary.count(State.RUNNING) > 0  # where another driver has it, or its jobs go on without
    state = "running" if running else "finished" if over else "stopped"
    written = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return (
        f'<p class="status"><b class="{state}">{state}</b> <span id="written">written {written}</span> '
        '<button id="pause" hidden></button></p>'
    )


def counts(summary: Summary) -> dict[str, int]:
    """Of every kind how many trials; they add up to the study's."""
    found = dict.fromkeys(MARKS, 0)
    for row in summary.rows:
        found[kind_of(row)] += 1
    found["to come"] = max(0, (summary.total or 0) - len(summary.rows))
    return {kind: count for kind, count in found.items() if count}


def _counts(summary: Summary) -> str:
    found = counts(summary)
    whole = sum(found.values())
    if not whole:
        return paragraphs(["No trial has been started."])
    bar = "".join(f'<i class="{kind.replace(" ", "-")}" style="flex:{count}"></i>' for kind, count in found.items())
    legend = "".join(
        f'<li><span class="{kind.replace(" ", "-")}" aria-hidden="true">{MARKS[kind]}</span> '
        f"<b>{count}</b> {_in_words(kind, summary)}"
        for kind, count in found.items()
    )
    title = f'<p class="big"><b>{summary.over()}</b> of {whole} trial{"s" * (whole > 1)} ended</p>'
    done = paragraphs([f"It is done: {summary.done}."]) if summary.done else ""
    return f'{title}<div class="bar" aria-hidden="true">{bar}</div><ul class="counts">{legend}</ul>{done}'


def _in_words(kind: str, summary: Summary) -> str:
    """With the states that it is made of, where they have other names."""
    states = [state for state in State if any(row.state is state and kind_of(row) == kind for row in summary.rows)]
    if len(states) == 1:
        return states[0].replace("_", " ")
    named = ", ".join(f"{summary.count(state)} {state.replace('_', ' ')}" for state in states)
    return f"{kind} ({named})" if named else "not begun" if summary.done else kind


def _answer(summary: Summary, said: Sequence[str]) -> list[Section]:
    best, front = summary.best(), summary.front()
    of_seeds = groups.best(summary)
    shown = ""
    if best and not front and not of_seeds:
        value = f"{best.objective[0]:.6g}"
        name, direction = summary.objective[0], summary.directions[0]
        shown = f'<p class="big"><b>{value}</b> {_safe(name)} <small>({direction}d)</small></p>'
        shown += f"<p>{_link(best.number)} {_chips(best.params.items())}</p>"
        said = [line for line in said if not line.startswith("**Best")]
    elif front:
        links = ", ".join(_link(row.number) for row in summary.undominated()[:_MOST_NAMED])
        goals = " and ".join(f"{_safe(n)} ({d}d)" for n, d in zip(summary.objective, summary.directions, strict=True))
        shown = f'<p class="big"><b>{len(front)}</b> trial{"s" * (len(front) != 1)} on the front</p>'
        shown += f"<p>No other trial dominates in {goals}: {links}{' ...' * (len(front) > _MOST_NAMED)}</p>"
        said = [line for line in said if not line.startswith("**The answer")]
    elif of_seeds:
        told = f"mean {_safe(summary.objective[0])} <small>({summary.directions[0]}d)</small>"
        shown = f'<p class="big"><b>{fmean(of_seeds.values):.6g}</b> {told}</p><p>{_chips(of_seeds.params.items())}</p>'
    again = ""
    if best and summary.again:
        where = f'<small class="note">in {_safe(str(Path.cwd()))}</small>'
        again = f'<p class="again">Get it back {where}:</p><p><code class="line">{_safe(summary.again)}</code></p>'
    body = shown + paragraphs(said) + again
    if not body:
        some = summary.over()
        body = paragraphs(["No trial has a result." if some else "No trial has ended yet."])
    return [Section("The answer" if front else "The best", html=body, wide=False)]


def _failures(summary: Summary, trials: Trials) -> list[Section]:
    """Why trials went wrong, or could not begin: equal reasons, numbers aside, once with all their trials."""
    ordered = sorted(summary.rows, key=lambda row: row.number)
    found = sorted(by_way(row for row in ordered if row.state.is_bad or row.infeasible), key=len, reverse=True)
    all_failed = len(summary.bad()) == len(summary.rows) > 0
    parts: list[str] = []
    for rows in found[:_MOST_REASONS]:
        links = ", ".join(_link(row.number) for row in rows[:_MOST_NAMED])
        more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
        lines = trials.log_end(rows[0])
        opened = " open" if all_failed and not parts else ""
        log = f"<details{opened}><summary>the log of trial {rows[0].number} ends so</summary>"
        log = f"{log}<pre>{_safe(chr(10).join(lines))}</pre></details>" if lines else ""
        reason, _, rest = rows[0].error.strip().partition("\n")
        parts.append(
            f'<li><p><span class="failed">{MARKS["failed"]}</span> <b>{len(rows)} {_safe(rows[0].way[0])}</b>: '
            f'<span class="reason">{_safe(without_password(reason)[:600])}</span></p>'
            + (f"<pre>{_safe(without_password(rest)[:1500])}</pre>" if rest else "")
            + f'<p class="note">{links}{more}</p>{log}'
        )
    if len(found) > _MOST_REASONS:
        parts.append(f"<li><p>and {len(found) - _MOST_REASONS} other reasons: see the trials</p>")
    title = "Why every trial failed" if all_failed and len(summary.rows) > 1 else "What went wrong"
    return [Section(title, html=f'<ul class="reasons">{"".join(parts)}</ul>', kind="failures")] if parts else []


def _link(number: int) -> str:
    return f'<a href="#trial-{number}">trial {number}</a>'


def _chips(params: Iterable[tuple[str, object]]) -> str:
    shown = ((name.lstrip("+"), short(text(value), LONGEST)) for name, value in params)
    return " ".join(f"<code>{_safe(name)}={_safe(value)}</code>" for name, value in shown)


def _safe(words: str) -> str:
    return html.escape(without_password(words))
