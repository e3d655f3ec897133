"""What trials noted for whoever reads their results (`Trial.note`), as a study shows it."""

from collections.abc import Mapping, Sequence

from sweeps.results.summary import Row
from sweeps.trial.folder import Note, TrialFolder

_MOST_NAMES = 20


def of_study(rows: Sequence[Row]) -> dict[tuple[str, str], Note]:
    """Each note once, by its subject and the trials that it is of, in words; empty if it is of all."""
    found: dict[tuple[str, str], tuple[Note, list[int]]] = {}
    for row in rows:
        for subject, note in TrialFolder(row.folder).notes().items():
            found.setdefault((subject, text_of(note)), (note, []))[1].append(row.number)
    return {
        (subject, "" if len(numbers) == len(rows) else f"trial {', '.join(map(str, numbers))}"): note
        for (subject, _), (note, numbers) in found.items()
    }


def text_of(note: Note) -> str:
    if isinstance(note, Mapping):
        return ", ".join(
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in note.items()
        )
    if isinstance(note, str):
        return note
    more = f", and {len(note) - _MOST_NAMES} more" if len(note) > _MOST_NAMES else ""
    return ", ".join(map(str, note[:_MOST_NAMES])) + more
