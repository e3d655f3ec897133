"""MLflow's web pages of a study: their addresses, and a server for them on this machine."""

import os
import re
import signal
import socket
import threading
import warnings
import webbrowser
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from sweeps.base.errors import UserError
from sweeps.base.secrets import without_password
from sweeps.record.study_file import sweeps_line
from sweeps.show.page.studies import ComparedStudy, build_settings
from sweeps.tracking import comparison_view
from sweeps.tracking.registry import run_of
from sweeps.tracking.run_data import mlflow_name, names_by_log
from sweeps.tracking.store import artifacts_of, connect, first_line, is_missing, outage_errors

_REDIRECT = """<!doctype html>
<script>
// Because MLflow otherwise opens its assistant over a third of the page on the first visit from
// this machine.
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true")
location.replace("%(path)s")
</script>
<a href="%(path)s">to the study</a>
"""
_HOST = "127.0.0.1"
_PORT = 5000
_MOST_OTHERS = 50  # names in a filter, because MLflow joins a table for each, and SQLite joins 64
_MOST_RUNS = 200  # in a filter, because the tag that stores it has at most 20,000 characters


def study_path(uri: str, study: Path, as_table: bool) -> str:
    """Return the path, on the MLflow server, of the page of the study in this folder.

    Raises UserError if MLflow does not answer or lacks the study.
    """
    return comparison_view.path(_run_of(uri, study).info.experiment_id, study.name, as_table)


def _run_of(uri: str, study: Path) -> Any:
    """Return the run of the study in this folder. Raises UserError if MLflow does not answer or
    lacks the study."""
    missing = UserError(
        f"MLflow at {without_password(uri)} has no runs of study {study.name}\nSend them:"
        f" {sweeps_line('sync', study)}; or set MLFLOW_TRACKING_URI to the address of the store"
        " that has them"
    )
    run_id = run_of(study)
    if run_id is None or is_missing(uri):
        raise missing
    run = _query(uri, lambda client: client.get_run(run_id), missing)
    if run.info.lifecycle_stage != "active":
        raise missing
    return run


def studies_path(uri: str, studies: Sequence[ComparedStudy]) -> str:
    """Store a view of several studies, and return its path; for studies of several experiments, the
    list of trials.

    Raises UserError if MLflow does not answer or lacks a study.
    """
    runs = [_run_of(uri, each.study.folder) for each in studies]
    experiments = list(dict.fromkeys(run.info.experiment_id for run in runs))
    if len(experiments) > 1:
        return comparison_view.path_of_experiments(experiments)
    experiment = experiments[0]
    names = [run.data.tags["study"] for run in runs]
    where = _where(studies, _other_studies(uri, experiment, names))
    view = _view_of(studies, names, where)
    _query(uri, lambda client: client.set_experiment_tag(experiment, *view.tag))
    return comparison_view.path(experiment, view.study)


def _other_studies(uri: str, experiment: str, names: Sequence[str]) -> list[str]:
    """Return the names of the experiment's studies but these, sorted."""
    runs = _query(uri, lambda client: client.search_runs([experiment], "tags.role = 'study'"))
    all_names = {run.data.tags.get("study", "") for run in runs}
    return sorted(all_names.difference(names))


def _where(studies: Sequence[ComparedStudy], others: Sequence[str]) -> str:
    """Return the filter of the trials of these studies, in an experiment with `others`."""
    trials = [trial for each in studies for trial in each.study.rows]
    is_final = len(trials) <= _MOST_RUNS and all(trial.state.is_settled for trial in trials)

    # Because a study that begins later would be in a view that leaves out others.
    if not is_final and len(others) <= _MOST_OTHERS:
        return _leave_out(others)

    # of many trials the best
    by_rank = chain.from_iterable(zip_longest(*(each.findings.ranked for each in studies)))
    best = [trial for trial in by_rank if trial]
    run_ids = filter(None, [run_of(trial.folder) for trial in best[: 2 * _MOST_RUNS]])
    quoted = [comparison_view.quote(run_id) for run_id in run_ids]
    return f"attributes.run_id IN ({', '.join(quoted[:_MOST_RUNS])})"


def _view_of(
    studies: Sequence[ComparedStudy], names: Sequence[str], where: str
) -> comparison_view.View:
    first = studies[0].study
    _, *rows = build_settings(studies)
    settings = [row[0] for row in rows if not row[0].endswith("_target_")]
    params = [mlflow_name(name) for name in settings]
    shared = {name for name in settings if all(each.is_in_all_trials(name) for each in studies)}
    numbers = [mlflow_name(name) for name in first.numbers()]
    rows_of_all = chain.from_iterable(each.study.rows for each in studies)
    reported = chain.from_iterable(row.metrics for row in rows_of_all)
    log_names = [set(names_by_log(each.study.space).values()) for each in studies]
    return comparison_view.View(
        study=", ".join(names),
        params=params,
        objective=[mlflow_name(name) for name in first.objective],
        maximize=first.directions[0] == "maximize",
        curves=dict.fromkeys(map(mlflow_name, reported)),  # in the order in which they appear
        numbers=[name for name in numbers if name in params],
        lacking=[mlflow_name(name) for name in settings if name not in shared],
        where=where,
        logarithms=set.intersection(*log_names),
    )


def _leave_out(others: Sequence[str]) -> str:
    """Return the filter of the trials of all studies of an experiment but these."""
    conditions = [f"tags.study != {comparison_view.quote(name)}" for name in others]
    return " AND ".join([*conditions, comparison_view.TRIALS])


def path_by_name(uri: str, name: str) -> str | None:
    """Return the path of runs that have no study folder, such as a day's single runs; None if
    MLflow lacks them."""
    if is_missing(uri):
        return None
    tag_name = comparison_view.tag_name(name)
    for experiment in _query(uri, lambda client: client.search_experiments()):
        if tag_name in experiment.tags:
            return comparison_view.path(experiment.experiment_id, name)
    return None


def all_experiments_path(uri: str) -> str:
    """Return the path of the page of all experiments. Raises UserError if the store does not
    exist."""
    if is_missing(uri):
        raise UserError(
            f"there is no MLflow store at {without_password(uri)}\n"
            "Create it with sweep.py -m, or choose an existing store with --uri"
        )
    return comparison_view.ALL_EXPERIMENTS


def _query(uri: str, query: Callable[[Any], Any], missing: UserError | None = None) -> Any:
    try:
        return query(connect(uri))
    except outage_errors() as error:
        if missing and getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
            raise missing from error
        raise UserError(
            f"MLflow at {without_password(uri)} does not answer: {first_line(error)}"
        ) from error


def serve(
    uri: str, name: str, path: str, port: int | None, say: Callable[[str], None], browser: bool
) -> None:
    """Serve MLflow's pages of this store until Ctrl-C, as `mlflow ui` does, and pass `say` a short
    link to `path`.

    One process serves them, with the store's address in its environment alone. If `port` is None
    and 5000 is taken, a free port is used. Raises UserError if `port` is taken.
    """
    # because one of many modules could swallow a KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    listener = _listen(port)
    short_name = re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)
    link = f"http://{_HOST}:{listener.getsockname()[1]}/{short_name}"
    say(link)
    os.environ.update(
        {  # as mlflow.server._run_server sets them for the processes that it starts
            "_MLFLOW_SERVER_FILE_STORE": uri,
            "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
            "_MLFLOW_SERVER_ARTIFACT_DESTINATION": artifacts_of(uri) or "mlartifacts",
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
            # because jobs, unused here, take a dozen processes and 2 GB
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
    )
    if browser:  # in a thread, because a browser in a terminal blocks
        threading.Thread(target=webbrowser.open, args=[link], daemon=True).start()
    # because only MLflow can fix its deprecated calls
    warnings.filterwarnings("ignore", module="starlette|mlflow")
    import uvicorn
    from mlflow.server.fastapi_app import app
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    app.router.routes.insert(
        0, Route(f"/{short_name}", lambda _: HTMLResponse(_REDIRECT % {"path": path}))
    )
    uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")).run(sockets=[listener])


def _listen(port: int | None) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, _PORT if port is None else port))
    except (OSError, OverflowError) as error:
        if port is not None:
            listener.close()
            raise UserError(
                f"--port {port} cannot be used: {error}\nRemove --port to use a free port"
            ) from error
        listener.bind((_HOST, 0))  # a free port
    listener.listen()
    return listener
