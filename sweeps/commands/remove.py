"""python -m sweeps archive, delete: put a study away."""

from contextlib import chdir
from typing import Annotated

import typer

from sweeps.commands import MULTIRUN, Name, Root, app, began_in, console, store_of
from sweeps.record import definition
from sweeps.wording import counted

Yes = Annotated[bool, typer.Option("--yes", help="do it without asking")]


@app.command()
def archive(name: Name, root: Root = MULTIRUN, yes: Yes = False) -> None:
    """Pack a study's folder into archive/NAME.tar.gz beside it; MLflow keeps its runs."""
    from sweeps.study import removal

    folder, _ = definition.find(name, root)
    with removal.taken(folder):
        yes or typer.confirm(f"pack {folder} and remove it?", abort=True)
        packed = removal.pack(folder)
    console.print(f"{packed}\nunpack it with: {definition.unpack_line(packed)}", soft_wrap=True)


@app.command()
def delete(name: Name, root: Root = MULTIRUN, yes: Yes = False) -> None:
    """Delete a study: its folder, and its runs in MLflow with their models. Registered models stay."""
    from sweeps.study import removal
    from sweeps.tracking.registry import delete_runs

    folder, definition_ = definition.find(name, root)
    with removal.taken(folder):
        yes or typer.confirm(f"delete {folder}, and the study's runs in MLflow?", abort=True)
        count = delete_runs(store_of(definition_), folder)
        with chdir(began_in(definition_)):
            _forget(definition_)
        removal.delete(folder)
    console.print(f"deleted {folder}, and {counted(count, 'run')} in MLflow", soft_wrap=True)


def _forget(definition_: definition.Definition) -> None:
    """Delete the study from a storage of the user's."""
    if definition_.storage:
        from sweeps.choose.sampler.mirror import delete_study

        delete_study(definition.resolved(definition_.storage), definition_.name)
