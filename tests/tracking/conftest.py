"""A real SQLite store for each test, and one real server, imported once."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking.studies import Server, Servers


@pytest.fixture
def store(migrated: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(migrated, tmp_path / 'mlflow.db')}"


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("servers"))
    yield servers
    servers.close()


@pytest.fixture
def server(servers: Servers, migrated: Path, tmp_path: Path) -> Iterator[Server]:
    shutil.copy(migrated, tmp_path / "mlflow.db")
    server = Server(servers, tmp_path)
    yield server
    server.kill()
