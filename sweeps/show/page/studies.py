"""Several studies side by side: the best result of each, the settings in which they differ, and
tests."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean

from omegaconf import DictConfig

from sweeps.analysis.comparison import LEVEL, Difference, holm, welch
from sweeps.analysis.no_result import no_result_error
from sweeps.base.errors import UserError
from sweeps.base.wording import LONGEST, duration, mean_text, short, text
from sweeps.record.study import StudySnapshot, TrialRecord, parameters
from sweeps.record.trial_config import read_config, repeated_settings, settings
from sweeps.show.findings import Findings
from sweeps.show.tables import Table, build, without_empty_columns

MIN_SEEDS = 2  # of each best configuration, for a test


@dataclass(frozen=True)
class ComparedStudy:
    """A study under the label that tells it from the others: its name, or its path if two have one
    name."""

    label: str
    findings: Findings

    @property
    def study(self) -> StudySnapshot:
        return self.findings.study

    @cached_property
    def best_trials(self) -> Sequence[TrialRecord]:
        """Return the Pareto front, the completed trials of the best configuration, or the best
        trial."""
        answer = self.findings.answer
        if answer.front:
            return answer.front
        if best := answer.best_configuration:
            return [trial for trial in best.raced or best.rows if trial.result]
        return [answer.best_trial] if answer.best_trial else []

    @property
    def values(self) -> list[float]:
        """Return the first objective of each of the best trials."""
        return [trial.objective[0] for trial in self.best_trials]

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """Return the settings of the first of the best trials, with all their seeds; of any trial
        without a result.

        If its files cannot be read, return the settings of the study's definition.
        """
        swept = {}
        if self._example:
            for name, value in self._example.params.items():
                swept[name.lstrip("+")] = "null" if value is None else str(value)
        if best := self.findings.answer.best_configuration:
            seeds = [str(trial.params.get(best.key, "")) for trial in self.best_trials]
            swept[best.key.lstrip("+")] = ",".join(seeds)
        config = self._written[0]
        return {**(self.study.fixed if config is None else settings(config)), **swept}

    @cached_property
    def repeated(self) -> Mapping[str, str]:
        """Return the setting that each setting of `settings` repeats; none if its files cannot be
        read."""
        config = self._written[0]
        return {} if config is None else repeated_settings(config)

    @property
    def problem(self) -> str:
        """Return why the configuration of `settings` cannot be read; "" if it can be."""
        return self._written[1]

    @property
    def _example(self) -> TrialRecord | None:
        return next(iter([*self.best_trials, *self.study.rows]), None)

    @cached_property
    def _written(self) -> tuple[DictConfig | None, str]:
        """Return the config in a trial's files, and why it cannot be read; None without one."""
        if self._example is None:
            return None, ""
        folder = self._example.folder
        try:
            config = read_config(folder)
            settings(config)
            return config or None, ""
        except Exception as error:  # because another user's file may hold anything
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            return (
                None,
                f"study {self.label}: the config in {folder / '.hydra'} cannot be read: {reason}",
            )

    def is_in_all_trials(self, setting: str) -> bool:
        """Return whether each trial has the setting: a param under a condition, or a race's seed,
        is in some trials."""
        if setting not in self.settings:
            return False
        params = [trial.params for trial in self.study.rows if trial.params]
        return setting not in self.swept or all(
            setting in {name.lstrip("+") for name in each} for each in params
        )

    @cached_property
    def swept(self) -> Mapping[str, str]:
        """Return the values that the study tried, by setting."""
        values = dict[str, str]()
        # a name may have a condition: `momentum under optimizer=sgd`
        for name, words in self.study.space.items():
            setting = name.partition(" under ")[0].lstrip("+")
            values[setting] = f"{values[setting]},{words}" if setting in values else words
        for name in parameters(self.study.rows):
            tried = dict.fromkeys(
                str(trial.params[name]) for trial in self.study.rows if name in trial.params
            )
            values.setdefault(name.lstrip("+"), ",".join(tried))
        return values


def compare(studies: Mapping[str, StudySnapshot]) -> list[ComparedStudy]:
    """Return the studies, by label. Raises UserError if they have other objectives, or one has no
    result."""
    check_objectives(studies)
    for label, study in studies.items():
        if not any(trial.result for trial in study.rows):
            problem = f"study {label}: none of its {len(study.rows)} trials has a result"
            raise no_result_error(study, problem, "Leave it out. ")
    return [
        ComparedStudy(label, Findings(study, reads_all=False)) for label, study in studies.items()
    ]


def check_objectives(studies: Mapping[str, StudySnapshot]) -> None:
    """Raise UserError if the studies have other objectives."""
    first_label, *others = studies
    goals = _describe_goals(studies[first_label])
    for label in others:
        other_goals = _describe_goals(studies[label])
        if other_goals != goals:
            raise UserError(
                f"study {label}: its objective is {other_goals}; the objective of {first_label} is"
                f" {goals}.\nChoose studies of the same objective, in the same direction"
            )


def _describe_goals(study: StudySnapshot) -> str:
    pairs = zip(study.objective, study.directions, strict=True)
    return ", ".join(f"{name} ({direction})" for name, direction in pairs)


def build_table(studies: Sequence[ComparedStudy]) -> Table:
    """Return a row for each study: its best result with its interval, its trials and its costs."""
    objective = short(", ".join(studies[0].study.objective), 40)
    columns = {title.format(objective=objective): cell for title, cell in _COLUMNS.items()}
    return without_empty_columns(build(columns, studies))


def _interval(study: ComparedStudy) -> str:
    if len(study.values) < MIN_SEEDS or study.findings.answer.front:
        return ""
    best = study.findings.answer.best_configuration
    return mean_text(fmean(study.values), best.interval)[1] if best else ""


def _best(study: ComparedStudy) -> str:
    front = study.findings.answer.front
    return f"{len(front)} on the Pareto front" if front else f"{fmean(study.values):.6g}"


def _name(study: ComparedStudy) -> str:
    answer = study.findings.answer
    if answer.front:
        return ""
    best = answer.best_configuration or study.best_trials[0]
    return best.name


def _cost(name: str) -> Callable[[ComparedStudy], str]:
    def cell(study: ComparedStudy) -> str:
        value = study.findings.costs["all"].get(name)
        if value is None:
            return ""
        return duration(value) if name.startswith("seconds/") else text(value, digits=4)

    return cell


_COLUMNS: Mapping[str, Callable[[ComparedStudy], str]] = {
    "study": lambda study: study.label,
    "best {objective}": _best,
    f"{LEVEL:.0%} interval": _interval,
    "seeds": lambda study: "" if study.findings.answer.front else str(len(study.values)),
    "best configuration": lambda study: short(_name(study), LONGEST),
    "completed": lambda study: f"{len(study.findings.top)} of {len(study.study.rows)}",
    "training (h:min:s)": _cost("seconds/training"),
    "GPU-hours": _cost("gpu_hours"),
    "energy (kWh)": _cost("energy_kwh"),
    "CO2 (g)": _cost("co2_g"),
}


def build_settings(studies: Sequence[ComparedStudy]) -> Table:
    """Return a row for each setting that a study swept, or in which the best trials differ.

    A cell has the value of the best trial and, in brackets, the values that the study tried. A
    setting that repeats another row in all studies is omitted.
    """
    names: dict[str, None] = {}
    for study in studies:
        names |= dict.fromkeys(study.swept)
    for study in studies:
        names |= dict.fromkeys(study.settings)

    table: Table = [["setting", *(study.label for study in studies)]]
    for name in names:
        is_swept = any(study.swept.get(name) for study in studies)
        if is_swept or _differs(name, studies, names):
            table.append([name, *(_setting_cell(name, study) for study in studies)])
    return table


def _differs(name: str, studies: Sequence[ComparedStudy], names: Collection[str]) -> bool:
    """Return whether the best trials differ in a setting, and it repeats no other row."""
    values = {study.settings.get(name, "") for study in studies}
    repeats = {study.repeated.get(name, "") for study in studies if name in study.settings}
    is_repeated = len(repeats) == 1 and repeats.issubset(names)
    return len(values) > 1 and not is_repeated


def _setting_cell(name: str, study: ComparedStudy) -> str:
    value = short(study.settings.get(name, ""), LONGEST)
    tried = study.swept.get(name, "")
    return f"{value} (of {short(tried, LONGEST)})" if tried else value


@dataclass(frozen=True)
class Comparison:
    """The best configurations of two studies, compared over their seeds."""

    first: ComparedStudy
    second: ComparedStudy
    difference: Difference
    p: float  # adjusted for the number of comparisons
    pairs: int = 1  # comparisons

    @property
    def words(self) -> str:
        """Return the better study, or that the two are not significantly different; the first minus
        the second."""
        first = self.first
        second = self.second
        gap = self.difference
        if self.p < 1 - LEVEL and (gap.mean > 0) != (first.study.directions[0] == "maximize"):
            first, second, gap = second, first, Difference(-gap.mean, -gap.high, -gap.low, gap.p)
        alone, corrected = (" of this pair alone", " (Holm)") if self.pairs > 1 else ("", "")
        limits = f"{LEVEL:.0%} interval{alone} {gap.low:.4g} to {gap.high:.4g}"
        numbers = f"difference {gap.mean:.4g}, {limits}, p={self.p:.2g}{corrected}"
        if self.p >= 1 - LEVEL:
            return f"{first.label} and {second.label} are not significantly different: {numbers}"
        return f"{first.label} is better than {second.label}: {numbers}"


def compare_pairs(studies: Sequence[ComparedStudy]) -> list[Comparison]:
    """Compare each two studies by Welch's t-test with Holm's correction, where both best have
    several seeds."""
    tested = [
        study
        for study in studies
        if len(study.values) >= MIN_SEEDS and not study.findings.answer.front
    ]
    pairs = list(combinations(tested, 2))
    differences = [welch(first.values, second.values) for first, second in pairs]
    adjusted = holm([difference.p for difference in differences])
    return [
        Comparison(*pair, gap, p, len(pairs))
        for pair, gap, p in zip(pairs, differences, adjusted, strict=True)
    ]
