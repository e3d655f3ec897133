"""The best trials and configurations of a study in words, for the terminal, the page and MLflow's
note."""

from collections.abc import Sequence
from statistics import fmean, stdev

from sweeps.analysis.answer import Pair
from sweeps.analysis.comparison import LEVEL
from sweeps.analysis.configurations import Configuration, Ranking
from sweeps.base.wording import LONGEST, counted, mean_text, short, text
from sweeps.record.study import StudySnapshot
from sweeps.show.findings import Findings
from sweeps.show.tables import Paragraph, Part, Table


def build_parts(findings: Findings, most: int = 25) -> list[Part]:
    """Return the race's winner, a table of at most `most` configurations, and their pairwise
    comparisons."""
    ranking = findings.ranking
    objective = findings.study.objective[0]
    if not ranking.configurations:
        return []
    parts: list[Part] = []
    if winner := findings.answer.winner:
        parts.append(_describe_race(findings, winner))
    elif any(group.dropped for group in ranking.configurations):
        lead = "The final race has no winner"
        parts.append(Paragraph(": each of its configurations failed under a fresh seed.", lead))
    parts.append(_build_table(findings, most))
    if len(ranking.configurations) > most:
        parts.append(
            Paragraph(f"The first {most} of {len(ranking.configurations)} configurations.")
        )
    if findings.pairs:
        parts.append(
            Paragraph(f", in {objective}, with all other params equal:", "Compared pairwise")
        )
        parts.append(_build_table_of_pairs(findings.pairs))
    return parts


def describe_best_configuration(findings: Findings) -> Paragraph | None:
    """Return the best configuration in a line; None if configurations have one seed."""
    if winner := findings.answer.winner:
        return _describe_race(findings, winner)
    best = findings.answer.best_configuration
    return (
        Paragraph(f": {best.name}: {_mean(best, findings.study.objective[0])}.", "Best mean")
        if best
        else None
    )


def describe_best(findings: Findings) -> Paragraph | None:
    """Return the Pareto front, the best configuration or the best trial in a line; None without a
    result."""
    study = findings.study
    answer = findings.answer
    if answer.front:
        numbers = ", ".join(str(trial.number) for trial in answer.front)
        return Paragraph(
            f", not dominated in {describe_objectives(study)}.", f"Pareto front: trials {numbers}"
        )
    if line := describe_best_configuration(findings):
        return line
    if best := answer.best_trial:
        values = zip(study.objective, best.objective, study.directions, strict=True)
        results = ", ".join(
            f"{name} {value:.6g} ({direction}d)" for name, value, direction in values
        )
        return Paragraph(f", {best.name}: {results}.", f"Best: trial {best.number}")
    return None


def describe_objectives(study: StudySnapshot) -> str:
    """Return the objectives with their directions: `accuracy (maximized), seconds (minimized)`."""
    return ", ".join(
        f"{name} ({goal}d)" for name, goal in zip(study.objective, study.directions, strict=True)
    )


def _describe_race(findings: Findings, winner: Configuration) -> Paragraph:
    answer = findings.answer
    if answer.race_is_running:
        left = counted(1 + len(answer.not_different), "configuration")
        return Paragraph(
            f": {left} left; the best so far: {winner.name}.", "The final race is running"
        )
    line = f": {winner.name}: {_mean(winner, findings.study.objective[0])}."
    if answer.not_different:
        names = "; ".join(group.name for group in answer.not_different)
        line += (
            f" Not significantly different from {counted(len(answer.not_different), 'other')}:"
            f" {names}."
        )
    elif any(group.dropped for group in findings.ranking.configurations):
        line += " The others in the race were dropped."
    return Paragraph(line, "The final race's winner")


def _mean(group: Configuration, objective: str) -> str:
    mean, interval = mean_text(fmean(group.values), group.interval)
    return f"mean {objective} {mean}, {LEVEL:.0%} interval {interval}, {len(group.values)} seeds"


def _build_table(findings: Findings, most: int) -> Table:
    groups = findings.ranking.configurations[:most]
    objective = findings.study.objective[0]
    names = list(dict.fromkeys(name for group in groups for name in group.params))
    has_failed = any(group.failed for group in groups)
    has_race = any(group.raced for group in groups)
    header = [*names, f"mean {objective}", f"{LEVEL:.0%} interval", "deviation", "seeds"]
    table = [[*header, *["no result"] * has_failed, *["final race"] * has_race]]
    for group in groups:
        cells = [short(text(group.params.get(name, "")), LONGEST) for name in names]
        cells += [*_spread(group), str(len(group.values))]
        cells += [str(group.failed or "")] * has_failed + [
            _race_result(findings.ranking, group)
        ] * has_race
        table.append(cells)
    return table


def _spread(group: Configuration) -> list[str]:
    """Return the mean, the interval and the deviation of a configuration's values."""
    values = group.values
    if len(values) < 2:
        return [text(fmean(values)) if values else "", "", ""]
    mean, interval = mean_text(fmean(values), group.interval)
    return [mean, interval, f"{stdev(values):.2g}"]


def _race_result(ranking: Ranking, group: Configuration) -> str:
    if group.place is None:
        return group.dropped
    if ranking.race_is_running:
        return "running"
    return "not significantly different" if group.place else "winner"


def _build_table_of_pairs(pairs: Sequence[Pair]) -> Table:
    table = [
        [
            pairs[0].name,
            "and",
            "difference",
            f"{LEVEL:.0%} interval of this pair alone",
            "pairs",
            "p (Holm)",
            "",
        ]
    ]
    for pair in pairs:
        low, high = pair.interval
        verdict = f"{pair.better} is better" if pair.better else "not significantly different"
        cells = [
            pair.value,
            pair.other,
            f"{pair.gap:+.4g}",
            f"{low:+.4g} to {high:+.4g}",
            str(len(pair.gaps)),
        ]
        table.append([*cells, f"{pair.p:.2g}", verdict])
    return table
