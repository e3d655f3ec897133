"""python -m sweeps ui, sync: a study in MLflow."""

import gc
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from sweeps.commands import MULTIRUN, Root, app, console, newest_first, read, store_of
from sweeps.errors import UserError
from sweeps.files import Lock, LockHeld
from sweeps.record import definition
from sweeps.record.definition import sweeps_line

Port = Annotated[int | None, typer.Option(min=0, max=65535, help="by default 5000, or another one if it is taken")]
OneOrNewest = Annotated[str | None, typer.Argument(help="the study's name; by default the newest study")]
OneOrAll = Annotated[str | None, typer.Argument(help="the study's name; by default all, but those kept out of MLflow")]


@app.command()
def ui(
    name: OneOrNewest = None,
    root: Root = MULTIRUN,
    port: Port = None,
    browser: Annotated[bool, typer.Option("--open", help="open it in the browser too")] = False,
    uri: Annotated[str | None, typer.Option(help="MLflow's tracking URI, of what is no study: single runs")] = None,
) -> None:
    """Serve MLflow's pages at 127.0.0.1, and print the link that leads to a study."""
    from sweeps.record.definition import resolved
    from sweeps.secrets import refuse_typed, without_password
    from sweeps.tracking import pages
    from sweeps.tracking.store import is_server, resolve_uri

    refuse_typed(uri)
    name = name or (None if uri else next(iter(newest_first(root)), None))
    if name is None and root != MULTIRUN:
        raise UserError(f"there are no studies in {root}\nStart one with sweep.py -m, or leave --root out")
    alone = uri is not None or name is None or not (root / name / "study.json").exists()
    if not alone:
        summary, definition_ = read(str(name), root)
        store = store_of(definition_)
        path: str | None = pages.study_path(store, summary.folder, summary.all_failed)
    else:
        store = resolve_uri(uri and resolved(uri))
        path = pages.path_by_name(store, name) if name else pages.all_experiments_path(store)
        if path is None:
            if uri is None:
                definition.find(str(name), root)  # raises: says which studies there are
            raise UserError(f"MLflow at {without_password(store)} has nothing of the name {name}")
    if is_server(store):
        link = without_password(store).rstrip("/") + str(path)
        console.print(link, soft_wrap=True)
        if browser:
            typer.launch(link)
        return
    gc.enable()

    def say(link: str) -> None:
        console.print(f"{link}   (Ctrl-C ends it)", soft_wrap=True)

    pages.serve(store, name or "runs", str(path), port, say, browser)


@app.command()
def sync(name: OneOrAll = None, root: Root = MULTIRUN) -> None:
    """Bring MLflow up to what the trials' folders say: after an outage, of detached jobs, or in a new store."""
    names = [name] if name else newest_first(root)
    if not names:
        raise UserError(f"there are no studies in {root}\nStart one with sweep.py -m, or say where they are: --root")
    complete = True
    for one in names:
        try:
            complete = _sync(one, root, by_name=name is not None) and complete
        except (UserError, OSError) as error:
            if name:
                raise
            complete = False  # of this study alone
            console.print(str(error), soft_wrap=True)
    raise SystemExit(0 if complete else 1)


def _sync(name: str, root: Path, by_name: bool) -> bool:
    """Whether MLflow now has all of the study. One that was kept out of MLflow is brought there by its name alone."""
    from sweeps.tracking.tracker import Tracker

    folder, definition_ = definition.find(name, root)
    if not by_name and not _setting(folder, "tracking"):
        console.print(f"study {name} was kept out of MLflow; to bring it there: {sweeps_line('sync', folder)}")
        return True
    try:
        lock = Lock(folder / "driver.lock")  # there is one writer
    except LockHeld as error:
        console.print(f"study {name} is run by {error}, which keeps MLflow up to date", soft_wrap=True)
        return True
    try:
        summary, _ = read(name, root)
        if not summary.rows:
            console.print(f"study {name} has no trials yet")
            return True
        experiment, command = str(_setting(folder, "experiment")), shlex.join(definition_.command)
        tracker = Tracker(store_of(definition_), experiment, summary, command)
        tracker.open()
        sent, going_on = tracker.catch_up(summary)
    finally:
        lock.release()
    if tracker.problem:
        console.print(f"study {name}: {tracker.problem}", soft_wrap=True)
        return False
    what = (
        f"sent {sent} of its {len(summary.rows)} trials; MLflow has all that began" if sent else "MLflow lacks nothing"
    )
    also = f"; {going_on} have not ended: it has what they wrote so far" if going_on else ""
    console.print(f"study {name}: {what}{also}", soft_wrap=True)
    console.print(tracker.dashboard_line(), soft_wrap=True)
    return True


def _setting(folder: Path, name: str) -> Any:
    """What the study's newest command said of a setting of the sweeper."""
    from omegaconf import OmegaConf

    from sweeps.settings import SweeperConf

    file = folder / "multirun.yaml"
    try:
        return OmegaConf.select(OmegaConf.load(file), f"hydra.sweeper.{name}", default=getattr(SweeperConf, name))
    except Exception as error:  # whatever a damaged file holds
        said = str(error).partition("\n")[0]
        raise UserError(
            f"{file} cannot be read: {said}\nTo mend it, go on with: {sweeps_line('resume', folder)}"
        ) from error
