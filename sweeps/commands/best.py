"""python -m sweeps best, refit: what a study found, trained once more."""

import subprocess
from typing import Annotated

import typer

from sweeps.commands import MULTIRUN, Name, Root, app, began_in, console, read, store_of
from sweeps.record.study import result_of


@app.command()
def best(
    name: Name,
    root: Root = MULTIRUN,
    trial: Annotated[int | None, typer.Option(help="another one than the best, by its number")] = None,
) -> None:
    """Print the command line that trains the best trial again, and write its configuration as a file."""
    from sweeps.study import best as of_best

    summary, definition_ = read(name, root)
    front = summary.pareto_front() if trial is None else []
    if len(front) > 1:
        console.print(f"no other trial dominates one of these {len(front)}; choose with --trial")
    for row in front if len(front) > 1 else [of_best.choose_trial(summary, trial)]:
        console.print(f"# trial {row.number}: {row.name}   {result_of(row, summary)}", soft_wrap=True)
        words = of_best.command(definition_, row)
        console.print(of_best.line(words, definition_.working_folder), soft_wrap=True)
    if len(front) <= 1:
        words = of_best.write_experiment(definition_, row, summary.folder)
        console.print(f"# the same from {summary.folder / of_best.EXPERIMENT}", soft_wrap=True)
        console.print(of_best.line(words, definition_.working_folder), soft_wrap=True)


@app.command()
def refit(
    name: Name,
    root: Root = MULTIRUN,
    trial: Annotated[int | None, typer.Option(help="another one than the best, by its number")] = None,
    all_data: Annotated[bool, typer.Option("--all-data", help="also on what the study was judged by")] = False,
) -> None:
    """Train the best trial once more, keep its model, and register it in MLflow."""
    from sweeps.study import best, refit
    from sweeps.tracking.registry import register

    summary, definition_ = read(name, root)
    row = refit.choose_trial(summary, trial)
    words, folder = refit.command(definition_, summary, row, all_data)
    console.print(best.line(words, definition_.working_folder), soft_wrap=True)
    if code := subprocess.run(words, check=False, cwd=began_in(definition_)).returncode:
        raise SystemExit(code)
    again, _ = read(folder.name, folder.parent)
    trained = again.rows[0]
    kept = refit.kept_model(summary, trained)
    shown = "  ".join(f"{key}={value:.6g}" for key, value in trained.metrics.items())
    console.print(f"trial {row.number}, trained once more: {shown}\nits model: {kept}", soft_wrap=True)
    tags = refit.tags(summary, row, trained, best.overrides_of(definition_, row))
    version = register(store_of(definition_), name, trained.folder, tags)
    console.print(f"registered in MLflow: {version}" if version else "not registered: the study is in no MLflow")
