"""A study that exists, read from its files."""

import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sweeps.analysis import costs
from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, last_lines
from sweeps.record.definition import Definition
from sweeps.record.narrowed import narrow, with_size
from sweeps.record.place import resume_line
from sweeps.record.study import StudySnapshot, TrialRecord, read_state, update_outside
from sweeps.record.study_file import DONE, sweeps_line
from sweeps.record.writer import read
from sweeps.space.grammar import space_of
from sweeps.space.space import SearchSpace
from sweeps.trial.job import State


def blank(folder: Path, definition: Definition) -> StudySnapshot:
    """Return a study without its trials."""
    repeats = definition.repeats
    return StudySnapshot(
        folder.name,
        folder,
        tuple(definition.objective),
        tuple(definition.directions),
        [],
        definition.total // repeats,
        fixed=definition.config,
        space=definition.parameters,
        searched=not definition.is_grid,
        done="".join(last_lines(folder / DONE, 1)),
        command=shlex.join(definition.command),
        best_command=sweeps_line("best", folder),
        seed_key=definition.seed_key,
        repeats=repeats,
        size=definition.size,
    )


def read_study(folder: Path, definition: Definition) -> StudySnapshot:
    """Return the study from its journal and from the folders of its queued trials.

    Raises UserError if its journal is damaged.
    """
    study = blank(folder, definition)
    try:
        study = read(study)
    except CorruptFile as error:
        raise UserError(
            f"study {folder.name}: {error}\nRepair it with: {resume_line(definition, folder)}"
        ) from error
    space = read_space(definition)
    contains = narrow(space, study.excluded).contains
    rows = [update_outside(_update_queued(trial), contains) for trial in study.rows]
    return replace(study, rows=rows, excluded=with_size(study, space)).with_tracking(
        costs.read_tracking_seconds(folder)
    )


def read_space(definition: Definition) -> SearchSpace:
    """Return the search space of the study's command."""
    return (
        space_of(definition.parameters)
        .with_listed(definition.listed)
        .with_excluded(definition.exclude)
    )


def _update_queued(trial: TrialRecord) -> TrialRecord:
    if trial.state is State.QUEUED:
        with suppress(OSError):  # because the recorded state is the best that is left
            return read_state(trial)
    return trial
