"""The commands of `python -m sweeps`, a module for each or for two that belong together; and what they share."""

from contextlib import chdir
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sweeps.errors import UserError
from sweeps.launchers.slurm.queue import JobInfo, living_jobs
from sweeps.record import definition
from sweeps.record.definition import Definition, resolved
from sweeps.record.study import StudySnapshot

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="python -m sweeps: what already exists, also after its driver is gone.",
    pretty_exceptions_enable=False,
)
console = Console(highlight=False, markup=False, emoji=False)

Name = Annotated[str, typer.Argument(help="the study's name, as `list` shows it")]
Root = Annotated[Path, typer.Option(help="the folder that holds the studies")]
MULTIRUN = Path("multirun")


def read(name: str, root: Path) -> tuple[StudySnapshot, Definition]:
    """The study of this name in `root`. Raises UserError if there is none, or it cannot be read."""
    from sweeps.study.reading import read_study

    folder, definition_ = definition.find(name, root)
    return read_study(folder, definition_), definition_


def jobs_of(summary: StudySnapshot) -> list[JobInfo]:
    """What SLURM still has of a study. Raises SlurmError."""
    return living_jobs(summary.folder, (row.folder for row in summary.rows if not row.state.is_over))


def store_of(definition_: Definition) -> str:
    """The address of the study's MLflow: as it was typed, or as the environment has it, which is in no file."""
    from sweeps.tracking.store import resolve_uri

    with chdir(began_in(definition_)):
        return resolve_uri(definition_.tracking_uri and resolved(definition_.tracking_uri))


def began_in(definition_: Definition) -> Path:
    """The folder that what is relative in the study's command is seen from. Raises UserError if it is gone."""
    folder = Path(definition_.working_folder)
    if not folder.is_dir():
        raise UserError(
            f"study {definition_.name} was started in {folder}, which is not here\n"
            "Make that folder, or a link to where it is now, and type this again"
        )
    return folder


def newest_first(root: Path) -> list[str]:
    """The names of all studies."""
    files = sorted(root.glob("*/study.json"), key=lambda file: -file.stat().st_mtime)
    return [file.parent.name for file in files]
