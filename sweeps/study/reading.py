"""A study that exists, as its files have it now."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sweeps.errors import UserError
from sweeps.files import CorruptFile, last_lines
from sweeps.record.definition import DONE, Definition, resume_line, sweeps_line
from sweeps.record.grammar import space_of
from sweeps.record.journal import FILE
from sweeps.record.study import StudySnapshot, TrialRecord, read_state, update_outside
from sweeps.record.writer import read
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
        searched=is_search(definition),
        done="".join(last_lines(folder / DONE, 1)),
        again=sweeps_line("best", folder),
        seed_key=definition.seed_key,
        repeats=repeats,
        size=definition.size,
    )


def read_study(folder: Path, definition: Definition) -> StudySnapshot:
    """Return the study as its driver has recorded it, and as the folders of its open trials show them.

    Raises UserError if its journal is damaged.
    """
    study = blank(folder, definition)
    try:
        if not (folder / FILE).exists():
            from sweeps.study.upgrade import in_memory

            study = in_memory(study, definition)
        else:
            study = read(study)
    except CorruptFile as error:
        raise UserError(
            f"study {definition.name}: {error}\nTo mend it, go on with: {resume_line(definition)}"
        ) from error
    space = space_of(definition.parameters)
    return replace(study, rows=[update_outside(_shown(trial), space.contains) for trial in study.rows])


def _shown(trial: TrialRecord) -> TrialRecord:
    if trial.state is State.QUEUED:
        with suppress(OSError):  # its files cannot be read now: it stands as its driver recorded it
            return read_state(trial)
    return trial


def is_search(definition: Definition) -> bool:
    """Whether a sampler chooses its trials; of a definition that does not tell, no."""
    return "GridSampler" not in definition.search.get("sampler", "GridSampler")
