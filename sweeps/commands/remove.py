"""sweepyard archive, delete: pack a study into a file, or delete it."""

from contextlib import chdir
from typing import Annotated

import typer

from sweeps.base.wording import counted
from sweeps.commands import MULTIRUN, Name, Root, command, console, store_of, working_folder
from sweeps.hydra.followed import resolved
from sweeps.record import study_file
from sweeps.record.place import unpack_line

Yes = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]


@command()
def archive(name: Name, root: Root = MULTIRUN, yes: Yes = False) -> None:
    """Pack a study into archive/NAME.tar.gz, and remove it.

    The study's runs stay in MLflow.
    """
    from sweeps.after import removal

    folder, _ = study_file.find(name, root)
    with removal.locked(folder, root):
        removal.free_archive(folder)
        yes or typer.confirm(f"pack {folder} and remove it?", abort=True)
        packed = removal.pack(folder)
    console.print(f"{packed}\nUnpack: {unpack_line(packed)}")


@command()
def delete(name: Name, root: Root = MULTIRUN, yes: Yes = False) -> None:
    """Delete a study's folder and its runs in MLflow.

    The models of the runs are deleted, too. Registered models stay.
    """
    from sweeps.after import removal
    from sweeps.tracking.registry import delete_runs

    folder, definition = study_file.find(name, root)
    with removal.locked(folder, root):
        store = store_of(definition)
        yes or typer.confirm(f"delete {folder}, and the study's runs in MLflow?", abort=True)
        count = delete_runs(store, folder)
        with chdir(working_folder(definition)):
            if definition.storage:
                from sweeps.choose.sampler.mirror import delete_study

                delete_study(resolved(definition.storage), definition.name)
        removal.delete(folder)
    console.print(f"deleted {folder}, and {counted(count, 'run')} in MLflow")
