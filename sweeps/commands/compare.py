"""sweepyard compare: several studies side by side."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sweeps.base.errors import UserError
from sweeps.base.files import write_whole
from sweeps.commands import (
    MULTIRUN,
    Open,
    Root,
    check_output,
    command,
    complete_name,
    console,
    read,
)
from sweeps.record.definition import Definition
from sweeps.record.study import StudySnapshot
from sweeps.record.study_file import locate

_PAGE = Path("comparison.html")
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME",
        help="names of studies, or paths of their folders",
        autocompletion=complete_name,
    ),
]
Output = Annotated[Path, typer.Option(help="page to write")]


@command()
def compare(
    names: Names, root: Root = MULTIRUN, output: Output = _PAGE, browser: Open = False
) -> None:
    """Compare studies of one objective on a page."""
    from sweeps.show.page import studies, studies_page
    from sweeps.show.terminal.lines import View

    if len(names) < 2:
        raise UserError(
            f"compare {names[0]}: one study.\nAdd another name: {compare_line(names, root)} NAME"
        )
    check_output(output, str(_PAGE))
    compared = studies.compare(
        {label: study for label, (study, _) in read_all(names, root).items()}
    )
    view = View()
    for part in (
        studies.build_table(compared),
        *studies_page.test_parts(compared),
        studies.build_settings(compared),
    ):
        view.show(part)
    for problem in filter(None, (study.problem for study in compared)):
        console.print(problem)
    write_whole(output, studies_page.render_page(compared))
    console.print(str(output))
    if browser:
        typer.launch(str(output))


def compare_line(names: Sequence[str], root: Path) -> str:
    """Return the line that compares these studies."""
    root_option = [] if root == MULTIRUN else ["--root", str(root)]
    return shlex.join(["sweepyard", "compare", *root_option, *names])


def read_all(names: Sequence[str], root: Path) -> dict[str, tuple[StudySnapshot, Definition]]:
    """Return the studies and their definitions by label: the name, or the typed path if two studies
    have one name.

    Raises UserError for a study that does not exist, or was typed twice.
    """
    folders: set[Path] = set()
    located = []
    for name in names:
        study, its_root = locate(name, root)
        folder = (its_root / study).resolve()
        if folder in folders:
            raise UserError(f"study {name} was typed twice.\nRemove one of them")
        folders.add(folder)
        located.append((name, study, its_root))
    by_name = [study for _, study, _ in located]
    studies = {}
    for name, study, its_root in located:
        label = study if by_name.count(study) == 1 else name
        studies[label] = read(study, its_root)
    return studies
