"""Commands of the administrator, run in the server's container through its API, so that old
passwords expire at once.

admin.py user NAME (the password comes from the standard input) | remove NAME | grant NAME
EXPERIMENT PERMISSION
"""

import sys
from pathlib import Path
from typing import Any

import requests

API = "http://127.0.0.1:5000/api"
EXISTS = "RESOURCE_ALREADY_EXISTS"


def main(command: str, name: str, *rest: str) -> None:
    if command == "user":
        login = {"username": name, "password": sys.stdin.readline().strip()}
        if request("POST", "2.0/mlflow/users/create", login).get("error_code") == EXISTS:
            request("PATCH", "2.0/mlflow/users/update-password", login)
    elif command == "remove":
        request("DELETE", "2.0/mlflow/users/delete", {"username": name})
    elif command == "grant":
        title, permission = rest
        answer = request("GET", "2.0/mlflow/experiments/get-by-name", {"experiment_name": title})
        resource = {
            "resource_type": "experiment",
            "resource_id": answer["experiment"]["experiment_id"],
        }
        request(
            "POST",
            "3.0/mlflow/users/permissions/grant",
            {"username": name, **resource, "permission": permission},
        )


def request(method: str, path: str, content: dict[str, str]) -> dict[str, Any]:
    """Send a request and return the answer. Exit with the server's message if it refuses, unless
    the user exists."""
    admin = "admin", Path("/run/secrets/admin_password").read_text().strip()
    query, body = (content, None) if method == "GET" else (None, content)
    response = requests.request(
        method, f"{API}/{path}", auth=admin, timeout=30, params=query, json=body
    )
    if response.status_code == 401:
        sys.exit(
            "admin_password is not this database's. Use the password of the service from which its"
            " backup was made"
        )
    answer: dict[str, Any] = response.json() if response.text.startswith("{") else {}
    if not response.ok and answer.get("error_code") != EXISTS:
        sys.exit(str(answer.get("message", response.text)))
    return answer


if __name__ == "__main__":
    main(*sys.argv[1:])
