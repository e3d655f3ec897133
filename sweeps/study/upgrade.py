"""Studies of version 1, which kept their trials in Optuna's journal, or in a storage of the user."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweeps.errors import UserError
from sweeps.files import CorruptFile
from sweeps.record.definition import Definition
from sweeps.record.fold import Fold
from sweeps.record.followed import resolved
from sweeps.record.journal import FILE, Event
from sweeps.record.study import StudySnapshot
from sweeps.record.writer import Record
from sweeps.secrets import without_password

JOURNAL = "study.journal"


def events(folder: Path, definition: Definition) -> Sequence[Event]:
    """Return the events that rebuild the trials of an older study; none for a study of this version.

    Raises UserError if the user's storage does not answer.
    """
    journal = folder / JOURNAL
    if not journal.exists() and (definition.version > 1 or definition.storage is None):
        return []
    from sweeps.choose.sampler import old_format

    if journal.exists():
        return old_format.events_of_journal(journal, definition.name, definition.parameters)
    assert definition.storage
    try:
        return old_format.events_of_storage(resolved(definition.storage), definition.name, definition.parameters)
    except UserError:
        raise
    except Exception as error:  # because each database has its own
        reason = without_password(str(error).splitlines()[0])
        raise UserError(f"hydra.sweeper.storage cannot be used: {reason}") from error


def in_memory(study: StudySnapshot, definition: Definition) -> StudySnapshot:
    """Return an older study with its trials, without writing. Raises CorruptFile if no trial can be read."""
    fold = Fold(study.folder)
    for event in events(study.folder, definition):
        fold.apply(event)
    if not fold.trials:
        name = JOURNAL if (study.folder / JOURNAL).exists() else FILE
        raise CorruptFile(study.folder / name, "it is damaged, or empty")
    return replace(study, rows=tuple(fold.trials), added=tuple(fold.added), changes=tuple(fold.changes))


def open_record(study: StudySnapshot, definition: Definition, fixed: Sequence[str] = ()) -> Record:
    """Return the record of a study for its driver. An older study's journal is converted once, and kept.

    `fixed` are the overrides of all trials.
    """
    record = Record(study)
    first = [] if (study.folder / FILE).exists() else events(study.folder, definition)
    record.open(first, [*definition.command, *fixed])
    return record
