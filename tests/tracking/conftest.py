"""A real SQLite store for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking.studies import Server


@pytest.fixture
def store(migrated: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(migrated, tmp_path / 'mlflow.db')}"


@pytest.fixture
def server(migrated: Path, tmp_path: Path) -> Iterator[Server]:
    shutil.copy(migrated, tmp_path / "mlflow.db")
    server = Server(tmp_path)
    yield server
    server.close()
