"""The methods of a study in words: what was swept and how, on which machines, at which cost, and the command."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sweeps.record.costs import wall_clock_s
from sweeps.record.definition import Definition
from sweeps.record.study import TrialRecord
from sweeps.results.findings import Findings, count_states
from sweeps.results.overview import read_commit
from sweeps.trial import facts
from sweeps.trial.folder import TrialFolder
from sweeps.wording import counted, duration, printable, text

_DEFAULT_SAMPLER = "sweeps.choose.sampler.build.DefaultSampler"
_DEFAULT_NAME = "sweepyard's Gaussian process with one trial in ten by TPE"
_MOST = 8  # facts that are listed; more are counted


def describe_methods(findings: Findings, definition: Definition) -> str:
    """Return paragraphs for a paper: the search, its trials and seeds, machines, versions, costs, and the command."""
    study = findings.study
    trials = sorted(study.rows, key=lambda trial: trial.number)
    recorded = [facts.read(TrialFolder(trial.folder)) for trial in trials]
    counts = count_states(study)
    states = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.items())
    sentences = [
        _describe_search(findings, definition),
        _describe_seeds(trials, definition),
        f"Of {counted(sum(counts.values()), 'trial')}: {states}." if counts else "No trial has started.",
        f"The study ended early: {study.done}." if study.done else "",
        _describe_settings(recorded, trials),
        _describe_machines(recorded, trials),
        _list("Software", (fact.process.get("versions", "") for fact in recorded)),
        _describe_costs(findings),
    ]
    commit = read_commit(study.folder)
    place = f"Command, typed in {definition.working_folder}{f' at commit {commit}' if commit else ''}:"
    return printable("\n\n".join([" ".join(filter(None, sentences)), place, f"    {study.command}"]))


def _describe_search(findings: Findings, definition: Definition) -> str:
    study = findings.study
    goals = " and ".join(
        f"the {'highest' if direction == 'maximize' else 'lowest'} {name}"
        for name, direction in zip(study.objective, study.directions, strict=True)
    )
    spaces = {name.lstrip("+"): re.sub(",(?! )", ", ", values) for name, values in definition.parameters.items()}
    space = "; ".join(f"{name} ({values})" for name, values in spaces.items())
    space += f", except {' or '.join(f'({condition})' for condition in definition.exclude)}" * bool(definition.exclude)
    added = sum(trial.by_hand for trial in study.rows)
    further = f" A person added {counted(added, 'trial')}." if added else ""
    if not study.searched:
        tried = f"all combinations of {space}" if space else "one configuration"
        tried = f"{counted(len(definition.listed), 'listed point')} of {space}" if definition.listed else tried
        return f"Study {study.name} tried {tried} for {goals}.{further}"
    sampler, pruner = (_name_of(definition.search.get(kind)) for kind in ("sampler", "pruner"))
    if sampler == _DEFAULT_NAME and len(study.objective) > 1:
        sampler = "optuna.samplers.TPESampler"
    limit = "" if definition.n_trials == "None" else f", with a budget of {counted(int(definition.n_trials), 'trial')}"
    limit += f" of {study.repeats} seeds each" if limit and study.repeats > 1 else ""
    has_pruner = "pruner" in definition.search and pruner != "optuna.pruners.NopPruner"
    early = f"; {pruner} ended unpromising trials early" if has_pruner else ""
    earlier = definition.search.get("learn_from", "")
    learned = f" The sampler learned from {earlier}, too." if earlier else ""
    return f"Study {study.name} searched {space} for {goals}, by {sampler}{limit}{early}.{learned}{further}"


def _name_of(section: str | None) -> str:
    """Return the class of a sampler or pruner with its settings, from JSON."""
    with suppress(ValueError, AttributeError):
        content: dict[str, Any] = json.loads(section or "{}") or {}
        target = content.pop("_target_", "optuna.samplers.TPESampler")
        if target == _DEFAULT_SAMPLER:
            target = _DEFAULT_NAME
        settings = ", ".join(f"{name}={value}" for name, value in content.items() if value is not None)
        return f"{target} ({settings})" if settings else target
    return "an unknown sampler"


def _describe_seeds(trials: Sequence[TrialRecord], definition: Definition) -> str:
    key = definition.seed_key.lstrip("+")
    fixed = definition.config.get(key)

    def seeds(of: Iterable[TrialRecord]) -> str:
        own = [next((value for name, value in t.params.items() if name.lstrip("+") == key), fixed) for t in of]
        return ", ".join(sorted({str(seed) for seed in own if seed is not None}, key=lambda seed: (len(seed), seed)))

    used = seeds(trial for trial in trials if not trial.race)
    race = [trial for trial in trials if trial.race]
    sentence = f"Trials used {key} {used}." if used else ""
    if not race:
        return sentence
    count = counted(len(race), "trial")
    return f"{sentence} In a final race the best configurations ran under {key} {seeds(race)} in {count}.".strip()


def _describe_settings(recorded: Iterable[facts.Facts], trials: Iterable[TrialRecord]) -> str:
    """Return the recorded settings that all trials shared."""
    settings = [fact.settings for fact in recorded if fact.settings]
    swept = {name.lstrip("+") for trial in trials for name in trial.params}
    first: Mapping[str, Any] = settings[0] if settings else {}
    shared = [name for name, value in first.items() if all(other.get(name) == value for other in settings)]
    words = [f"{name}={text(first[name])}" for name in shared if name not in swept]
    return f"Each training used {', '.join(words)}." if words else ""


def _describe_machines(recorded: Iterable[facts.Facts], trials: Iterable[TrialRecord]) -> str:
    process = [fact.process for fact in recorded]
    gpus = sorted({trial.attempts[-1].gpus for trial in trials if trial.attempts})
    counts = (f"{count:.3g}" for count in gpus)
    share = f"with {' or '.join(counts)} GPUs a trial" if any(gpus) else "without GPUs"
    names = (f"{fact.get('cpu_model', '')}, {fact.get('gpu_model', '')}".strip(", ") for fact in process)
    hosts = {fact["host"] for fact in process if "host" in fact}
    sentence = f"Trials ran on {counted(len(hosts), 'host')} {share}"
    return (_list(sentence, names) or f"{sentence}.") if hosts else ""


def _list(title: str, values: Iterable[str]) -> str:
    """Return a sentence with the different values, in the order of the trials; "" without any."""
    different = [*filter(None, dict.fromkeys(values))]
    more = f"; and {len(different) - _MOST} more" if len(different) > _MOST else ""
    return f"{title}: {'; '.join(different[:_MOST])}{more}." if different else ""


def _describe_costs(findings: Findings) -> str:
    cost = findings.costs.get("all", {})
    parts = [f"{duration(cost['seconds/training'])} of training"] if "seconds/training" in cost else []
    parts += [f"{cost['gpu_hours']:.4g} GPU-hours"] if cost.get("gpu_hours") else []
    parts += [f"{cost['energy_kwh']:.4g} kWh of the GPUs' energy"] if "energy_kwh" in cost else []
    parts += [f"{cost['co2_g']:.4g} g of CO2 for this energy"] if "co2_g" in cost else []
    elapsed = f", within {duration(wall_clock_s(findings.study.rows))} (h:min:s)"
    return f"All attempts took {', '.join(parts)}{elapsed}." if parts else ""
