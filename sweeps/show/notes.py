"""The notes that trials leave for readers of their results (`Trial.note`)."""

from collections import Counter
from collections.abc import Mapping

from sweeps.base.wording import text
from sweeps.record.inside import is_inside
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.show.tables import Paragraph
from sweeps.trial.folder import Note, TrialFolder

_MOST_NAMES = 20


def collect_notes(study: StudySnapshot) -> dict[str, Note]:
    """Return the notes of all trials by subject, equal notes once.

    If only some of the trials left a note, their numbers follow its subject, unless it is the
    subject's only table row.
    """
    notes: dict[tuple[str, str], Note] = {}
    numbers: dict[tuple[str, str], list[str]] = {}
    for trial in study.rows:
        for subject, note in _read(trial, study).items():
            key = subject, text_of(note)
            notes.setdefault(key, note)
            numbers.setdefault(key, []).append(str(trial.number))
    counts = Counter(subject for subject, _ in notes)
    by_subject = {}
    for key, note in notes.items():
        subject = key[0]
        is_only_row = isinstance(note, dict) and counts[subject] == 1
        if len(numbers[key]) < len(study.rows) and not is_only_row:
            subject += f" (trial {text_of(numbers[key])})"
        by_subject[subject] = note
    return by_subject


def _read(trial: TrialRecord, study: StudySnapshot) -> dict[str, Note]:
    if not is_inside(trial.folder / "notes.json", study.folder):
        return {}
    return TrialFolder(trial.folder).notes()


def paragraphs(notes: Mapping[str, Note]) -> list[Paragraph]:
    """Return the notes that are words: the table of trials shows the notes that are numbers."""
    return [
        Paragraph(f": {text_of(note)}", subject)
        for subject, note in notes.items()
        if not isinstance(note, dict)
    ]


def numbers(notes: Mapping[str, Note]) -> dict[str, dict[str, float]]:
    """Return the notes that are numbers, by subject: rows of the tables of trials."""
    return {subject: note for subject, note in notes.items() if isinstance(note, dict)}


def text_of(note: Note) -> str:
    """Return a note in words, with at most 20 of its names."""
    if isinstance(note, str):
        # because the name of a file may contain any bytes
        return note.encode(errors="backslashreplace").decode()
    names = (
        [f"{name}={text(note[name])}" for name in note]
        if isinstance(note, dict)
        else [*map(str, note)]
    )
    more = [f"and {len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return text_of(", ".join([*names[:_MOST_NAMES], *more]))
