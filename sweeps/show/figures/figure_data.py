"""The data of a study's figures: the trials by kind, their values and colours, and which values are
clipped."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from sweeps.base.wording import short
from sweeps.record.study import MIN_FOR_IMPORTANCE, StudySnapshot, TrialRecord
from sweeps.show.figures import axes
from sweeps.show.figures.axes import is_number
from sweeps.show.findings import Findings
from sweeps.show.page import theme
from sweeps.show.scales import Scale, scale_of
from sweeps.show.trials import Curve, Curves
from sweeps.trial.job import State

KINDS = ("queued", "failed", "pruned", "paused", "running", "completed")
"""In drawing order: completed trials are drawn last, over all others."""


class FigureData:
    """The started trials of a study, with values and colours for its figures."""

    def __init__(
        self,
        findings: Findings,
        curves: Mapping[int, Curves],
        usage: Mapping[int, Curves] | None = None,
        seconds: Mapping[int, Curve] | None = None,
    ) -> None:
        """Prepare the trials.

        By number of the trial: `curves` are of the metrics by step, `usage` of the system metrics,
        and `seconds` are those since the first report, by step.
        """
        self.findings = findings
        self.study = findings.study
        self.curves = curves
        self.usage = usage or {}
        self.seconds = seconds or {}
        self.maximize = self.study.directions[0] == "maximize"
        self.trials = [trial for trial in self.study.rows if trial.state is not State.QUEUED]
        self.axes = axes.find_axes(self.trials, self.study.space, without=self.study.seed_key)
        self.values = {trial.number: value_of(trial, self.study) for trial in self.trials}
        completed = (trial for trial in self.trials if trial.state is State.COMPLETED)
        self.completed = [trial for trial in completed if self.value(trial) is not None]

    @property
    def has_enough(self) -> bool:
        """Return whether enough trials have completed to estimate the importance of parameters."""
        return len(self.completed) >= MIN_FOR_IMPORTANCE

    def value(self, trial: TrialRecord) -> float | None:
        return self.values[trial.number]

    def has_values(self, trials: Iterable[TrialRecord]) -> bool:
        """Return whether any of the trials has a value of the first objective."""
        return any(self.value(trial) is not None for trial in trials)

    @cached_property
    def scale(self) -> Scale:
        """Return the scale of the first objective. The best values of a maximized objective are
        never clipped."""
        return scale_of(
            (value for value in self.values.values() if value is not None), clips=not self.maximize
        )

    def clip(self, value: float | None) -> float | None:
        """Return where a value of the first objective is drawn: an outlier is drawn at the edge."""
        if value is None:
            return None
        if self.scale.log:
            return self.scale.place(value)
        if self.edge is None:
            return value
        return max(value, self.edge) if self.maximize else min(value, self.edge)

    def add_edge_note(self, note: str = "") -> str:
        """Return the note with sentences about zeros and clipped values, if there are any."""
        side = "below" if self.maximize else "above"
        edge = "" if self.edge is None else f"Values {side} {self.edge:.4g} are drawn at the edge."
        return " ".join(filter(None, [note, edge, self.scale.note]))

    def group_by_kind(self, trials: Iterable[TrialRecord]) -> dict[str, list[TrialRecord]]:
        by_kind: dict[str, list[TrialRecord]] = {kind: [] for kind in KINDS}
        for trial in trials:
            by_kind[kind_of(trial)].append(trial)
        return {kind: group for kind, group in by_kind.items() if group}

    def select(
        self, most: int, among: Sequence[TrialRecord] | None = None
    ) -> tuple[list[TrialRecord], str]:
        """Return up to `most` trials, the best two thirds and the newest others, and a note unless
        all are selected."""
        trials = self.trials if among is None else [*among]
        if len(trials) <= most:
            return trials, ""
        numbers = {trial.number for trial in trials}
        ranked = [
            trial
            for trial in self.findings.top
            if trial.number in numbers and self.value(trial) is not None
        ]
        selected = {trial.number for trial in ranked[: most * 2 // 3]}
        note = (
            f"{most} of {len(trials)} trials: the best {len(selected)}, and the newest of the"
            " others"
        )
        newest = [trial for trial in reversed(trials) if trial.number not in selected]
        newest.sort(key=lambda trial: trial.state is not State.RUNNING)
        selected |= {trial.number for trial in newest[: most - len(selected)]}
        return [trial for trial in trials if trial.number in selected], note

    @cached_property
    def color_range(self) -> tuple[float, float] | None:
        """Return the `color` of the values with the first and the last colour: the best and the
        worst.

        The ninth decile replaces a worst value that is far off, because all other trials would have
        one colour.
        """
        if not self._best_first:
            return None
        numbers = (self._best_first[0], self._best_first[-1], self._ninth_decile)
        best, worst, ninth = map(self.scale.color, numbers)
        return (best, ninth) if abs(worst - best) > 5 * abs(ninth - best) > 0 else (best, worst)

    @cached_property
    def edge(self) -> float | None:
        """Return the value beyond which values are clipped, because they would flatten all others;
        None if none are."""
        values = [value for value in self.values.values() if value is not None]
        if len(self._best_first) < 5 or self.scale.log:
            return None
        best = self._best_first[0]
        worst = min(values) if self.maximize else max(values)
        spread = self._ninth_decile - best
        return best + 2 * spread if abs(worst - best) > 4 * abs(spread) > 0 else None

    @cached_property
    def _best_first(self) -> list[float]:
        return sorted((self.value(trial) or 0.0 for trial in self.completed), reverse=self.maximize)

    @property
    def _ninth_decile(self) -> float:
        """Return the value that nine of ten completed trials reach."""
        return self._best_first[-1 - len(self._best_first) // 10]

    def color(self, trial: TrialRecord) -> float | None:
        """Return the trial's value on the colour scale, which is logarithmic if the axis is."""
        value = self.value(trial)
        return None if value is None else self.scale.color(value)

    def rank(self, trial: TrialRecord) -> float:
        """Return a number that orders trials by value, lowest for the best; infinity without a
        value."""
        value = self.value(trial)
        if value is None:
            return math.inf
        return -value if self.maximize else value

    def level(self, trial: TrialRecord) -> int:
        """Return the level of the trial's value on the colour scale, 0 for the best; the middle if
        all are equal."""
        best, worst = self.color_range or (0.0, 0.0)
        if best == worst:
            return theme.LEVELS // 2
        fraction = ((self.color(trial) or 0.0) - best) / (worst - best)
        return round((theme.LEVELS - 1) * min(1.0, max(0.0, fraction)))

    def color_layout(self, bar: bool = False) -> dict[str, Any]:
        """Return the layout of a figure whose points are coloured by value, with a colour bar if
        `bar`."""
        if self.color_range is None:
            return {}
        low, high = sorted(self.color_range)
        colorbar = {
            "title": {"text": f"{short(self.study.objective[0])}<br>\u00a0"},
            "thickness": 12,
            "outlinewidth": 0,
        }
        if self.scale.log:
            step = max(1, math.ceil((high - low) / 8))
            powers = range(math.floor(low), math.ceil(high) + 1, step)
            colorbar["tickvals"] = [*powers]
            colorbar["ticktext"] = [f"10<sup>{power}</sup>" for power in powers]
        scale = {
            "colorscale": "--scale",
            "reversescale": self.maximize,
            "colorbar": colorbar,
            "showscale": bar,
        }
        if low < high:
            scale |= {"cmin": low, "cmax": high}
        return {"coloraxis": scale}


def kind_of(trial: TrialRecord) -> str:
    if trial.state in (State.COMPLETED, State.PRUNED, State.PAUSED, State.RUNNING):
        return str(trial.state)
    if trial.infeasible:
        return "pruned"
    return "failed" if trial.state.is_bad else "queued"


def value_of(trial: TrialRecord, study: StudySnapshot, i: int = 0) -> float | None:
    """Return the i-th objective of a trial, else the value that it reported last; None without a
    number."""
    returned = trial.objective[i] if len(trial.objective) > i else None
    value = returned if returned is not None else trial.metrics.get(study.objective[i])
    return value if is_number(value) else None
