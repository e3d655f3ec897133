"""What persons changed in a study that had begun: who, what and when."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from sweeps.base.files import CorruptFile
from sweeps.base.wording import point_text
from sweeps.record.study import StudySnapshot
from sweeps.record.study_file import read
from sweeps.show.tables import Paragraph
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State

MOST = 30  # newest lines that are shown


def describe_steering(study: StudySnapshot, reads_trials: bool = True) -> list[str]:
    """Return who added and excluded points, extended the study and, from the files of trials,
    pruned trials, and when.

    The oldest change is the first.
    """
    lines = [*_describe_extensions(study)]
    lines += [
        (added.at, f"{added.by} added {point_text(added.params)}")
        for added in study.added
        if added.by
    ]
    exclusions = [*study.excluded]
    for restored in study.restored:
        exclusions += restored.excluded
        lines.append((restored.at, f"{restored.by} removed the exclusion of {restored.text}"))
    lines += [(excluded.at, f"{excluded.by} excluded {excluded.text}") for excluded in exclusions]
    for trial in study.rows if reads_trials else ():
        newest = TrialFolder(trial.folder).newest() if trial.state is State.PRUNED else None
        if newest and (request := newest.stopped_by()):
            lines.append((request[1], f"trial {trial.number} was pruned by {request[0]}"))
    return [f"{line}{_describe_time(at)}" for at, line in sorted(lines)]


def _describe_time(at: float) -> str:
    """Return a time in words; empty if it is unknown."""
    return f" at {datetime.fromtimestamp(at):%Y-%m-%d %H:%M}" if at else ""


def _describe_extensions(study: StudySnapshot) -> Iterator[tuple[float, str]]:
    with suppress(FileNotFoundError, CorruptFile):
        for extension in read(study.folder).extended:
            yield (
                extension["at"],
                f"{extension.get('by')} extended the study: {extension.get('values')}",
            )


def paragraphs(lines: Sequence[str]) -> list[Paragraph]:
    """Return the newest lines, a paragraph each, and how many are older."""
    older = len(lines) - MOST
    return [
        *([Paragraph(f"{older} earlier changes by persons")] if older > 0 else []),
        *map(Paragraph, lines[-MOST:]),
    ]
