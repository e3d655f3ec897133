"""The composed service, real: its images, containers and volumes, under a name and on a port of its own."""

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
        """`docker/service.sh ARGUMENTS`."""
        named = {"COMPOSE": f"{CONTAINERS} compose", "COMPOSE_PROJECT_NAME": self.name, "SERVICE_PORT": str(self.port)}
        named |= {"SERVICE_SECRETS": str(self.secrets), "MLFLOW_VERSION": self.version, **more}
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_TRACKING")}
        line = [str(SERVICE), *arguments]
        return subprocess.run(
            line, env={**kept, **named}, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL
        )

    def do(self, *arguments: str, **more: str) -> str:
        done = self.attempt(*arguments, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def user(self, name: str) -> dict[str, str]:
        """A user's name and password, for a process's environment."""
        if name not in self.users:
            self.do("user", name)
            lines = (self.secrets / "users" / f"{name}.env").read_text().splitlines()
            self.users[name] = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        return self.users[name]

    def login(self, name: str) -> tuple[str, str]:
        if name == "admin":
            return name, (self.secrets / "admin_password").read_text().strip()
        found = self.user(name)
        return found["MLFLOW_TRACKING_USERNAME"], found["MLFLOW_TRACKING_PASSWORD"]

    def ask(self, method: str, path: str, who: str | None = None, **more: Any) -> requests.Response:
        """One request; `who` None is nobody."""
        auth = self.login(who) if who else None
        return requests.request(method, f"{self.uri}{path}", auth=auth, timeout=30, **more)

    def client(self, who: str) -> MlflowClient:
        """MLflow's client; its name and password are those that this process has from now on."""
        os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"] = self.login(who)
        return MlflowClient(self.uri)

    def container(self, service: str) -> str:
        return f"{self.name}_{service}_1"

    def kill(self, service: str) -> None:
        """The container's first process, from outside, as the kernel kills one for its memory."""
        pid = podman("inspect", "--format", "{{.State.Pid}}", self.container(service)).strip()
        os.kill(int(pid), 9)

    def everything(self, folder: Path) -> dict[str, Any]:
        """All runs by their ids: what they are, each metric's history, each artifact's bytes."""
        client = self.client("admin")
        runs = [run for one in client.search_experiments() for run in client.search_runs([one.experiment_id])]
        return {run.info.run_id: self._all_of(client, run, folder / run.info.run_id) for run in runs}

    @staticmethod
    def _all_of(client: MlflowClient, run: Any, folder: Path) -> dict[str, Any]:
        folder.mkdir(parents=True)
        client.download_artifacts(run.info.run_id, "", str(folder))
        files = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
        history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        told = {name: [(m.step, m.value, m.timestamp) for m in values] for name, values in history.items()}
        return {"run": run.to_dictionary()["info"], "tags": run.data.tags, "metrics": told, "files": files}


def children(service: Service, who: str, study: str) -> list[Any]:
    """The runs of a study's trials."""
    client = service.client(who)
    experiments = [one.experiment_id for one in client.search_experiments()]
    return list(client.search_runs(experiments, f"tags.study = '{study}' AND tags.role = 'trial'"))


def environment(service: Service, who: str) -> Mapping[str, str]:
    return {**service.user(who), "MLFLOW_TRACKING_URI": service.uri}
