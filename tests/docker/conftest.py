"""Fixtures that build the images and start the service once, or skip the tests where containers cannot run."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.service import CONTAINERS, SERVICE, Service, podman


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def can_run() -> None:
    """Skip the tests, with a reason, if no container can run."""
    if os.geteuid() != 0:
        pytest.skip("containers are started as root here")
    if not shutil.which("podman"):
        pytest.skip(f"there is no podman: {CONTAINERS} install")
    for line in (["base"], ["podman", "run", "--rm", "docker.io/library/debian:bookworm-slim", "true"]):
        done = subprocess.run([CONTAINERS, *line], capture_output=True, text=True, timeout=600)
        if done.returncode:
            pytest.skip(f"no container can run here: {done.stderr.strip()[-500:]}")


@pytest.fixture(scope="session")
def images(can_run: None) -> None:
    started = time.monotonic()
    line = [CONTAINERS, "compose", "-f", str(SERVICE.with_name("compose.yaml")), "--profile", "trainer", "build"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    print(f"images built in {time.monotonic() - started:.0f} s")


def new_service(name: str, secrets: Path, version: str = "3.17") -> Iterator[Service]:
    service = Service(f"sweepyard-test-{os.getpid()}-{name}", free_port(), secrets, version)
    try:
        yield service
    finally:
        service.attempt("compose", "--profile", "trainer", "down", "-v", "-t", "5")


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service") / "secrets"


@pytest.fixture(scope="session")
def service(images: None, secrets: Path) -> Iterator[Service]:
    """Start the service that the tests share: each test writes into separate experiments."""
    for running in new_service("first", secrets):
        running.do("up")
        yield running


@pytest.fixture
def fresh(images: None, secrets: Path) -> Iterator[Service]:
    """Yield a service with empty volumes, before the start."""
    yield from new_service("fresh", secrets)


@pytest.fixture
def older(images: None, tmp_path: Path) -> Iterator[Service]:
    """Yield a service with the previous minor version of MLflow."""
    content = "FROM localhost/sweepyard-mlflow:3.17\n"
    content += "RUN pip install -q --no-cache-dir --root-user-action=ignore --no-deps"
    content += " mlflow==3.16.1 mlflow-skinny==3.16.1 mlflow-tracing==3.16.1\n"
    (tmp_path / "Dockerfile").write_text(content)
    line = [CONTAINERS, "build", "-t", "sweepyard-mlflow:3.16", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    try:
        yield from new_service("older", tmp_path / "secrets", "3.16")
    finally:
        podman("rmi", "sweepyard-mlflow:3.16", check=False)
