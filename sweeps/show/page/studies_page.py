"""The page of several studies side by side: tables, figures with a line for each study, and
tests."""

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter

from sweeps.analysis import costs
from sweeps.base.wording import short
from sweeps.record.study_file import sweeps_line
from sweeps.show.figures.curves import curve_metric
from sweeps.show.figures.drawing import (
    Figure,
    Figures,
    Trace,
    count_axis,
    escape,
    make_figure,
    place_all,
    scatter,
    series_line,
)
from sweeps.show.markup import fill
from sweeps.show.page import page
from sweeps.show.page.page import Section
from sweeps.show.page.studies import (
    MIN_SEEDS,
    ComparedStudy,
    build_settings,
    build_table,
    compare_pairs,
)
from sweeps.show.scales import scale_of
from sweeps.show.tables import Paragraph, Part, parts_as_html
from sweeps.show.trials import TrialFiles

_HOVER = "%{fullData.name}<br>%{x:.5g}: %{y:.6g}<extra></extra>"


def render_page(studies: Sequence[ComparedStudy]) -> str:
    """Return the page as HTML."""
    title = f"{len(studies)} studies"
    sections = [
        Section("Best results", html=parts_as_html([build_table(studies), *test_parts(studies)]))
    ]
    sections += [Section(name, figures) for name, figures in _figures(studies).items() if figures]
    problems = [Paragraph(study.problem) for study in studies if study.problem]
    settings = parts_as_html([build_settings(studies), *problems])
    lines = [sweeps_line("best", study.study.folder) for study in studies]
    sections.append(Section("Settings that differ", html=settings))
    sections.append(Section("Reproduce", html=fill("commands", lines)))
    return page.render_page(title, sections)


def test_parts(studies: Sequence[ComparedStudy]) -> list[Part]:
    """Return the results of the tests, or what they need."""
    if studies[0].findings.answer.front:
        return []
    if comparisons := compare_pairs(studies):
        corrected = (
            f", p-values with Holm's correction for {len(comparisons)} pairs"
            if len(comparisons) > 1
            else ""
        )
        rule = f"Welch's t-test of the best configurations{corrected}."
        note = (
            "The best of many configurations often had luck: a final race compares them under fresh"
            " seeds."
        )
        return [
            *(Paragraph(f"{comparison.words}.") for comparison in comparisons),
            Paragraph(f"{rule} {note}"),
        ]
    needs = (
        f"A test needs at least {MIN_SEEDS} seeds of each best configuration:"
        " hydra.sweeper.final_race=3"
    )
    return [Paragraph(f"{needs} (searches), or sweep seed=1,2,3 (grids).")]


def _figures(studies: Sequence[ComparedStudy]) -> dict[str, Figures]:
    if studies[0].findings.answer.front:
        return {"Pareto fronts": {"": _fronts(studies)}}
    curves = _curves(studies)
    return {
        "Best trial so far": {
            f"by {name}": _best_so_far(studies, name == "time") for name in ("trial", "time")
        },
        "Learning curves of the best": {"": curves} if curves else {},
    }


def _make_figure(studies: Sequence[ComparedStudy], data: Sequence[Trace], x: str, y: str) -> Figure:
    values = chain.from_iterable(trace["y"] for trace in data)
    scale = scale_of(value for value in values if value is not None)
    data = [{**trace, "y": place_all(scale, trace["y"])} for trace in data]
    yaxis = {"title": {"text": escape(short(y, 40))}, **scale.ticks}
    legend = {"orientation": "v", "y": -0.2, "yanchor": "top"}
    numbers = [number for trace in data for number in trace["x"]]
    is_count = bool(numbers) and all(isinstance(number, int) for number in numbers)
    xaxis = count_axis(escape(x), numbers) if is_count else {"title": {"text": escape(x)}}
    layout = {"xaxis": xaxis, "yaxis": yaxis, "showlegend": True, "legend": legend}
    return make_figure(data, 380 + 20 * len(studies), scale.note, **layout)


def _best_so_far(studies: Sequence[ComparedStudy], by_time: bool) -> Figure:
    """Return the best objective so far by the number of ended trials, or by the training of all of
    them."""
    longest_s = max(study.findings.costs["all"].get("seconds/training", 0.0) for study in studies)
    units = {"h": 3600, "min": 60, "s": 1}
    unit = next((name for name, unit_s in units.items() if longest_s >= 2 * unit_s), "s")
    data = []
    for number, study in enumerate(studies):
        x, y = _steps(study, units[unit] if by_time else None)
        line = {**series_line(number), "shape": "hv"}
        name = escape(study.label)
        data.append(scatter("lines", x, y, name=name, line=line, hovertemplate=_HOVER))
    x_title = f"training of all trials ({unit})" if by_time else "trials that ended"
    return _make_figure(studies, data, x_title, studies[0].study.objective[0])


def _steps(study: ComparedStudy, unit_s: int | None) -> tuple[list[float], list[float]]:
    """Return the best objective after each trial that ended, by number or in units of training."""
    ended = [trial for trial in study.study.rows if trial.attempts and trial.state.is_over]
    ended.sort(key=lambda trial: trial.attempts[-1].ended_at)
    best_of = max if study.study.directions[0] == "maximize" else min
    elapsed_s = 0.0
    x: list[float] = []
    y: list[float] = []
    for place, trial in enumerate(ended, 1):
        elapsed_s += costs.of_trial(trial).get("seconds/training", 0.0)
        if trial.result or y:
            x.append(elapsed_s / unit_s if unit_s else place)
            y.append(best_of([*y[-1:], *trial.result[:1]]))
    return x, y


def _curves(studies: Sequence[ComparedStudy]) -> Figure | None:
    """Return the learning curves of the best trials; None if no trial reported a metric."""
    curves = []
    for study in studies:
        files = TrialFiles(study.study.objective)
        curves.append([files.curves_of(trial) for trial in study.best_trials])
    metric = curve_metric(studies[0].study, dict(enumerate(chain(*curves))))
    data = list[Trace]()
    for number, study in enumerate(studies):
        reported = [by_name[metric] for by_name in curves[number] if metric in by_name]
        for i, (steps, values) in enumerate(reported):
            group = {"name": escape(study.label), "legendgroup": str(number), "showlegend": i == 0}
            data.append(
                scatter(
                    "lines", steps, values, line=series_line(number), hovertemplate=_HOVER, **group
                )
            )
    return _make_figure(studies, data, "step", metric) if data else None


def _fronts(studies: Sequence[ComparedStudy]) -> Figure:
    """Return the Pareto fronts in the first two objectives."""
    data = []
    for number, study in enumerate(studies):
        points = [
            trial.objective[:2] for trial in sorted(study.best_trials, key=attrgetter("objective"))
        ]
        x, y = zip(*points, strict=True)
        style = {"line": series_line(number), "hovertemplate": _HOVER}
        data.append(scatter("lines+markers", x, y, name=escape(study.label), **style))
    first, second = studies[0].study.objective[:2]
    return _make_figure(studies, data, first, second)
