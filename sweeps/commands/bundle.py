"""sweepyard bundle, reproduce: pack a study for other people, and run a packed study
again."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

import sweeps
from sweeps.base.errors import ExitCode, UserError
from sweeps.base.wording import counted, text
from sweeps.commands import MULTIRUN, Name, Root, check_output, command, console, read
from sweeps.record.study import StudySnapshot
from sweeps.space.space import canonical

_MOST = 10  # packages and trials that are shown
Output = Annotated[Path | None, typer.Option(help="zip file to write; default: NAME.zip")]
Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="zip file, as written by `bundle`")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="OVERRIDES", help="changes, as in epochs=1")
]
Folder = Annotated[Path | None, typer.Option(help="folder to unpack to; default: NAME_reproduced")]


@command("bundle")
def pack(name: Name, root: Root = MULTIRUN, output: Output = None) -> None:
    """Pack a study's results, code and config into a zip file."""
    from sweeps.after import bundle
    from sweeps.show.figures.picture import write_figures
    from sweeps.show.findings import Findings
    from sweeps.show.methods import describe_methods
    from sweeps.show.page import report
    from sweeps.show.tables import HTML

    study, definition = read(name, root)
    output = output or Path(f"{study.name}.zip")
    check_output(output, f"{study.name}.zip")
    findings = Findings(study)
    reproduce = f"Run the study again: `sweepyard reproduce {output.name}`"
    readme = f"# Study {study.name}\n\n{describe_methods(findings, definition)}\n\n{reproduce}\n"
    with TemporaryDirectory() as folder:
        figures, problems = write_figures(findings, Path(folder), "pdf")
        others: dict[str, Path | str] = {f"figures/{path.name}": path for path in figures}
        others |= {
            "README.md": readme,
            bundle.path_in_study(study.name, HTML): report.render_without_logs(findings),
        }
        problems += bundle.pack(study, definition, others, output)
    for line in [*problems, str(output)]:
        console.print(line)


@command()
def reproduce(file: Bundle, overrides: Overrides = None, folder: Folder = None) -> None:
    """Run a packed study again and compare the results.

    The study runs the code in the bundle.
    """
    from sweeps.after import bundle

    if not file.is_file():
        raise UserError(
            f"{file}: there is no such file.\nMake a bundle from a study: sweepyard bundle NAME"
        )
    for word in overrides or []:
        if word.lstrip("+").startswith(("hydra.sweeper.study_name=", "hydra.sweep.")):
            raise UserError(
                f"{word}: the study of a bundle keeps its name and place.\nChoose a folder:"
                " --folder NAME"
            )
    packed, folder = bundle.unpack(file, folder)
    differences = bundle.describe_package_differences(folder)
    if differences:
        more = f" and {len(differences) - _MOST} more" if len(differences) > _MOST else ""
        console.print(f"other packages: {', '.join(differences[:_MOST])}{more}")
    typed_in = bundle.app_folder(packed, folder)
    words = [*packed.command, *(overrides or [])]
    console.print(f"cd {shlex.quote(str(typed_in))} && {shlex.join(words)}")
    code = _run([sys.executable, *words[1:]], typed_in)
    if code == ExitCode.REFUSED:
        raise UserError(
            f"the command was refused, see above.\nTo change what ran in {folder}, choose another"
            " --folder"
        )
    _show_comparison(read(packed.name, folder / "study")[0], _find_new(packed.name, typed_in))
    raise SystemExit(code)


def _run(words: Sequence[str], folder: Path) -> int:
    """Run the command and return its exit code. An interrupt ends the command in its own way."""
    engine = str(Path(sweeps.__file__).parents[1])
    # where it is not installed
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), engine]))
    with subprocess.Popen(words, cwd=folder, env={**os.environ, "PYTHONPATH": paths}) as process:
        while process.poll() is None:
            try:
                process.wait()
            except KeyboardInterrupt:  # the command's, too
                continue
    return process.returncode


def _find_new(name: str, folder: Path) -> StudySnapshot:
    """Return the study that ran in the folder. Raises UserError if the command made none."""
    for file in sorted(folder.rglob(f"{name}/study.json")):
        return read(name, file.parents[1])[0]
    raise UserError(f"the command made no study {name} in {folder}.\nRead its output above")


def _show_comparison(before: StudySnapshot, now: StudySnapshot) -> None:
    """Print the results of the best trials before, and of the same params now."""
    from sweeps.show.terminal.lines import View

    present = {canonical(trial.params): trial for trial in now.rows if trial.result}
    ranked = before.top()
    pairs = []
    for trial in ranked:
        if same_params := present.get(canonical(trial.params)):
            pairs.append((trial, same_params))
    header = ["trial"]
    for name in before.objective:
        header += [f"{name} before", f"{name} now"]
    table = [header]
    for old, new in pairs[:_MOST]:
        values = zip(old.objective, new.objective, strict=False)
        table.append([old.name, *map(text, chain(*values))])
    if pairs:
        View().show(table)
    same = sum(old.objective == new.objective for old, new in pairs)
    both = counted(len(pairs), "trial")
    console.print(f"{both} with a result before and now, {same} with the same")
    if missing := len(ranked) - len(pairs):
        console.print(f"{counted(missing, 'trial')} with a result before, but not now")
    if new_trials := len(present) - len(pairs):
        console.print(f"{counted(new_trials, 'trial')} with a result now, but not before")
