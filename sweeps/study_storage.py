"""Where Optuna keeps a study, a journal in the study's folder or what the user names, and reading it from there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from sweeps.definition import Definition
from sweeps.search_space import Point
from sweeps.summary import Row, Summary
from sweeps.trial_folder import AttemptEnd, State, TrialFolder

_JOURNAL = "study.journal"


class _OneWriter:
    """No lock: the driver is the only writer of its study, and a lock file would outlive a killed driver."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


def open_storage(url: str | None, folder: Path, writes: bool = True) -> Any:
    """What Optuna takes as storage. Only the driver of the study `writes`, and may mend its journal."""
    if url is not None:
        return url
    journal = folder / _JOURNAL
    if writes and journal.exists():
        _drop_cut_line(journal)
    return _open(journal)


def read_summary(folder: Path, definition: Definition) -> Summary:
    """A study that exists, as far as its driver has recorded it."""
    study = optuna.load_study(
        study_name=definition.name, storage=open_storage(definition.storage, folder, writes=False)
    )
    trials = study.get_trials(deepcopy=False)
    rows = [row_of(trial, folder) for trial in trials if trial.state is not TrialState.WAITING]
    for row in rows:  # what ended since the last driver left, or ends right now
        result = TrialFolder(row.folder).read_result() if row.state is State.RUNNING else None
        if result is not None:
            row.take(result)
    objective, directions = tuple(definition.objective), tuple(definition.directions)
    return Summary(folder.name, folder, objective, directions, rows, definition.total)


def row_of(trial: FrozenTrial, study: Path) -> Row:
    """A trial as Optuna has it; `study` is the folder."""
    end = trial.user_attrs.get("end")
    if end is None:
        params, path = _params(trial), study / str(trial.number)
        return Row(trial.number, params, State.RUNNING if path.exists() else State.QUEUED, path)
    return Row(
        trial.number,
        _params(trial),
        State(end["state"]),
        study / end["folder"],
        objective=list(trial.values or []),
        error=end["error"],
        attempts=[AttemptEnd.of(attempt) for attempt in end["attempts"]],
    )


def _params(trial: FrozenTrial) -> Point:
    """Under the keys that a user knows, without the conditions that tell equal ones apart."""
    return {name.partition(" under ")[0]: value for name, value in trial.params.items()}


def widen(name: str, folder: Path, known: Mapping[str, BaseDistribution]) -> None:
    """Give all trials of a grid the choices of now: Optuna wants the same ones throughout a study."""
    journal, aside = folder / _JOURNAL, folder / f".{_JOURNAL}.wider"
    if not journal.exists():
        return
    _drop_cut_line(journal)
    aside.unlink(missing_ok=True)
    old = optuna.load_study(study_name=name, storage=_open(journal))
    trials = old.get_trials()
    for trial in trials:
        trial.distributions = {key: known[key] for key in trial.params}
    wider = optuna.create_study(study_name=name, storage=_open(aside), directions=old.directions)
    wider.add_trials(trials)
    aside.replace(journal)


def _open(journal: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(journal), lock_obj=_OneWriter()))  # type: ignore[arg-type]


def _drop_cut_line(journal: Path) -> None:
    """A driver killed while it wrote leaves half a line, onto which Optuna would append the next."""
    with journal.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)
