"""What persons changed in a study that had begun: who, what and when."""

from collections.abc import Sequence
from datetime import datetime

from sweeps.record.study import StudySnapshot
from sweeps.results.tables import Paragraph
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from sweeps.wording import point_text

MOST = 30  # newest lines that are shown


def describe_steering(study: StudySnapshot, reads_trials: bool = True) -> list[str]:
    """Return who added and excluded points and, from the files of trials, who pruned trials, and when, oldest first."""
    lines = [(added.at, f"{added.by} added {point_text(added.params)}") for added in study.added if added.by]
    lines += [(excluded.at, f"{excluded.by} excluded {excluded.text}") for excluded in study.excluded]
    for trial in study.rows if reads_trials else ():
        newest = TrialFolder(trial.folder).newest() if trial.state is State.PRUNED else None
        if newest and (request := newest.stopped_by()):
            lines.append((request[1], f"trial {trial.number} was pruned by {request[0]}"))
    return [f"{line} at {datetime.fromtimestamp(at):%Y-%m-%d %H:%M}" for at, line in sorted(lines)]


def paragraphs(lines: Sequence[str]) -> list[Paragraph]:
    """Return the newest lines, a paragraph each, and how many are older."""
    older = len(lines) - MOST
    return [*([Paragraph(f"{older} earlier changes by persons")] if older > 0 else []), *map(Paragraph, lines[-MOST:])]
