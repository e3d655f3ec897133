"""sweepyard ui, sync: a study in MLflow."""

import gc
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sweeps.base.errors import ExitCode, UserError
from sweeps.base.files import Lock, LockHeld
from sweeps.base.wording import counted
from sweeps.commands import MULTIRUN, Open, Root, command, complete_name, console, read, store_of
from sweeps.commands.compare import compare_line, read_all
from sweeps.commands.disk_errors import explain
from sweeps.hydra.followed import resolved
from sweeps.record import study_file
from sweeps.record.place import newest_first
from sweeps.record.study_file import sweeps_line

Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="default: 5000, or a free port if 5000 is in use"),
]
SomeOrNewest = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="names of studies, in one view; default: the newest",
        autocompletion=complete_name,
    ),
]
OneOrAll = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="name of the study; default: all that are tracked in MLflow",
        autocompletion=complete_name,
    ),
]


@command()
def ui(
    names: SomeOrNewest = None,
    root: Root = MULTIRUN,
    port: Port = None,
    browser: Open = False,
    uri: Annotated[
        str | None,
        typer.Option(help="MLflow tracking URI of runs outside of studies (single runs)"),
    ] = None,
) -> None:
    """Serve MLflow's pages and print the link to studies.

    The server listens on 127.0.0.1.
    """
    from sweeps.base.secrets import refuse_typed

    refuse_typed(uri)
    names = names or ([] if uri else newest_first(root)[:1])
    if not names and not uri and root != MULTIRUN:
        raise UserError(
            f"there are no studies in {root}\nStart one with sweep.py -m, or remove --root"
        )
    label, *more = names or ["runs"]
    store, path = _find(names, root, uri)
    _open(store, path, "comparison" if more else label, port, browser)


def _find(names: Sequence[str], root: Path, uri: str | None) -> tuple[str, str]:
    """Return the MLflow store, and the path of the view of these studies or runs."""
    if len(names) > 1:
        return _find_view(names, root, uri)
    for name in names:
        if uri is None and (root / name / "study.json").exists():
            return _find_study(name, root)
    return _find_runs("".join(names), root, uri)


def _find_study(name: str, root: Path) -> tuple[str, str]:
    """Return the study's MLflow store, and the path of its view."""
    from sweeps.tracking import comparison_view, pages

    study, definition = read(name, root)
    store = store_of(definition)
    if version := comparison_view.unknown_version():
        console.print(
            f"MLflow {version}: its saved views are unknown, so its plain list of the study's runs"
            " opens"
        )
    return store, pages.study_path(store, study.folder, study.all_failed)


def _find_runs(name: str, root: Path, uri: str | None) -> tuple[str, str]:
    """Return the MLflow store, and the path of runs outside of studies; of all experiments without
    a name."""
    from sweeps.base.secrets import without_password
    from sweeps.tracking import pages
    from sweeps.tracking.store import resolve_uri

    store = resolve_uri(uri and resolved(uri))
    path = pages.path_by_name(store, name) if name else pages.all_experiments_path(store)
    if path is None:
        if uri is None:
            study_file.find(name, root)  # raises UserError with the names of all studies
        raise UserError(f"MLflow at {without_password(store)} has no study or runs named {name}")
    return store, path


def _find_view(names: Sequence[str], root: Path, uri: str | None) -> tuple[str, str]:
    """Return the MLflow store of several studies, and the path of a view that shows all of them."""
    from sweeps.show.findings import Findings
    from sweeps.show.page.studies import ComparedStudy, check_objectives
    from sweeps.tracking import pages

    if uri:
        raise UserError("--uri is for runs outside of studies.\nRemove --uri, or type one name")
    by_label = read_all(names, root)
    check_objectives({label: study for label, (study, _) in by_label.items()})
    studies = []
    stores = []
    for label, (study, definition) in by_label.items():
        studies.append(ComparedStudy(label, Findings(study, reads_all=False)))
        stores.append(store_of(definition))
    if len({*stores}) > 1:
        raise UserError(
            f"studies {', '.join(by_label)} are in different MLflow stores.\n"
            f"Compare them on a page: {compare_line(names, root)}"
        )
    return stores[0], pages.studies_path(stores[0], studies)


def _open(store: str, path: str, name: str, port: int | None, browser: bool) -> None:
    """Print the link to a path of the store's server. Without a server, serve the store's pages
    until Ctrl-C."""
    from sweeps.base.secrets import without_password
    from sweeps.tracking import pages
    from sweeps.tracking.store import is_server

    if is_server(store):
        link = without_password(store).rstrip("/") + path
        console.print(link)
        if browser:
            typer.launch(link)
        return
    gc.enable()

    def print_link(link: str) -> None:
        console.print(f"{link}   (stop with Ctrl-C)")

    pages.serve(store, name, path, port, print_link, browser)


@command()
def sync(name: OneOrAll = None, root: Root = MULTIRUN) -> None:
    """Send the missing data of a study to MLflow.

    Use it after an outage, for detached jobs, or for a new store.
    """
    names = [name] if name else newest_first(root)
    if not names:
        raise UserError(
            f"there are no studies in {root}\nStart one with sweep.py -m, or choose their folder:"
            " --root"
        )
    complete = True
    for study_name in names:
        try:
            complete = _sync(study_name, root, by_name=name is not None) and complete
        except (UserError, OSError) as error:
            if name:
                raise
            complete = False
            console.print(explain(error) if isinstance(error, OSError) else str(error))
    raise SystemExit(ExitCode.FINISHED if complete else ExitCode.NOT_FINISHED)


def _sync(name: str, root: Path, by_name: bool) -> bool:
    """Return whether MLflow has the whole study. A study without tracking is sent if `by_name` is
    true."""
    from sweeps.tracking.tracker import Tracker

    folder, definition = study_file.find(name, root)
    if not by_name and not _setting(folder, "tracking"):
        console.print(
            f"study {name} is not tracked in MLflow. Send it: {sweeps_line('sync', folder)}"
        )
        return True
    try:
        lock = Lock(folder / "driver.lock")  # because a second writer would send the same trials
    except LockHeld as error:
        console.print(f"study {name} is being run by {error}, which keeps MLflow up to date")
        return True
    try:
        study, _ = read(name, root)
        if not study.rows:
            console.print(f"study {name} has no trials yet")
            return True
        experiment = _setting(folder, "experiment")
        command_line = shlex.join(definition.command)
        tracker = Tracker(store_of(definition), experiment, study, command_line)
        tracker.open(advice="Type this command again once it answers")
        sent, unfinished = tracker.catch_up(study)
    finally:
        lock.release()
    for line in tracker.closing_lines():
        console.print(f"study {name}: {line}")
    if tracker.problem:
        return False
    result = (
        f"sent {sent} of {len(study.rows)} trials to MLflow" if sent else "MLflow is up to date"
    )
    if unfinished:
        result += f"; {counted(unfinished, 'trial')} not ended yet"
    console.print(f"study {name}: {result}")
    console.print(tracker.dashboard_line())
    return True


def _setting(folder: Path, name: str) -> Any:
    """Return a setting of the sweeper in the study's newest command. Raises UserError if its file
    cannot be read."""
    from omegaconf import OmegaConf

    from sweeps.hydra.settings import SweeperConf

    file = folder / "multirun.yaml"
    try:
        return OmegaConf.select(
            OmegaConf.load(file), f"hydra.sweeper.{name}", default=getattr(SweeperConf, name)
        )
    except Exception as error:  # because YAML and OmegaConf raise many types for a corrupt file
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{file} cannot be read: {reason}\nTo repair the file, resume:"
            f" {sweeps_line('resume', folder)}"
        ) from error
