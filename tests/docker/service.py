"""The real composed service: images, containers and volumes, under a separate name and port."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from mlflow import MlflowClient

from tests.command_lines import ROOT

CONTAINERS = Path(__file__).with_name("containers.sh")
SERVICE = ROOT / "docker" / "service.sh"


def podman(*arguments: str, check: bool = True) -> str:
    done = subprocess.run([CONTAINERS, "podman", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout + done.stderr


@dataclass
class Service:
    name: str
    port: int
    secrets: Path
    version: str = "3.17"
    users: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def attempt(self, *arguments: str, timeout_s: float = 240, **more: str) -> "subprocess.CompletedProcess[str]":
        """Run `docker/service.sh ARGUMENTS`, and return the completed process."""
        settings = {
            "COMPOSE": f"{CONTAINERS} compose",
            "COMPOSE_PROJECT_NAME": self.name,
            "SERVICE_PORT": str(self.port),
        }
        settings |= {"SERVICE_SECRETS": str(self.secrets), "MLFLOW_VERSION": self.version, **more}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_TRACKING")}
        line = [str(SERVICE), *arguments]
        return subprocess.run(
            line,
            env={**inherited, **settings},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )

    def do(self, *arguments: str, **more: str) -> str:
        done = self.attempt(*arguments, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def user(self, name: str) -> dict[str, str]:
        """Return a user's name and password as environment variables."""
        if name not in self.users:
            self.do("user", name)
            lines = (self.secrets / "users" / f"{name}.env").read_text().splitlines()
            self.users[name] = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        return self.users[name]

    def login(self, name: str) -> tuple[str, str]:
        if name == "admin":
            return name, (self.secrets / "admin_password").read_text().strip()
        variables = self.user(name)
        return variables["MLFLOW_TRACKING_USERNAME"], variables["MLFLOW_TRACKING_PASSWORD"]

    def ask(self, method: str, path: str, who: str | None = None, **more: Any) -> requests.Response:
        """Send one request as the user `who`, or without a login."""
        auth = self.login(who) if who else None
        return requests.request(method, f"{self.uri}{path}", auth=auth, timeout=30, **more)

    def client(self, who: str) -> MlflowClient:
        """Return MLflow's client, and set the name and password of `who` in this process's environment."""
        os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"] = self.login(who)
        return MlflowClient(self.uri)

    def container(self, service: str) -> str:
        return f"{self.name}_{service}_1"

    def kill(self, service: str) -> None:
        """Kill the container's first process from outside, as the kernel does if memory is short."""
        pid = podman("inspect", "--format", "{{.State.Pid}}", self.container(service)).strip()
        os.kill(int(pid), 9)

    def everything(self, folder: Path) -> dict[str, Any]:
        """Return all runs by id: info, tags, each metric's history, and each artifact's bytes."""
        client = self.client("admin")
        runs = [
            run for experiment in client.search_experiments() for run in client.search_runs([experiment.experiment_id])
        ]
        return {run.info.run_id: self._all_of(client, run, folder / run.info.run_id) for run in runs}

    @staticmethod
    def _all_of(client: MlflowClient, run: Any, folder: Path) -> dict[str, Any]:
        folder.mkdir(parents=True)
        client.download_artifacts(run.info.run_id, "", str(folder))
        files = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
        history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        points = {name: [(m.step, m.value, m.timestamp) for m in values] for name, values in history.items()}
        return {"run": run.to_dictionary()["info"], "tags": run.data.tags, "metrics": points, "files": files}


def children(service: Service, who: str, study: str) -> list[Any]:
    """Return the runs of a study's trials."""
    client = service.client(who)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_runs(experiments, f"tags.study = '{study}' AND tags.role = 'trial'"))


def environment(service: Service, who: str) -> Mapping[str, str]:
    return {**service.user(who), "MLFLOW_TRACKING_URI": service.uri}
