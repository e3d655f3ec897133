"""sweepyard init: a project of one's own, with conf/, train.py, a cluster file, a test and a
README."""

import shlex
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from sweeps.base.errors import UserError
from sweeps.commands import command, console
from sweeps.hydra.parts import VERSION_BASE

_PROJECT = Path(__file__).with_name("project")
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="new folder for the project")]


@command("init")
def init(folder: Folder) -> None:
    """Write a project with configuration, a train.py and a test."""
    if folder.exists():
        named = folder if folder.name else folder.absolute()
        line = shlex.join(["sweepyard", "init", str(_free(named))])
        raise UserError(f"{folder}: it exists.\nChoose a new folder: {line}")
    parent = folder.absolute().parent
    if not parent.is_dir():
        line = shlex.join(["mkdir", "-p", str(folder.parent)])
        raise UserError(f"{folder}: there is no folder {folder.parent}.\nMake it first: {line}")
    with TemporaryDirectory(dir=parent, prefix=f".{folder.name}.") as made:
        aside = Path(made) / "project"
        _write_project(aside, folder.absolute().name)
        aside.rename(folder)
    console.print(f"cd {shlex.quote(str(folder))} && python train.py -m lr=0.1,0.01")


def _free(folder: Path) -> Path:
    """Return a path near that of a folder, or of a file, which does not exist."""
    stem = folder.name if folder.is_dir() else folder.stem
    names = [*([] if folder.is_dir() else [stem]), *(f"{stem}{number}" for number in range(2, 100))]
    return next(folder.with_name(name) for name in names if not folder.with_name(name).exists())


def _write_project(aside: Path, name: str) -> None:
    """Write the project's files into a new folder."""
    shutil.copytree(_PROJECT, aside, ignore=shutil.ignore_patterns("__pycache__"))
    readme = aside / "README.md"
    train = aside / "train.py"
    readme.write_text(readme.read_text().replace("# myproject", f"# {name}"))
    if not VERSION_BASE:  # because Hydra 1.4 warns of this argument
        train.write_text(train.read_text().replace('version_base="1.3", ', ""))
