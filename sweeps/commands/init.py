"""sweepyard init: a project of one's own, with conf/, train.py, a cluster file, a test and a README."""

import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

from sweeps.commands import command, console
from sweeps.errors import UserError
from sweeps.hydra_parts import VERSION_BASE

_PROJECT = Path(__file__).with_name("project")
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="new folder for the project")]


@command("init")
def init(folder: Folder) -> None:
    """Write a project with configuration, a train.py and a test."""
    if folder.exists():
        line = shlex.join(["sweepyard", "init", f"{folder.absolute().name}2"])
        raise UserError(f"{folder}: it exists.\nChoose a new folder: {line}")
    aside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(_PROJECT, aside, ignore=shutil.ignore_patterns("__pycache__"))
    readme, train = aside / "README.md", aside / "train.py"
    readme.write_text(readme.read_text().replace("# myproject", f"# {folder.absolute().name}"))
    if not VERSION_BASE:  # because Hydra 1.4 warns of this argument
        train.write_text(train.read_text().replace('version_base="1.3", ', ""))
    aside.rename(folder)
    console.print(f"cd {shlex.quote(str(folder))} && python train.py -m lr=0.1,0.01")
