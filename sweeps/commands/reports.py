"""sweepyard report, scaling: write the report of a study, or the scaling page of a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.base.errors import UserError
from sweeps.base.files import write_whole
from sweeps.commands import (
    MULTIRUN,
    Name,
    Open,
    Root,
    check_choice,
    check_output,
    command,
    console,
    numbers_of,
    read,
)
from sweeps.record.study import StudySnapshot
from sweeps.record.study_file import sweeps_line
from sweeps.space.grammar import space_of

if TYPE_CHECKING:
    from sweeps.show.figures.curves import Choice
    from sweeps.show.findings import Findings

Target = Annotated[
    float | None,
    typer.Option(help="scaling: objective to reach; default: target=, or what all counts reach"),
]
Figures = Annotated[
    Path | None, typer.Option(help="write all figures to this folder instead, for print")
]
Predict = Annotated[
    str, typer.Option(help="scaling: counts to forecast, as in 16,32; default: twice the largest")
]


@command()
def report(
    name: Name,
    root: Root = MULTIRUN,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="print the speed-up by GPUs, nodes or ranks")
    ] = False,
    target: Target = None,
    predict: Predict = "",
    figures: Figures = None,
    file_format: Annotated[
        str, typer.Option("--format", help="figures: pdf, svg or png; default: pdf")
    ] = "",
    metrics: Annotated[
        str, typer.Option(help="figures: metrics of the learning curves, as in loss,val_loss")
    ] = "",
    by: Annotated[
        str, typer.Option(help="figures: axis of the learning curves: step, seconds or epoch")
    ] = "",
    trials: Annotated[
        str, typer.Option(help="figures: trials of the learning curves, as in 3,7 or 0-4")
    ] = "",
    facet: Annotated[
        str, typer.Option(help="figures: learning curves by the values of a param, as in optimizer")
    ] = "",
    table: Annotated[str, typer.Option(help="print a table instead: latex, markdown or csv")] = "",
    classes: Annotated[
        bool, typer.Option("--classes", help="table: scores of each class of the best model")
    ] = False,
    methods: Annotated[
        bool, typer.Option("--methods", help="print the methods in words instead")
    ] = False,
    browser: Open = False,
    columns: Annotated[
        str,
        typer.Option(
            help="columns of the table, as in lr,val_accuracy; default: params and objectives"
        ),
    ] = "",
) -> None:
    """Write report.html and trials.csv of a study again."""
    from sweeps.show.figures import picture
    from sweeps.show.figures.curves import STEP, Choice
    from sweeps.show.findings import Findings

    if file_format:
        check_choice("--format", file_format, picture.FORMATS)
    counts = _counts(predict)
    shows_scaling = scaling or target is not None or bool(predict)
    outputs = {
        "--table": table,
        "--figures": figures,
        "--methods": methods,
        "--scaling": shows_scaling,
    }
    of_table = {"--columns": columns, "--classes": classes}
    of_figures = {
        "--format": file_format,
        "--metrics": metrics,
        "--by": by,
        "--trials": trials,
        "--facet": facet,
    }
    _check_options(outputs, of_table, of_figures)
    _check_output(outputs, browser, figures)
    study, definition = read(name, root)
    if table:
        console.print(_table(Findings(study), table, columns, classes))
    elif methods:
        from sweeps.show.methods import describe_methods

        console.print(describe_methods(Findings(study), definition))
    else:
        from sweeps.choose.sampler.importance import with_importance

        findings = Findings(with_importance(study, space_of(definition.parameters)), target, counts)
        if figures:
            numbers = tuple(numbers_of(trials))
            choice = Choice(tuple(_split(metrics)), by or STEP, numbers, facet)
            _write_figures(findings, figures, file_format or picture.FORMATS[0], choice)
        else:
            _write_page(findings, shows_scaling, browser)


def _write_figures(findings: "Findings", folder: Path, file_format: str, choice: "Choice") -> None:
    """Write the figures, and print the path of each, and why others cannot be drawn."""
    from sweeps.show.figures.picture import write_figures

    paths, problems = write_figures(findings, folder, file_format, choice)
    lines = [*map(str, paths), *problems] or [f"study {findings.study.name}: no figure has data"]
    for line in lines:
        console.print(line)


def _write_page(findings: "Findings", shows_scaling: bool, browser: bool) -> None:
    """Write the page and the CSV file, print their paths and the scaling, and open the page if
    `browser`."""
    from sweeps.show.page import report as writer
    from sweeps.show.tables import CSV, HTML
    from sweeps.show.terminal.lines import show_scaling

    folder = findings.study.folder
    if shows_scaling and not findings.scaling:
        raise _explain_no_scaling(findings.study)
    writer.write(findings)
    if shows_scaling and findings.scaling:
        show_scaling(findings.scaling)
    for path in (folder / HTML, folder / CSV):
        console.print(str(path))
    if browser:
        typer.launch(str(folder / HTML))


def _check_options(
    outputs: Mapping[str, object], of_table: Mapping[str, object], of_figures: Mapping[str, object]
) -> None:
    """Raise UserError if options conflict, or one lacks another."""
    typed = _typed(of_table)
    for option in typed:
        if not outputs["--table"]:
            raise UserError(f"{option} needs --table.\nAdd: --table latex")
    for option in _typed(of_figures):
        if not outputs["--figures"] and len(typed) < 2:
            raise UserError(f"{option} needs --figures.\nAdd: --figures figures")
    for options in (typed, _typed(outputs)):
        if len(options) > 1:
            raise UserError(f"{' and '.join(options)} conflict.\nType a command for each")


def _check_output(outputs: Mapping[str, object], browser: bool, figures: Path | None) -> None:
    """Raise UserError if there is no page to open, or figures cannot be written."""
    for option in _typed(outputs):
        if browser and option != "--scaling":
            raise UserError(
                f"{option} and --open conflict, because {option} writes no page.\nType a command"
                " for each"
            )
    if figures and figures.exists() and not figures.is_dir():
        raise UserError(
            f"--figures {figures}: the path is a file.\nChoose a folder: --figures figures"
        )


def _typed(options: Mapping[str, object]) -> list[str]:
    return [option for option, value in options.items() if value]


def _table(findings: "Findings", style: str, columns: str, classes: bool) -> str:
    """Return the table of trials with the columns that were typed, or the table of classes, in a
    style."""
    from sweeps.show.print.print_table import STYLES, render_classes, render_table

    check_choice("--table", style, STYLES)
    if classes:
        return render_classes(findings, style)
    return render_table(findings, _split(columns), style)


def _explain_no_scaling(study: StudySnapshot) -> UserError:
    """Return the error that explains why the study has no scaling page."""
    from sweeps.show.scaling import COUNTED, EPOCH_TIME
    from sweeps.show.scaling_study import count_sizes

    if count_sizes(study) > 1:
        return UserError(
            f"study {study.name}: no scaling data. None of the {len(study.rows)} trials completed"
            f" or was pruned after it reported {EPOCH_TIME} of a second epoch.\nShow the reason:"
            f" {sweeps_line('status', study.folder)}"
        )
    return UserError(
        f"study {study.name}: no scaling data. Its trials do not differ in "
        f"{', '.join(COUNTED[:-1])} or {COUNTED[-1]}"
        ", or do not"
        f" report {EPOCH_TIME}.\nSweep one, as in gpus=1,2,4, and report {EPOCH_TIME} (s) in at"
        " least two epochs; see docs/how_to/scaling.md"
    )


@command("scaling")
def scaling_of_table(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="CSV: gpus (nodes, ranks), epoch_time or total_time; see docs/how_to/scaling.md",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="page to write; default: the table's name with .html")
    ] = None,
    target: Target = None,
    predict: Predict = "",
) -> None:
    """Write a scaling page from a table of measurements."""
    from sweeps.show.page.scaling_page import render_page
    from sweeps.show.print.scaling_table import read_table
    from sweeps.show.terminal.lines import show_scaling

    scaling = read_table(table, target, _counts(predict))
    output = output or table.with_suffix(".html")
    if output.resolve() == table.resolve():
        raise UserError(
            f"--output {output}: the page would overwrite the table.\nChoose another file: --output"
            " page.html"
        )
    check_output(output, "page.html")
    write_whole(output, render_page(scaling))
    show_scaling(scaling)
    console.print(str(output))


def _split(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


def _counts(words: str) -> list[int]:
    """Return the counts of --predict. Raises UserError if the words are no such list."""
    numbers = words.replace(" ", "").split(",") if words else []
    if not all(number.isdecimal() and len(number) < 7 and int(number) for number in numbers):
        raise UserError(
            f"--predict {words}: not a list of counts from 1 to 999999.\nType: --predict 16,32"
        )
    return sorted({int(number) for number in numbers})
