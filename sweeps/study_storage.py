"""Where Optuna keeps a study: a journal in the study's folder, or what the user names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

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
