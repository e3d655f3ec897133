"""The methods of a study in words: what was swept and how, on which machines, at which cost, and
the command."""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sweeps.analysis.costs import real_time_s
from sweeps.base.wording import counted, duration, printable, text
from sweeps.hydra.sweeper_settings import target_of
from sweeps.record.definition import Definition
from sweeps.record.place import resume_line
from sweeps.record.study import StudySnapshot, TrialRecord, Trials
from sweeps.record.study import parameters as parameters_of
from sweeps.record.trial_config import read_groups, read_values
from sweeps.show.findings import Findings, count_states
from sweeps.show.overview import read_commit
from sweeps.space.grammar import space_of
from sweeps.space.space import Choice, text_of, without_plus
from sweeps.trial.folder import TrialFolder
from sweeps.trial.machine import facts

_OWN_PROCESS = "sweepyard's Gaussian process"
_COSTS = {
    "gpu_hours": "GPU-hours",
    "energy_kwh": "kWh of the GPUs' energy",
    "co2_g": "g of CO2 for this energy",
}
_MOST = 8  # facts that are listed; more are counted
_MOST_VALUES = 30  # values of the configuration


def describe_methods(findings: Findings, definition: Definition) -> str:
    """Return paragraphs for a paper: the search, its trials and seeds, machines, versions, costs,
    and the command."""
    study = findings.study
    trials = study.rows
    recorded = [facts.read(TrialFolder(trial.folder)) for trial in trials]
    shared = _shared_settings(recorded, trials)
    values = _values_by_name(trials, definition, recorded)
    sentences = [
        _describe_search(study, definition),
        _describe_changes(study, definition),
        _describe_seeds(trials, definition),
        _describe_states(count_states(study)),
        f"The study ended early: {study.done}." if study.done else "",
        _describe_config(trials, definition, values),
        f"Each training used {', '.join(shared.values())}." if shared else "",
        _describe_varied(trials, definition, values),
        _describe_machines(recorded, trials),
        _list("Software", (fact.process.get("versions", "") for fact in recorded)),
        _describe_costs(findings),
    ]
    commit = read_commit(study.folder)
    at = f" at commit {commit}" if commit else ""
    place = f"Command, typed in {definition.working_folder}{at}:"
    command = resume_line(definition, study.folder)
    paragraphs = [" ".join(filter(None, sentences)), place, f"    {command}"]
    return printable("\n\n".join(paragraphs))


def _describe_states(counts: Mapping[str, int]) -> str:
    if not counts:
        return "No trial has started."
    states = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.items())
    return f"Of {counted(sum(counts.values()), 'trial')}: {states}."


def _describe_search(study: StudySnapshot, definition: Definition) -> str:
    """Return which points were chosen for which goal, by which sampler, budget and pruner."""
    goals = _describe_goals(study, definition)
    if study.searched:
        space = _describe_space(definition)
        function = definition.search.get("custom_search_space", "None")
        further = f"what {function}() suggests" if function != "None" else ""
        searched = " and ".join(filter(None, [space, further]))
        method = f", by {_describe_sampler(study, definition)}{_describe_budget(study, definition)}"
        sentence = f"Study {study.name} searched {searched}{goals}{method}"
    else:
        sentence = f"Study {study.name} is a grid of {_describe_grid(study, definition)}{goals}"
    pruner = _name_of(definition.search.get("pruner"))
    if pruner and pruner != target_of("pruner", "none"):
        sentence += f"; {pruner} could end trials early"
    if rungs := json.loads(definition.search.get("rungs", "null")):
        sentence += (
            f"; trials paused after {counted(rungs['first'], 'step')}, and the best of"
            f" {rungs['factor']} went on to {rungs['factor']} times the steps (asynchronous"
            " successive halving, Li et al., MLSys 2020)"
        )
    return f"{sentence}."


def _describe_goals(study: StudySnapshot, definition: Definition) -> str:
    """Return what was optimized; "" if no trial of a grid without an objective returned a
    number."""
    is_named = definition.search.get("objective", "None") != "None"
    if not (is_named or study.searched or any(trial.objective for trial in study.rows)):
        return ""
    goals = [
        f"the {'highest' if direction == 'maximize' else 'lowest'} {name}"
        for name, direction in zip(study.objective, study.directions, strict=True)
    ]
    return f" for {' and '.join(goals)}"


def _describe_space(definition: Definition) -> str:
    """Return the values of each parameter, and the excluded points."""
    parameters = definition.parameters.items()
    spaces = {name.lstrip("+"): re.sub(",(?! )", ", ", values) for name, values in parameters}
    space = "; ".join(f"{name} ({values})" for name, values in spaces.items())
    conditions = " or ".join(f"({condition})" for condition in definition.exclude)
    return f"{space}, except {conditions}" if conditions else space


def _describe_grid(study: StudySnapshot, definition: Definition) -> str:
    """Return how many points a grid has, of which values, and whether these are all
    combinations."""
    if not definition.parameters:
        return "one configuration"
    space = _describe_space(definition)
    if definition.listed:
        return f"{counted(len(definition.listed), 'listed point')} of {space}"
    parameters = space_of(definition.parameters).parameters
    choices = [parameter for parameter in parameters if isinstance(parameter, Choice)]
    combinations = math.prod(len([*choice.distinct]) for choice in choices)
    if definition.total == combinations:
        return f"all {counted(combinations, 'combination')} of {space}"
    points = counted(definition.total, "point")
    if definition.size is None or definition.total < definition.size:
        return f"the first {points} of {space}"
    partial = _partial_params(study)
    some = f", where only some points have {' and '.join(partial)}" if partial else ""
    return f"{points} of {space}{some}"


def _partial_params(study: StudySnapshot) -> list[str]:
    """Return the params that only some of the chosen trials have."""
    chosen = [trial for trial in study.rows if trial.searched and not trial.unknown]
    names = parameters_of(chosen)
    return [name.lstrip("+") for name in names if any(name not in t.params for t in chosen)]


def _describe_sampler(study: StudySnapshot, definition: Definition) -> str:
    """Return the sampler that chose the trials, with its settings."""
    sampler = _name_of(definition.search.get("sampler")) or "an unknown sampler"
    has_own_process = (
        len(study.objective) == 1 and definition.search.get("custom_search_space", "None") == "None"
    )
    default = target_of("sampler", "default")
    if sampler.startswith(default):
        model = _OWN_PROCESS if has_own_process else target_of("sampler", "tpe")
        return sampler.replace(default, model)
    return sampler


def _describe_budget(study: StudySnapshot, definition: Definition) -> str:
    """Return the number of configurations that a search tries, and the seeds of each; "" without a
    number."""
    if definition.n_trials == "None":
        return ""
    if study.repeats > 1:
        count = counted(int(definition.n_trials), "configuration")
        return f", with a budget of {count} under {study.repeats} seeds each"
    return f", with a budget of {counted(int(definition.n_trials), 'trial')}"


def _name_of(section: str | None) -> str:
    """Return the class of a sampler or pruner with its settings, from JSON; "" if it cannot be
    read."""
    with suppress(ValueError, AttributeError):
        content: dict[str, Any] = json.loads(section or "{}") or {}
        target = content.pop("_target_", "")
        settings = ", ".join(
            f"{name}={value}" for name, value in content.items() if value is not None
        )
        return f"{target} ({settings})" if target and settings else target
    return ""


def _describe_changes(study: StudySnapshot, definition: Definition) -> str:
    """Return what the sampler learned from elsewhere, and what persons changed."""
    earlier = definition.search.get("learn_from", "")
    starts = sum(bool(trial.memory.get("start")) for trial in study.rows)
    added = [trial.name for trial in study.rows if trial.by_hand]
    excluded = " or ".join(f"({excluded.text})" for excluded in study.excluded)
    sentences = [
        f"The sampler learned from {earlier.replace(',', ', ')}, too." if earlier else "",
        f"The search began with {counted(starts, 'given point')}." if starts else "",
        f"A person added {counted(len(added), 'trial')}: {_join(added)}." if added else "",
        f"A person excluded further points: {excluded}." if excluded else "",
    ]
    return " ".join(filter(None, sentences))


def _describe_config(
    trials: Trials, definition: Definition, values: Mapping[str, Counter[str]]
) -> str:
    """Return the choice of each config group, and the values that all trials share.

    Values inside a group's section are those of its choice, and so are named only if they were
    typed. Of `values`, those that changed, or that trainings recorded, are named elsewhere.
    """
    free = definition.free_keys()
    used = {name: next(iter(counts)) for name, counts in values.items() if len(counts) == 1}
    elsewhere = {name for name in values if name not in used or name not in free}
    swept = _swept_names(trials, definition)
    groups = next(filter(None, (read_groups(trial.folder) for trial in trials)), {})
    words = [f"{name}={choice}" for name, choice in groups.items() if name not in swept]
    hidden = {*swept, *elsewhere, *groups, definition.seed_key.lstrip("+")}
    for name, value in _own_values(definition, groups).items():
        if name not in hidden and name.partition(".")[0] not in swept:
            words.append(f"{name}={used.get(name, value)}")
    return f"All trials shared {_join(words, _MOST_VALUES, ', ')}." if words else ""


def _swept_names(trials: Iterable[TrialRecord], definition: Definition) -> set[str]:
    swept = {name.partition(" under ")[0].lstrip("+") for name in definition.parameters}
    return swept.union(name.lstrip("+") for trial in trials for name in trial.params)


def _own_values(definition: Definition, groups: Collection[str]) -> dict[str, str]:
    """Return the values that are typed, or are of no choice of a config group; none that is empty
    or repeats another one."""
    typed = {word.partition("=")[0].lstrip("+") for word in definition.command}
    return {
        name: value
        for name, value in definition.config.items()
        if (name in typed or name.partition(".")[0] not in groups) and not _is_blank(value)
    }


def _is_blank(value: str) -> bool:
    return value in ("null", "{}") or "${" in value


def _describe_varied(
    trials: Trials, definition: Definition, values: Mapping[str, Counter[str]]
) -> str:
    """Return the settings of the configuration that not all trials used, although they were not
    swept themselves."""
    swept = _swept_names(trials, definition)
    varied = []
    for name, counts in values.items():
        is_written = definition.config.get(name, "null") != "null"
        if is_written and name not in swept and len(counts) > 1:
            parts = [f"{value} in {counted(n, 'trial')}" for value, n in counts.items()]
            varied.append(f"{name} was {_join(parts, _MOST, ', ', 'other values')}")
    return f"Not all trials had the same settings: {'; '.join(varied)}." if varied else ""


def _values_by_name(
    trials: Trials, definition: Definition, recorded: Sequence[facts.Facts]
) -> dict[str, Counter[str]]:
    """Return in how many trials each value was used: of the settings that trainings recorded, and
    of those with which the study may resume changed."""
    counts: dict[str, Counter[str]] = {}
    for fact in recorded:
        for name, value in fact.settings.items():
            counts.setdefault(name, Counter())[text(value)] += 1

    free = definition.free_keys() - counts.keys()
    for trial in trials if free else ():
        composed = read_values(trial.folder)
        for name in sorted(free & composed.keys()):
            counts.setdefault(name, Counter())[text_of(composed[name])] += 1
    return counts


def _describe_seeds(trials: Trials, definition: Definition) -> str:
    key = definition.seed_key.lstrip("+")
    fixed = definition.config.get(key)

    def seeds(of: Iterable[TrialRecord]) -> str:
        different = set()
        for trial in of:
            params = without_plus(trial.params)
            different.add(str(params.get(key, fixed)))
        return ", ".join(sorted(different - {"None"}, key=lambda seed: (len(seed), seed)))

    used = seeds(trial for trial in trials if not trial.race)
    race = [trial for trial in trials if trial.race]
    sentence = f"Trials used {key} {used}." if used else ""
    if not race:
        return sentence
    count = counted(len(race), "trial")
    raced = f"In a final race the best configurations ran under {key} {seeds(race)} in {count}."
    return f"{sentence} {raced}".strip()


def _shared_settings(
    recorded: Iterable[facts.Facts], trials: Iterable[TrialRecord]
) -> dict[str, str]:
    """Return the settings that the trainings recorded and all share, as `name=value` by name."""
    settings = [fact.settings for fact in recorded if fact.settings]
    swept = {name.lstrip("+") for trial in trials for name in trial.params}
    first: Mapping[str, Any] = settings[0] if settings else {}
    shared = {}
    for name, value in first.items():
        if name not in swept and all(other.get(name) == value for other in settings):
            shared[name] = f"{name}={text(value)}"
    return shared


def _describe_machines(recorded: Iterable[facts.Facts], trials: Iterable[TrialRecord]) -> str:
    process = [fact.process for fact in recorded]
    hosts = {fact["host"] for fact in process if "host" in fact}
    if not hosts:
        return ""
    gpus = sorted({trial.attempts[-1].gpus for trial in trials if trial.attempts})
    counts = " or ".join(f"{count:.3g}" for count in gpus)
    share = f"with {counts} GPUs a trial" if any(gpus) else "without GPUs"
    models = [[fact.get("cpu_model", ""), fact.get("gpu_model", "")] for fact in process]
    sentence = f"Trials ran on {counted(len(hosts), 'host')} {share}"
    return _list(sentence, (", ".join(filter(None, pair)) for pair in models)) or f"{sentence}."


def _list(title: str, values: Iterable[str]) -> str:
    """Return a sentence with the different values, in the order of the trials; "" without any."""
    different = [*filter(None, dict.fromkeys(values))]
    return f"{title}: {_join(different)}." if different else ""


def _join(
    words: Sequence[str], most: int = _MOST, separator: str = "; ", rest: str = "more"
) -> str:
    """Return the first of these words, and how many more there are."""
    more = len(words) - most
    shown = [*words[:most], f"and {more} {rest}"] if more > 0 else words
    return separator.join(shown)


def _describe_costs(findings: Findings) -> str:
    cost = findings.costs.get("all", {})
    parts = []
    if "seconds/training" in cost:
        parts.append(f"{duration(cost['seconds/training'])} of training")
    for name, unit in _COSTS.items():
        if cost.get(name) is not None:
            parts.append(f"{cost[name]:.4g} {unit}")
    elapsed = f", in {duration(real_time_s(findings.study.rows))} of real time (h:min:s)"
    return f"All attempts took {', '.join(parts)}{elapsed}." if parts else ""
