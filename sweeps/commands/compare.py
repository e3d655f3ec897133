"""python -m sweeps compare: several studies side by side."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sweeps.base.errors import UserError
from sweeps.base.files import write_whole
from sweeps.commands import MULTIRUN, Root, check_output, command, complete_name, console, read
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
    names: Names,
    root: Root = MULTIRUN,
    output: Output = _PAGE,
    browser: Annotated[
        bool, typer.Option("--open", help="open the page in a browser, too")
    ] = False,
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
        console.print(problem, soft_wrap=True)
    write_whole(output, studies_page.render_page(compared))
    console.print(str(output), soft_wrap=True)
    if browser:
        typer.launch(str(output))


def compare_line(names: Sequence[str], root: Path) -> str:
    """Return the line that compares these studies."""
    root_option = [] if root == MULTIRUN else ["--root", str(root)]
    return shlex.join(["python", "-m", "sweeps", "compare", *root_option, *names])


def read_all(names: Sequence[str], root: Path) -> dict[str, tuple[StudySnapshot, Definition]]:
    """Return the studies and their definitions by label: the name, or the typed path if two studies
    have one name.

    Raises UserError for a study that does not exist, or was typed twice.
    """
    folders: dict[str, Path] = {}
    for name in names:
        study, its_root = locate(name, root)
        folder = its_root / study
        if folder.resolve() in (other.resolve() for other in folders.values()):
            raise UserError(f"study {name} was typed twice.\nRemove one of them")
        folders[name] = folder
    by_name = [folder.name for folder in folders.values()]
    labels = {
        name: folder.name if by_name.count(folder.name) == 1 else name
        for name, folder in folders.items()
    }
    return {labels[name]: read(folder.name, folder.parent) for name, folder in folders.items()}
