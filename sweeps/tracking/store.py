"""MLflow's store: how to reach it, what its errors mean, and where its files are."""

import logging
import os
import re
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from sweeps.files import write_once
from sweeps.secrets import without_password

_DEFAULT = "sqlite:///mlflow.db"
UNWANTED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
_REFUSALS = (*UNWANTED, "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE", "PERMISSION_DENIED")
QUIET = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}  # the links that it prints open it in its GenAI mode
_ENVIRONMENT = {  # without the first three, a call to a server that is gone blocks for four minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    **QUIET,
}


def is_refusal(error: Exception) -> bool:
    """Whether MLflow answered, and will answer the same the next time."""
    return getattr(error, "error_code", "") in _REFUSALS


def first_line(error: Exception) -> str:
    told = re.sub(r"^\(raised as a result of [^\n]*\n", "", str(error).strip())  # SQLAlchemy's advice
    line = without_password(told.partition("\n")[0])
    unreached = re.search(r"(?:establish a new connection|NameResolutionError).*?(\[Errno -?\d+\] [^'\")]+)", line)
    return unreached[1] if unreached else line or type(error).__name__


def outage_errors() -> tuple[type[Exception], ...]:
    """What calls raise when MLflow gives no answer or refuses. A plain OSError is of a file, not of MLflow."""
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    return ImportError, MlflowException, RequestException, SQLAlchemyError


def connect(uri: str) -> Any:
    """MLflow's client."""
    for name, value in _ENVIRONMENT.items():  # MLflow has no other place for these
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it raises what it logs
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it warns of each try, and raises the last
    _make_database(uri)
    return MlflowClient(uri)


def artifacts_of(uri: str) -> str | None:
    """The folder of a store's artifacts: beside an SQLite file. None leaves it to MLflow: its errors tell the folder,
    which must be no part of an address with a password.
    """
    database = uri.removeprefix("sqlite:///")
    return None if database == uri or "file:" in uri else str(Path(database).parent / "mlartifacts")


def _make_database(uri: str) -> None:
    """Make a new SQLite store whole before it has its name: half a migration would be refused by MLflow for ever.
    Raises OSError if there is one that cannot be opened, which MLflow would try for minutes.
    """
    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:////"):
        return
    with suppress(FileNotFoundError), path.open("rb"):
        return
    from mlflow.store.tracking import DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    path.parent.mkdir(parents=True, exist_ok=True)
    make: Any = SqlAlchemyStore
    store = make("sqlite://", DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH)  # in memory
    with tempfile.NamedTemporaryFile() as file, closing(sqlite3.connect(file.name)) as copy:
        store.engine.raw_connection().driver_connection.backup(copy)
        write_once(path, Path(file.name).read_bytes())  # if another driver was faster, its store stands
    store.engine.dispose()


def resolve_uri(uri: str | None) -> str:
    """Return the address of the store: `uri`, or else what the environment names, or else ./mlflow.db."""
    return _absolute(uri or os.environ.get("MLFLOW_TRACKING_URI") or _DEFAULT)


def default_uri() -> str:
    """Return the address of ./mlflow.db."""
    return _absolute(_DEFAULT)


def _absolute(uri: str) -> str:
    """Return `uri` with an absolute path if it is an SQLite file: a trial may have another working folder."""
    database = uri.removeprefix("sqlite:///")
    return uri if database == uri or "file:" in uri else f"sqlite:///{Path(database).absolute()}"


def identity(uri: str) -> tuple[int, int] | None:
    """Return device and inode of an SQLite store; None for another kind of store, or if there is no file."""
    with suppress(OSError):
        if uri.startswith("sqlite:////"):
            status = Path(uri.removeprefix("sqlite:///")).stat()
            return status.st_dev, status.st_ino
    return None


def is_server(uri: str) -> bool:
    """Return whether the store is a server, which shows its own pages."""
    return uri.startswith(("http://", "https://"))
