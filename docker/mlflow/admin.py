"""What the administrator does, inside the server's container: `admin.py user NAME` (its password comes from the standard
input), `admin.py grant NAME EXPERIMENT READ|EDIT|MANAGE|NO_PERMISSIONS`, `admin.py remove NAME`.

It goes through the server, so that nobody whose password was changed is known by the old one.
"""

import os
import sys
from pathlib import Path

SERVER = "http://127.0.0.1:5000"


def main(command: str, name: str, *rest: str) -> None:
    os.environ["MLFLOW_TRACKING_USERNAME"] = "admin"
    os.environ["MLFLOW_TRACKING_PASSWORD"] = Path("/run/secrets/admin_password").read_text().strip()
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from mlflow.server import get_app_client

    users = get_app_client("basic-auth", SERVER)
    if command == "user":
        password = sys.stdin.readline().strip()
        try:
            users.create_user(name, password)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            users.update_user_password(name, password)
    elif command == "remove":
        users.delete_user(name)
    elif command == "grant":
        title, permission = rest
        experiment = MlflowClient(SERVER).get_experiment_by_name(title)
        if experiment is None:
            sys.exit(f"there is no experiment {title}")
        users.grant_user_permission(name, "experiment", experiment.experiment_id, permission)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
