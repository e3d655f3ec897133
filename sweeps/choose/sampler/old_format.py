"""Trials of version 1, which stored them in Optuna: read once and converted to events of the journal."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import distribution_to_json
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from sweeps.record.journal import Event
from sweeps.record.study import By
from sweeps.trial.job import State


def events_of_journal(path: Path, name: str, parameters: Mapping[str, str]) -> list[Event]:
    """Return the events of the trials in a study's `study.journal`, up to the first corrupt line."""
    whole: list[bytes] = []
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            entry = json.loads(line)
            if entry.get("line", len(whole)) != len(whole) or not line.endswith(b"\n"):
                break
        except (ValueError, AttributeError):
            break
        whole.append(line)
    with tempfile.TemporaryDirectory() as folder:
        (copy := Path(folder, "journal")).write_bytes(b"".join(whole))
        try:
            study = optuna.load_study(study_name=name, storage=JournalStorage(JournalFileBackend(str(copy))))
        except (KeyError, ValueError, IndexError, AssertionError):  # no journal of Optuna; the folders have the trials
            return []
        return [*_events(study, parameters)]


def events_of_storage(url: str, name: str, parameters: Mapping[str, str]) -> Sequence[Event]:
    """Return the events of the trials of a study in the user's storage; empty if the study is not there."""
    try:
        events = [*_events(optuna.load_study(study_name=name, storage=url), parameters)]
    except KeyError:
        return []
    for event in events:
        # Without NSGA-II's caches, because a database numbers trials differently and so they name other parents.
        shared = event.get("shared", {})
        event["shared"] = {key: value for key, value in shared.items() if ":parent:" not in key}
    return events


def _events(study: optuna.Study, parameters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    axes: Mapping[str, Any] = study.user_attrs.get("axes") or {}
    shared = dict(study._storage.get_study_system_attrs(study._study_id))
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state is not TrialState.WAITING]
    while trials and not trials[-1].user_attrs.get("end") and not _is_whole(trials[-1], parameters):
        trials.pop()  # because its driver was killed before the sampler had chosen all values
    is_grid = "axes" not in study.user_attrs and isinstance(study.user_attrs.get("point", ""), str)
    for trial in trials:
        attrs = trial.user_attrs
        if attrs.get("added"):
            outside = bool(attrs.get("outside"))
            yield {"op": "added", "name": attrs["added"], "point": attrs["by_hand"], "outside": outside}
        event = _asked(trial, axes, parameters, By.GRID if is_grid else By.SAMPLER)
        yield event | ({"shared": shared} if trial.number == 0 and shared else {})
        if forgiven := attrs.get("forgiven"):
            yield {"op": "reopened", "trial": trial.number, "forgiven": forgiven}
    ended = [(_attempts(trial), trial.number) for trial in trials if trial.user_attrs.get("end")]
    for attempts, number in sorted(ended, key=lambda end: (end[0][-1].get("ended", 0.0), end[1])):
        yield {"op": "ended", "trial": number, "attempts": attempts}


def _is_whole(trial: FrozenTrial, parameters: Mapping[str, str]) -> bool:
    """Return whether a trial has a value for each parameter without a condition."""
    unconditional = {name for name in parameters if " under " not in name}
    return "by_hand" in trial.user_attrs or (bool(trial.params) and unconditional <= set(trial.params))


def _asked(trial: FrozenTrial, axes: Mapping[str, Any], parameters: Mapping[str, str], by: By) -> dict[str, Any]:
    attrs, repeat = trial.user_attrs, trial.user_attrs.get("repeat", {})
    values = {name: axes[name][value] if name in axes else value for name, value in trial.params.items()}
    params = {name.partition(" under ")[0]: value for name, value in values.items()}
    params = dict(attrs.get("by_hand", params)) | repeat.get("seed", {})
    if repeat.get("of") is not None:
        by = By.RACE if repeat.get("race") else By.REPEAT
    elif "by_hand" in attrs:
        by = By.PERSON
    keys = {name.partition(" under ")[0] for name in parameters}
    custom = {name: kind for name, kind in trial.distributions.items() if name.partition(" under ")[0] not in keys}
    dropped = ("constraints", "fixed")
    memory: dict[str, Any] = {
        "system": {name: value for name, value in trial.system_attrs.items() if not name.startswith(dropped)},
        "distributions": {name: distribution_to_json(kind) for name, kind in custom.items()},
    }
    memory = {name: content for name, content in memory.items() if content}
    memory |= {"start": attrs["point"]} if by is By.SAMPLER and "point" in attrs else {}
    event: dict[str, Any] = {"op": "asked", "trial": trial.number, "point": params, "by": by, "memory": memory}
    optional = {"of": repeat.get("of"), "seed": repeat.get("seed")}
    optional |= {name: attrs.get(name) for name in ("folder", "added", "outside")}
    return event | {name: value for name, value in optional.items() if value is not None}


def _attempts(trial: FrozenTrial) -> list[dict[str, Any]]:
    """Return the ended attempts; if a pruned trial never began, it was infeasible."""
    attempts = [dict(attempt) for attempt in trial.user_attrs["end"]["attempts"]]
    if attempts[-1]["state"] == State.PRUNED and not any(attempt.get("began") for attempt in attempts):
        attempts[-1]["state"] = str(State.INFEASIBLE)
    return attempts
