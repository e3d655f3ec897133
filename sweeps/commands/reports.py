"""python -m sweeps report, scaling: write a study's page again, or that of a table."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sweeps.commands import MULTIRUN, Name, Root, app, console, read
from sweeps.errors import UserError
from sweeps.files import write_whole
from sweeps.record.grammar import space_of

Target = Annotated[float | None, typer.Option(help="scaling: the objective wanted; by default what all counts reach")]
Predict = Annotated[str, typer.Option(help="scaling: forecast these counts, as 16,32; by default twice the largest")]


@app.command()
def report(
    name: Name,
    root: Root = MULTIRUN,
    scaling: Annotated[bool, typer.Option("--scaling", help="show what more GPUs, nodes or ranks brought")] = False,
    target: Target = None,
    predict: Predict = "",
) -> None:
    """Write report.html and trials.csv again."""
    from sweeps.results import report as writer
    from sweeps.results.findings import Findings
    from sweeps.results.scaling import COUNTED, EPOCH_TIME, count_sizes
    from sweeps.results.terminal import show_scaling

    wanted, (summary, definition_) = _counts(predict), read(name, root)
    if summary.searched:
        from sweeps.choose.sampler.importance import importance

        summary = replace(summary, importance=importance(summary, space_of(definition_.parameters)))
    findings = Findings(summary, target, wanted)
    measured = findings.scaling
    if measured is None and (scaling or target is not None or wanted):
        if count_sizes(summary) > 1:
            raise UserError(
                f"study {name} has no scaling to show: none of its {len(summary.rows)} trials has completed, or was "
                f"pruned, and told {EPOCH_TIME} of an epoch after its first\nWhy: python -m sweeps status {name}"
            )
        known = f"{', '.join(COUNTED[:-1])} or {COUNTED[-1]}"
        raise UserError(
            f"study {name} has no scaling to show: for that, trials differ in {known} and report {EPOCH_TIME}\n"
            f"Sweep one, as in gpus=1,2,4, and report {EPOCH_TIME} (s) in two epochs or more, as docs/scaling.md says"
        )
    writer.write(findings)
    if measured and (scaling or target is not None or wanted):
        show_scaling(measured)
    for file in (writer.HTML, writer.CSV):
        console.print(str(summary.folder / file), soft_wrap=True)


@app.command("scaling")
def scaling_of_table(
    table: Annotated[Path, typer.Argument(help="CSV: gpus (nodes, ranks), epoch_time or total_time; docs/scaling.md")],
    output: Annotated[Path | None, typer.Option(help="the page; default: beside the table, .html")] = None,
    target: Target = None,
    predict: Predict = "",
) -> None:
    """The scaling page of a report, from numbers that were measured elsewhere."""
    from sweeps.results.scaling_page import render_page
    from sweeps.results.scaling_table import read_table
    from sweeps.results.terminal import show_scaling

    measured = read_table(table, target, _counts(predict))
    output = output or table.with_suffix(".html")
    if output.resolve() == table.resolve():
        raise UserError(f"the page would overwrite the table {table}\nName another file with --output page.html")
    if output.is_dir() or not output.parent.is_dir():
        where = f"{output} is a folder" if output.is_dir() else f"there is no folder {output.parent}"
        raise UserError(f"--output {output}: {where}\nName a file in a folder that is there")
    write_whole(output, render_page(measured))
    show_scaling(measured)
    console.print(str(output), soft_wrap=True)


def _counts(words: str) -> list[int]:
    """The counts that --predict names."""
    numbers = words.replace(" ", "").split(",") if words else []
    if not all(number.isdecimal() and len(number) < 7 and int(number) for number in numbers):
        raise UserError(f"--predict {words}: give counts from 1 to 999999, as in --predict 16,32")
    return sorted({int(number) for number in numbers})
