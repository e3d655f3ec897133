"""MLflow's web pages of a study: where they are, and a server for them on this machine."""

import os
import re
import signal
import socket
import threading
import warnings
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps.errors import UserError
from sweeps.record.definition import sweeps_line
from sweeps.secrets import without_password
from sweeps.tracking import comparison_view
from sweeps.tracking.registry import run_of
from sweeps.tracking.store import artifacts_of, connect, first_line, outage_errors

_GO_ON = """<!doctype html>
<script>
// Else MLflow opens its assistant over a third of the page, the first time that it is looked at on this machine.
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true")
location.replace("%(path)s")
</script>
<a href="%(path)s">to the study</a>
"""
_HOST, _PORT = "127.0.0.1", 5000


def study_path(uri: str, study: Path, as_table: bool) -> str:
    """Where the pages of MLflow show the study in this folder, below the server's own address. Raises UserError if
    MLflow does not answer, or lacks it.
    """
    lacks = UserError(
        f"MLflow at {without_password(uri)} has no runs of study {study.name}\n"
        f"Bring them there: {sweeps_line('sync', study)}; or, if they are elsewhere, put its address into "
        "MLFLOW_TRACKING_URI"
    )
    run_id = run_of(study)
    if run_id is None or _is_missing(uri):
        raise lacks
    found = _ask(uri, lambda client: client.get_run(run_id), lacks)
    if found.info.lifecycle_stage != "active":
        raise lacks
    return comparison_view.path(found.info.experiment_id, study.name, as_table)


def path_by_name(uri: str, name: str) -> str | None:
    """The same of something that has no folder of its own, such as a day's single runs; None if MLflow lacks it."""
    if _is_missing(uri):
        return None
    wanted = comparison_view.tag_name(name)
    for experiment in _ask(uri, lambda client: client.search_experiments()):
        if wanted in experiment.tags:
            return comparison_view.path(experiment.experiment_id, name)
    return None


def all_experiments_path(uri: str) -> str:
    """Where all experiments are. Raises UserError if there is no such store."""
    if _is_missing(uri):
        said = f"there is no MLflow store at {without_password(uri)}"
        raise UserError(f"{said}\nStart one with sweep.py -m, or name a store that is there with --uri")
    return comparison_view.ALL_EXPERIMENTS


def _ask(uri: str, question: Callable[[Any], Any], lacks: UserError | None = None) -> Any:
    try:
        return question(connect(uri))
    except outage_errors() as error:
        if lacks and getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
            raise lacks from error
        raise UserError(f"MLflow at {without_password(uri)} does not answer: {first_line(error)}") from error


def _is_missing(uri: str) -> bool:
    """Whether it is a file that is not there; to ask MLflow would make it."""
    return uri.startswith("sqlite:////") and not Path(uri.removeprefix("sqlite:///")).exists()


def serve(uri: str, name: str, path: str, port: int | None, say: Callable[[str], None], browser: bool) -> None:
    """Serve MLflow's pages of this store until Ctrl-C. `say` gets a short link, which leads to `path`.

    It is what `mlflow ui` serves, in one process that holds the store's address in its environment alone. Raises
    UserError if the port is taken; None takes another one then.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an exception could be lost in one of the many modules
    listener, short = _listen(port), re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)
    link = f"http://{_HOST}:{listener.getsockname()[1]}/{short}"
    say(link)
    os.environ.update(
        {  # as mlflow.server._run_server tells the processes that it starts
            "_MLFLOW_SERVER_FILE_STORE": uri,
            "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
            "_MLFLOW_SERVER_ARTIFACT_DESTINATION": artifacts_of(uri) or "mlartifacts",
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # nothing here uses it: a dozen processes and 2 GB
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
    )
    if browser:
        threading.Thread(target=webbrowser.open, args=[link], daemon=True).start()  # a browser in a terminal blocks
    warnings.filterwarnings("ignore", module="starlette|mlflow")  # of what MLflow will have to change
    import uvicorn
    from mlflow.server.fastapi_app import app
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    app.router.routes.insert(0, Route(f"/{short}", lambda _: HTMLResponse(_GO_ON % {"path": path})))
    uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")).run(sockets=[listener])


def _listen(port: int | None) -> socket.socket:
    for wanted in (_PORT, 0) if port is None else (port,):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, wanted))
        except (OSError, OverflowError) as error:
            listener.close()
            if port is not None:
                raise UserError(
                    f"--port {port} cannot be used: {error}\nLeave it out to take one that is free"
                ) from error
        else:
            listener.listen()
            return listener
    raise AssertionError("port 0 is always free")
