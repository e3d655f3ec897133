"""What trials noted for whoever reads their results (`Trial.note`), as a study shows it."""

from collections.abc import Mapping, Sequence

from sweeps.record.study import TrialRecord
from sweeps.results.tables import Paragraph
from sweeps.trial.folder import Note, TrialFolder
from sweeps.wording import text

_MOST_NAMES = 20


def of_study(rows: Sequence[TrialRecord]) -> dict[str, Note]:
    """Each note once, by its subject and, if they are not all, the trials that it is of."""
    found: dict[tuple[str, str], tuple[Note, list[str]]] = {}
    for row in rows:
        for subject, note in TrialFolder(row.folder).notes().items():
            found.setdefault((subject, text_of(note)), (note, []))[1].append(str(row.number))
    whom = {said: "" if len(of) == len(rows) else f" (trial {text_of(of)})" for said, (_, of) in found.items()}
    return {said[0] + whom[said]: note for said, (note, _) in found.items()}


def paragraphs(noted: Mapping[str, Note]) -> list[Paragraph]:
    """What was noted in words: numbers stand in the table of trials."""
    return [Paragraph(f": {text_of(note)}", subject) for subject, note in noted.items() if not isinstance(note, dict)]


def text_of(note: Note) -> str:
    if isinstance(note, str):
        return note.encode(errors="backslashreplace").decode()  # a file's name may hold any bytes
    shown = [f"{name}={text(note[name])}" for name in note] if isinstance(note, dict) else [*map(str, note)]
    more = [f"and {len(shown) - _MOST_NAMES} more"] if len(shown) > _MOST_NAMES else []
    return text_of(", ".join([*shown[:_MOST_NAMES], *more]))
