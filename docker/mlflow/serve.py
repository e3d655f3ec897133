"""MLflow's tracking server in one process; `serve.py upgrade` upgrades its tables to this version
of MLflow instead.

It starts as root, because only root can read the secrets, and continues as the user mlflow. `mlflow
server` would start a second process with the secrets in its environment, where /proc shows them.
Neither /proc nor `inspect` shows secrets that a running process adds to its own environment.
"""

import os
import pwd
import secrets
import sys
from pathlib import Path
from typing import Any

STORE = "postgresql+psycopg2://mlflow@database/mlflow"


def main() -> None:
    os.environ["PGPASSWORD"] = _secret("database_password")
    os.environ["MLFLOW_AUTH_ADMIN_PASSWORD"] = _secret("admin_password")
    # key of the sign-up page's forms
    os.environ["MLFLOW_FLASK_SERVER_SECRET_KEY"] = secrets.token_hex(32)
    _become("mlflow")
    import mlflow.server
    from mlflow.cli import cli

    if sys.argv[1:] == ["upgrade"]:
        cli(["db", "upgrade", STORE])
    mlflow.server._exec_cmd = _in_this_process
    # because compose.yaml restricts access
    address = ["--host", "0.0.0.0", "--port", "5000"]  # noqa: S104
    store = [
        "--backend-store-uri",
        STORE,
        "--serve-artifacts",
        "--artifacts-destination",
        "/artifacts",
    ]
    workers = ["--workers", "1", "--uvicorn-opts", "--no-access-log --timeout-keep-alive 75"]
    cli(["server", "--app-name", "basic-auth", *address, *store, *workers])


def _secret(name: str) -> str:
    file = Path("/run/secrets", name)
    value = file.read_text().strip() if file.exists() else ""
    if len(value) < 12:
        sys.exit(
            f"{file}: a password of 12 characters or more is missing."
            " Create it: docker/service.sh up"
        )
    return value


def _become(name: str) -> None:
    user = pwd.getpwnam(name)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ["HOME"] = user.pw_dir
    os.chdir(user.pw_dir)


def _in_this_process(command: list[str], extra_env: dict[str, str], **_: Any) -> None:
    """Run in this process the command `python -m uvicorn ...` that `mlflow server` would start."""
    import uvicorn

    os.environ.update(extra_env)
    uvicorn.main(command[command.index("uvicorn") + 1 :])


if __name__ == "__main__":
    main()
