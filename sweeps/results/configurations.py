"""What there is to say of a study's answer and its configurations, for the terminal, the page and MLflow's note."""

from collections.abc import Sequence
from statistics import fmean, stdev

from sweeps.record.answer import Pair
from sweeps.record.comparison import LEVEL
from sweeps.record.configurations import Configuration, Ranking
from sweeps.record.study import StudySnapshot
from sweeps.results.findings import Findings, findings_of
from sweeps.results.tables import Paragraph, Part, Table
from sweeps.wording import LONGEST, counted, short, text


def parts(findings: Findings, most: int = 25) -> list[Part]:
    """What there is to say of configurations: the race, `most` of them, and what was compared pairwise."""
    ranking, objective = findings.ranking, findings.study.objective[0]
    if not ranking.configurations:
        return []
    shown: list[Part] = []
    if winner := findings.answer.winner:
        shown.append(_of_race(findings, winner))
    elif any(one.dropped for one in ranking.configurations):
        lead = "The final race has no winner"
        shown.append(Paragraph(": each configuration in it failed under a fresh seed.", lead))
    shown.append(_table(findings, most))
    if len(ranking.configurations) > most:
        shown.append(Paragraph(f"The first {most} of {len(ranking.configurations)} configurations."))
    if findings.pairs:
        shown.append(Paragraph(f", in {objective}, where all else is the same:", "Compared pairwise"))
        shown.append(_table_of_pairs(findings.pairs))
    return shown


def of_seeds(findings: Findings) -> Paragraph | None:
    """The best configuration in a line, where they were run under several seeds."""
    if winner := findings.answer.winner:
        return _of_race(findings, winner)
    best = findings.answer.configuration
    return Paragraph(f": {best.name}: {_mean(best, findings.study.objective[0])}.", "Best mean") if best else None


def headline(study: StudySnapshot | Findings) -> str:
    """The same in Markdown; else empty."""
    line = of_seeds(findings_of(study))
    return line.markdown if line else ""


def answer_line(findings: Findings) -> Paragraph | None:
    """What the study found, in a line: its front, its best configuration or its best trial."""
    study, answer = findings.study, findings.answer
    if answer.front:
        numbers = ", ".join(str(row.number) for row in answer.front)
        goals = ", ".join(f"{n} ({d}d)" for n, d in zip(study.objective, study.directions, strict=True))
        return Paragraph(f", which no other dominates in {goals}.", f"The answer: trials {numbers}")
    if line := of_seeds(findings):
        return line
    if best := answer.trial:
        values = zip(study.objective, best.objective, study.directions, strict=True)
        results = ", ".join(f"{name} {value:.6g} ({direction}d)" for name, value, direction in values)
        return Paragraph(f", {best.name}: {results}.", f"Best: trial {best.number}")
    return None


def _of_race(findings: Findings, winner: Configuration) -> Paragraph:
    answer = findings.answer
    if answer.race_is_running:
        left = counted(1 + len(answer.not_different), "configuration")
        return Paragraph(f": {left} left, the best now {winner.name}.", "The final race goes on")
    line = f": {winner.name}: {_mean(winner, findings.study.objective[0])}."
    if answer.not_different:
        names = "; ".join(one.name for one in answer.not_different)
        line += f" It cannot be told from {counted(len(answer.not_different), 'other')}: {names}."
    elif any(one.dropped for one in findings.ranking.configurations):
        line += " The others in the race were dropped."
    return Paragraph(line, "The final race's winner")


def _mean(group: Configuration, objective: str) -> str:
    low, high = group.interval
    count = len(group.values)
    return f"mean {objective} {fmean(group.values):.6g}, {LEVEL:.0%} interval {low:.6g} to {high:.6g}, {count} seeds"


def _table(findings: Findings, most: int) -> Table:
    groups, objective = findings.ranking.configurations[:most], findings.study.objective[0]
    names = list(dict.fromkeys(name for one in groups for name in one.params))
    some_failed = any(one.failed for one in groups)
    raced = any(one.raced for one in groups)
    header = [*names, f"mean {objective}", f"{LEVEL:.0%} interval", "deviation", "seeds"]
    table = [[*header, *["no result"] * some_failed, *["final race"] * raced]]
    for one in groups:
        cells = [short(text(one.params.get(name, "")), LONGEST) for name in names]
        cells += [*_spread(one), str(len(one.values))]
        cells += [str(one.failed or "")] * some_failed + [_in_race(findings.ranking, one)] * raced
        table.append(cells)
    return table


def _spread(one: Configuration) -> list[str]:
    """Its mean, interval and deviation."""
    values, (low, high) = one.values, one.interval
    mean = text(fmean(values)) if values else ""
    return [mean, f"{low:.6g} to {high:.6g}", f"{stdev(values):.3g}"] if len(values) > 1 else [mean, "", ""]


def _in_race(ranking: Ranking, one: Configuration) -> str:
    """How the configuration stands in the final race."""
    if one.place is None:
        return one.dropped
    return "goes on" if ranking.race_is_running else "not told apart" if one.place else "winner"


def _table_of_pairs(pairs: Sequence[Pair]) -> Table:
    table = [[pairs[0].name, "and", "difference", f"{LEVEL:.0%} interval", "pairs", "p (Holm)", ""]]
    for pair in pairs:
        low, high = pair.interval
        verdict = f"{pair.better} is better" if pair.better else "not told apart"
        cells = [pair.value, pair.other, f"{pair.gap:+.4g}", f"{low:+.4g} to {high:+.4g}", str(len(pair.gaps))]
        table.append([*cells, f"{pair.p:.2g}", verdict])
    return table
