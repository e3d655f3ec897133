"""What the administrator does, inside the server's container, through its API: an old password is then known no more.

admin.py user NAME (the password comes from the standard input) | remove NAME | grant NAME EXPERIMENT PERMISSION
"""

import sys
from pathlib import Path
from typing import Any

import requests

API = "http://127.0.0.1:5000/api"
KNOWN = "RESOURCE_ALREADY_EXISTS"


def main(command: str, name: str, *rest: str) -> None:
    if command == "user":
        login = {"username": name, "password": sys.stdin.readline().strip()}
        if ask("POST", "2.0/mlflow/users/create", login).get("error_code") == KNOWN:
            ask("PATCH", "2.0/mlflow/users/update-password", login)
    elif command == "remove":
        ask("DELETE", "2.0/mlflow/users/delete", {"username": name})
    elif command == "grant":
        title, permission = rest
        found = ask("GET", "2.0/mlflow/experiments/get-by-name", {"experiment_name": title})
        what = {"resource_type": "experiment", "resource_id": found["experiment"]["experiment_id"]}
        ask("POST", "3.0/mlflow/users/permissions/grant", {"username": name, **what, "permission": permission})


def ask(method: str, path: str, content: dict[str, str]) -> dict[str, Any]:
    """The server's answer; ends with its words if it refuses, but for a user that is there already."""
    admin = "admin", Path("/run/secrets/admin_password").read_text().strip()
    query, body = (content, None) if method == "GET" else (None, content)
    response = requests.request(method, f"{API}/{path}", auth=admin, timeout=30, params=query, json=body)
    if response.status_code == 401:
        sys.exit("admin_password is not the one of this database: a restored one has that of its backup's service")
    answer: dict[str, Any] = response.json() if response.text.startswith("{") else {}
    if not response.ok and answer.get("error_code") != KNOWN:
        sys.exit(str(answer.get("message", response.text)))
    return answer


if __name__ == "__main__":
    main(*sys.argv[1:])
