"""sweepyard exclude: begin no further trial in a part of a study's search space."""

from typing import Annotated

import typer

from sweeps.base.errors import UserError
from sweeps.choose import manual
from sweeps.commands import MULTIRUN, Name, Root, command, console, has_driver, read
from sweeps.record.narrowed import narrow
from sweeps.record.place import resume_line
from sweeps.space.exclusion import SETTING


@command()
def exclude(
    name: Name,
    condition: Annotated[
        str, typer.Argument(metavar="CONDITION", help="as in 'lr>0.01 and optimizer=sgd'")
    ],
    root: Root = MULTIRUN,
    remove: Annotated[
        bool, typer.Option("--remove", help="remove this exclusion: its points may be tried again")
    ] = False,
) -> None:
    """Begin no further trial for which a condition holds.

    Trials that have begun go on. The study may be running. Conditions are those of
    hydra.sweeper.exclude.
    """
    from sweeps.study.folder.reading import read_space
    from sweeps.study.plan.typed_space import refuse_narrowing

    study, definition = read(name, root)
    if definition.search.get("custom_search_space", "None") != "None":
        raise UserError(
            f"exclude '{condition}': the search space of study {study.name} is code. Change the"
            " code."
        )
    if remove:
        manual.refuse_restoring(condition, study)
        request = manual.restore_points(study.folder, condition)
        if not has_driver(study.folder, request, f"no longer excluded: {condition}"):
            resume = resume_line(definition, study.folder)
            console.print(f"no longer excluded once the study resumes: {resume}")
        return
    try:
        refuse_narrowing(condition, narrow(read_space(definition), study.excluded), study)
    except UserError as error:
        # because nobody typed the setting
        raise UserError(str(error).replace(f"{SETTING}: ", "exclude ", 1)) from error
    request = manual.exclude_points(study.folder, condition)
    if not has_driver(study.folder, request, f"excluded: no further trial begins with {condition}"):
        console.print(f"excluded once the study resumes: {resume_line(definition, study.folder)}")
