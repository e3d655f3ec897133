"""Trials of the version before, which kept them as Optuna's: read once, and turned into events of our journal."""

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

_OURS = ("by_hand", "added", "outside")


def events_of_journal(path: Path, name: str, parameters: Mapping[str, str]) -> list[Event]:
    """Return the events that make the trials of a study's `study.journal`, as far as that is whole."""
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
        except (KeyError, ValueError, IndexError, AssertionError):  # no journal of Optuna's: the folders tell the rest
            return []
        return [*_events(study, parameters)]


def events_of_storage(url: str, name: str, parameters: Mapping[str, str]) -> Sequence[Event]:
    """Return the events that make the trials of a study in a storage of the user's; none if it is not there."""
    try:
        events = [*_events(optuna.load_study(study_name=name, storage=url), parameters)]
    except KeyError:
        return []
    return [{**event, "shared": _without_parents(event.get("shared", {}))} for event in events]


def _without_parents(shared: Mapping[str, Any]) -> dict[str, Any]:
    """Drop NSGA-II's caches: a database counts its trials in another way, so that they name other parents."""
    return {key: value for key, value in shared.items() if ":parent:" not in key}


def _events(study: optuna.Study, parameters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    axes: Mapping[str, Any] = study.user_attrs.get("axes") or {}
    storage_attrs = _system_attrs(study)
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state is not TrialState.WAITING]
    while trials and not trials[-1].user_attrs.get("end") and not _is_whole(trials[-1], parameters):
        trials.pop()  # its driver was killed while it chose
    grid = "axes" not in study.user_attrs and isinstance(study.user_attrs.get("point", ""), str)
    for trial in trials:
        if trial.user_attrs.get("added"):
            point = trial.user_attrs["by_hand"]
            outside = bool(trial.user_attrs.get("outside"))
            yield {"op": "added", "name": trial.user_attrs["added"], "point": point, "outside": outside}
        event = _asked(trial, axes, parameters, By.GRID if grid else By.SAMPLER)
        yield event | ({"shared": storage_attrs} if trial.number == 0 and storage_attrs else {})
        if forgiven := trial.user_attrs.get("forgiven"):
            yield {"op": "reopened", "trial": trial.number, "forgiven": forgiven}
    ended = [trial for trial in trials if trial.user_attrs.get("end")]
    for trial in sorted(ended, key=lambda one: (one.user_attrs["end"]["attempts"][-1].get("ended", 0.0), one.number)):
        yield {"op": "ended", "trial": trial.number, "attempts": _attempts(trial)}


def _system_attrs(study: optuna.Study) -> dict[str, Any]:
    """Return what samplers kept with the study."""
    return dict(study._storage.get_study_system_attrs(study._study_id))


def _is_whole(trial: FrozenTrial, parameters: Mapping[str, str]) -> bool:
    """Whether a trial has a value for each parameter that exists without a condition."""
    always = [name for name in parameters if " under " not in name]
    return "by_hand" in trial.user_attrs or (bool(trial.params) and set(always) <= set(trial.params))


def _asked(trial: FrozenTrial, axes: Mapping[str, Any], parameters: Mapping[str, str], by: By) -> dict[str, Any]:
    attrs, repeat = trial.user_attrs, trial.user_attrs.get("repeat", {})
    values = {name: axes[name][value] if name in axes else value for name, value in trial.params.items()}
    params = {name.partition(" under ")[0]: value for name, value in values.items()}
    params = dict(attrs.get("by_hand", params)) | repeat.get("seed", {})
    if repeat.get("of") is not None:
        by = By.RACE if repeat.get("race") else By.REPEAT
    elif "by_hand" in attrs:
        by = By.PERSON
    system = {
        name: value for name, value in trial.system_attrs.items() if not name.startswith(("constraints", "fixed"))
    }
    keys = {name.partition(" under ")[0] for name in parameters}
    own = {name: kind for name, kind in trial.distributions.items() if name.partition(" under ")[0] not in keys}
    memory: dict[str, Any] = {"system": system} if system else {}
    memory |= {"distributions": {name: distribution_to_json(kind) for name, kind in own.items()}} if own else {}
    memory |= {"start": attrs["point"]} if by is By.SAMPLER and "point" in attrs else {}
    event: dict[str, Any] = {"op": "asked", "trial": trial.number, "point": params, "by": by, "memory": memory}
    optional = {"of": repeat.get("of"), "seed": repeat.get("seed"), "folder": attrs.get("folder")}
    optional |= {"added": attrs.get("added"), "outside": attrs.get("outside")}
    return event | {name: value for name, value in optional.items() if value is not None}


def _attempts(trial: FrozenTrial) -> list[dict[str, Any]]:
    """Return how the attempts ended: what was pruned and never began was infeasible."""
    attempts = [dict(attempt) for attempt in trial.user_attrs["end"]["attempts"]]
    if attempts[-1]["state"] == State.PRUNED and not any(attempt.get("began") for attempt in attempts):
        attempts[-1]["state"] = str(State.INFEASIBLE)
    return attempts
