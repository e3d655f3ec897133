"""sweepyard best, refit: train the best trial of a study again."""

import subprocess
from typing import Annotated

import typer

from sweeps.commands import MULTIRUN, Name, Root, command, console, read, store_of, working_folder
from sweeps.record.study import result_of
from sweeps.record.study_file import refuse_foreign, sweeps_line

Trial = Annotated[int | None, typer.Option(help="number of the trial; default: the best trial")]


@command()
def best(
    name: Name,
    root: Root = MULTIRUN,
    trial: Trial = None,
    write: Annotated[
        bool, typer.Option("--write", help="write the trial's configuration to a file, too")
    ] = False,
) -> None:
    """Print the command that trains the best trial again.

    For several objectives, print the Pareto front.
    """
    from sweeps.after import best as best_trial

    study, definition = read(name, root)
    front = study.pareto_front() if trial is None else []
    if len(front) > 1:
        console.print(f"Pareto front: {len(front)} trials. Choose one with --trial NUMBER")
    else:
        front = [best_trial.choose_trial(study, trial)]
    for row in front:
        console.print(f"# trial {row.number}: {row.name}   {result_of(row, study)}")
        words = best_trial.command(definition, row)
        console.print(best_trial.line(words, definition.working_folder))
    if len(front) > 1:
        return
    words = best_trial.write_experiment(definition, front[0], study.folder, write)
    line = best_trial.line(words, definition.working_folder)
    if not write:
        number = "" if trial is None else f" --trial {trial}"
        writing = sweeps_line("best", study.folder)
        line = f"{writing}{number} --write && {line}"
    console.print(f"# the same trial, from {study.folder / best_trial.EXPERIMENT}")
    console.print(line)


@command()
def refit(
    name: Name,
    root: Root = MULTIRUN,
    trial: Trial = None,
    all_data: Annotated[
        bool, typer.Option("--all-data", help="train on the validation data, too")
    ] = False,
) -> None:
    """Train the best trial again and register its model in MLflow."""
    from sweeps.after import best, refit
    from sweeps.tracking.registry import register

    study, definition = read(name, root)
    row = refit.choose_trial(study, trial)
    words, folder = refit.command(definition, study, row, all_data)
    line = best.line(words, definition.working_folder)
    refuse_foreign(study.folder, line)
    console.print(line)
    if code := subprocess.run(words, check=False, cwd=working_folder(definition)).returncode:
        raise SystemExit(code)
    refitted = read(folder.name, folder.parent)[0].rows[0]
    model = refit.kept_model(study, refitted)
    metrics = "  ".join(f"{key}={value:.6g}" for key, value in refitted.metrics.items())
    console.print(f"trial {row.number} trained again: {metrics}\nmodel: {model}")
    tags = refit.tags(study, row, refitted, best.overrides_of(definition, row))
    version = register(store_of(definition), name, refitted.folder, tags)
    console.print(
        f"registered in MLflow: {version}"
        if version
        else "not registered: the study is not in MLflow"
    )
