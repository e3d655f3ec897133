"""MLflow's store: how to reach it, what its errors mean, and where its files are."""

import logging
import os
import re
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sweeps.base.errors import UserError
from sweeps.base.files import write_once
from sweeps.base.secrets import without_password

_DEFAULT = "sqlite:///mlflow.db"
_DEFAULT_EXPERIMENT = "sweepyard"
EXPERIMENT_NAME = "MLFLOW_EXPERIMENT_NAME"
EXPERIMENT_ID = "MLFLOW_EXPERIMENT_ID"
_MOST_LETTERS = 500  # of the name of an experiment
_HOST_AND_PORT = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):\d+(/.*)?")
UNWANTED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
# not PERMISSION_DENIED, because logins expire
_REFUSALS = (*UNWANTED, "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE")
# because these links open MLflow's GenAI pages
QUIET = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
_ENVIRONMENT = {
    # because without these three a call to a server that is gone blocks for four minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    **QUIET,
}


def resolve_uri(uri: str | None) -> str:
    """Return the address of the store: `uri`, or else what the environment names, or else
    ./mlflow.db.

    Raises UserError for the address of a server without http://, which MLflow would take for a
    folder.
    """
    variable = os.environ.get("MLFLOW_TRACKING_URI")
    address = uri or variable or _DEFAULT
    if _HOST_AND_PORT.fullmatch(address):
        setting = "tracking.uri" if uri else "MLFLOW_TRACKING_URI"
        shown = without_password(address)
        raise UserError(
            f"{setting}={shown}: the address of a server begins with http:// or https://.\n"
            f"Type {setting}=http://{shown} (in other apps:"
            f" hydra.sweeper.tracking_uri=http://{shown})"
        )
    return _absolute(address)


def resolve_experiment(name: str | None, recorded: str | None = None) -> str:
    """Return the name of the experiment: `name`, or else the study's `recorded` one, or what the
    environment names.

    Empty if MLFLOW_EXPERIMENT_ID alone names it. Raises UserError if MLflow allows no such name.
    """
    chosen = name
    if chosen is None:
        chosen = recorded or os.environ.get(EXPERIMENT_NAME)
        if not chosen and os.environ.get(EXPERIMENT_ID):
            return ""
        chosen = chosen or _DEFAULT_EXPERIMENT
    if not 0 < len(chosen) <= _MOST_LETTERS:
        problem = f"tracking.experiment={chosen[:40]}: {len(chosen)} letters, which MLflow refuses"
        advice = f"Type a name of 1 to {_MOST_LETTERS} letters: tracking.experiment=mine"
        raise UserError(f"{problem}.\n{advice} (in other apps: hydra.sweeper.experiment=mine)")
    return chosen


def explain(error: Exception) -> str:
    """Return why MLflow does not use a store, where its own words mislead: an address without one
    of its schemes, or a database of a newer MLflow; empty for another error.

    MLflow calls every schema that it does not know out-of-date, and advises an upgrade, which
    cannot lower a version.
    """
    schemes = getattr(error, "supported_uri_schemes", ())
    if schemes:
        addresses = ", ".join(f"{scheme}:..." for scheme in schemes if scheme)
        return f"its stores are a path, {addresses}"

    schema = re.search(r"database schema \(found version (\w+)", str(error))
    if schema is None:
        return ""
    from mlflow.store import db_migrations

    versions = Path(*db_migrations.__path__) / "versions"
    if next(versions.glob(f"{schema[1]}_*.py"), None):
        return ""
    from importlib.metadata import version

    return f"it was made by a newer MLflow than {version('mlflow')}, which is installed here"


def is_usual(uri: str) -> bool:
    """Return whether a command without --uri finds this store."""
    return uri in (_absolute(_DEFAULT), os.environ.get("MLFLOW_TRACKING_URI"))


def is_server(uri: str) -> bool:
    """Return whether the store is a server, which shows its own pages."""
    return uri.startswith(("http://", "https://"))


def is_missing(uri: str) -> bool:
    """Return whether the store is an SQLite file that does not exist: MLflow would create it when
    queried."""
    file = _sqlite_file(uri)
    return file is not None and not file.exists()


def identity(uri: str) -> tuple[int, int] | None:
    """Return device and inode of an SQLite file; None for another kind of store, or if there is no
    file."""
    with suppress(OSError):
        if file := _sqlite_file(uri):
            status = file.stat()
            return status.st_dev, status.st_ino
    return None


def _absolute(uri: str) -> str:
    """Return `uri` with an absolute path if it names an SQLite file: a trial may have another
    working folder."""
    database = uri.removeprefix("sqlite:///")
    return uri if database == uri or "file:" in uri else f"sqlite:///{Path(database).absolute()}"


def _sqlite_file(uri: str) -> Path | None:
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:////") else None


_ONCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
_once = threading.Lock()


@contextmanager
def sent_once() -> Iterator[None]:
    """Send the requests within once, and wait longer for an answer, because a repeated creation
    makes a second run."""
    with _once:
        before = {name: os.environ.get(name) for name in _ONCE}
        os.environ.update(_ONCE)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value


def is_refusal(error: Exception) -> bool:
    """Return whether MLflow answered with an error that a retry would meet again.

    The answer of a proxy is no JSON, and ends with the proxy's outage.
    """
    return getattr(error, "error_code", "") in _REFUSALS and not str(error).startswith(
        "API request to "
    )


def is_unanswered(error: Exception) -> bool:
    """Return whether a server sent no whole answer, so that it may have done what it was asked."""
    return "failed with exception" in str(error)


def first_line(error: Exception) -> str:
    """Return the first line of the error's text that names its cause, without passwords."""
    # SQLAlchemy's preamble
    text = re.sub(r"^\(raised as a result of [^\n]*\n", "", str(error).strip())
    line = without_password(text.partition("\n")[0])
    unreached = re.search(
        r"(?:establish a new connection|NameResolutionError).*?(\[Errno -?\d+\] [^'\")]+)", line
    )
    return unreached[1] if unreached else line or type(error).__name__


def outage_errors() -> tuple[type[Exception], ...]:
    """Return the errors of calls that MLflow refuses or does not answer. A plain OSError concerns a
    local file."""
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    return ImportError, MlflowException, RequestException, SQLAlchemyError


def connect(uri: str) -> Any:
    """Return MLflow's client of the store. A new SQLite store is created."""
    # because MLflow reads these settings from nowhere else
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    logging.getLogger("alembic").setLevel(logging.WARNING)
    # because it also raises what it logs
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    # because it logs each retry
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    _create_database(uri)
    return MlflowClient(uri)


def artifacts_of(uri: str) -> str | None:
    """Return the folder of a store's artifacts: beside an SQLite file; None lets MLflow choose.

    The folder appears in MLflow's error texts, so it must not contain an address with a password.
    """
    database = uri.removeprefix("sqlite:///")
    return None if database == uri or "file:" in uri else str(Path(database).parent / "mlartifacts")


def _create_database(uri: str) -> None:
    """Create a new SQLite store under its name only once it is complete: MLflow refuses a
    half-migrated store forever.

    Raises OSError if an existing store cannot be opened, because MLflow would retry for minutes.
    """
    file = _sqlite_file(uri)
    if file is None:
        return
    with suppress(FileNotFoundError), file.open("rb"):
        return
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    file.parent.mkdir(parents=True, exist_ok=True)
    make_store: Any = SqlAlchemyStore
    store = make_store("sqlite://", DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH)  # in memory
    with tempfile.NamedTemporaryFile() as target, closing(sqlite3.connect(target.name)) as copy:
        store.engine.raw_connection().driver_connection.backup(copy)
        # keeps the store of a driver that was faster
        write_once(file, Path(target.name).read_bytes())
    store.engine.dispose()
