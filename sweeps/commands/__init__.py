"""The commands of `sweepyard`, a module for each command or pair of related commands, and
shared functions."""

import os
import re
import shlex
import sys
from collections.abc import Iterable
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import sweeps
from sweeps.base.errors import UserError
from sweeps.base.files import holder
from sweeps.choose import manual
from sweeps.hydra.followed import resolved
from sweeps.hydra.near import advise_names
from sweeps.launchers.slurm.follow.listing import JobInfo
from sweeps.launchers.slurm.queue import living_jobs
from sweeps.launchers.slurm.trials import driver_chain
from sweeps.record import study_file
from sweeps.record.definition import Definition
from sweeps.record.place import newest_first
from sweeps.record.study import StudySnapshot
from sweeps.show.terminal.console import SafeConsole

app = typer.Typer(
    no_args_is_help=True,
    # because a shell completes sweepyard, not python -m
    add_completion=Path(sys.argv[0]).name != "__main__.py",
    rich_markup_mode=None,  # because the framed help prints <bool> after a flag
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"sweepyard {sweeps.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="print the version and exit"
        ),
    ] = False,
) -> None:
    """Inspect, resume, stop and remove studies, running or finished."""


class _Command(TyperCommand):
    """A command whose usage line is `NAME`, not `{NAME}`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]


command = partial(app.command, cls=_Command)
console = SafeConsole(highlight=False, markup=False, emoji=False, soft_wrap=True)

MULTIRUN = Path("multirun")
_ANSWER_S = 15.0


def complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the studies that begin with the typed letters, for the shell's
    completion."""
    root = Path(context.params.get("root") or MULTIRUN)
    names = [name for name in newest_first(root) if name.startswith(incomplete)]
    names = [name for name in names if name.isprintable()]  # others cannot be typed
    is_bash = "complete_bash" in os.environ.values()
    # By backslashes, because a name has to begin with the typed letters. Other shells quote the
    # names themselves.
    return [re.sub(r"([^\w@%+=:,./-])", r"\\\1", name) for name in names] if is_bash else names


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="name of the study, as printed by `list`", autocompletion=complete_name
    ),
]


def check_root(context: typer.Context, root: Path) -> Path:
    """Return the folder of --root. Raises UserError if it is no folder, or a study itself."""
    if context.resilient_parsing or root == MULTIRUN:
        return root
    example = MULTIRUN
    if (root / "study.json").exists():
        problem = "it is a study"
        example = root.parent
    elif root.is_dir():
        return root
    else:
        problem = "it is a file" if root.exists() else "there is no such folder"
    raise UserError(
        f"--root {root}: {problem}.\nType the folder that contains the studies, as in"
        f" {shlex.join(['--root', str(example)])}"
    )


Root = Annotated[
    Path, typer.Option(help="folder that contains the studies", callback=check_root, readable=False)
]


Open = Annotated[bool, typer.Option("--open", help="open the page in a browser, too")]


def read(name: str, root: Path) -> tuple[StudySnapshot, Definition]:
    """Return the study of this name in `root`. Raises UserError if the study does not exist or
    cannot be read."""
    from sweeps.study.folder.reading import read_study

    folder, definition = study_file.find(name, root)
    return read_study(folder, definition), definition


def jobs_of(study: StudySnapshot) -> list[JobInfo]:
    """Return the study's SLURM jobs that are queued or running. Raises SlurmError."""
    return living_jobs(
        study.folder, (trial.folder for trial in study.rows if not trial.state.is_over)
    )


def has_driver(folder: Path, request: Path, answer: str) -> bool:
    """Return whether a driver runs the study, or is queued; then print its `answer` once it has
    recorded the request.

    Raises UserError if the driver refuses the request.
    """
    driver = holder(folder / "driver.lock") or next(iter(driver_chain.living(folder)), None)
    if driver is None:
        return False
    no_answer = (
        f"{driver} has not answered yet. The request is queued for this driver or the next one"
    )
    console.print(answer if manual.wait_for_driver(request, _ANSWER_S) else no_answer)
    return True


def store_of(definition: Definition) -> str:
    """Return the URI of the study's MLflow, as typed by the user or as set in the environment."""
    from sweeps.tracking.store import resolve_uri

    with chdir(working_folder(definition)):
        return resolve_uri(definition.tracking_uri and resolved(definition.tracking_uri))


def working_folder(definition: Definition) -> Path:
    """Return the folder in which the study's command was typed. Raises UserError if the folder does
    not exist."""
    folder = Path(definition.working_folder)
    if not folder.is_dir():
        raise UserError(
            f"study {definition.name}: its working folder {folder} does not exist.\n"
            "Create the folder, or a link to its new location, and repeat this command"
        )
    return folder


def check_choice(option: str, value: str, allowed: Iterable[str]) -> None:
    """Raise UserError if the value of an option is not allowed."""
    if value not in allowed:
        advice = advise_names(option, [value], [*allowed])
        raise UserError(f"{option} {value}: unknown format.\n{advice}")


def numbers_of(words: str) -> list[int]:
    """Return the numbers of --trials, as in `3,7` or `0-4`. Raises UserError for
    other words."""
    numbers: list[int] = []
    for word in words.split(",") if words else ():
        ends = re.fullmatch(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?", word)
        between = range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else ()
        if not between:
            raise UserError(
                f"--trials {words}: not a list of trial numbers.\nType numbers, as in --trials 3,7"
                " or --trials 0-4"
            )
        numbers += between
    return numbers


def check_output(output: Path, example: str) -> None:
    """Raise UserError if the file of --output cannot be written."""
    problem = "" if output.parent.is_dir() else f"there is no folder {output.parent}"
    if output.is_dir():
        problem = "the path is a folder"
    if problem:
        raise UserError(
            f"--output {output}: {problem}.\nChoose a file in an existing folder: --output"
            f" {example}"
        )
    if not os.access(output.parent, os.W_OK):
        raise UserError(
            f"--output {output}: you cannot write to the folder {output.absolute().parent}.\nChoose"
            f" another folder, as in --output ~/{output.name}"
        )
