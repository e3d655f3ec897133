"""A real SQLite store for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.tracking.studies import Server


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store of this MLflow: its migrations are most of a test's time."""
    database = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{database}").search_experiments()
    return database


@pytest.fixture
def store(migrated: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(migrated, tmp_path / 'mlflow.db')}"


@pytest.fixture
def server(migrated: Path, tmp_path: Path) -> Iterator[Server]:
    shutil.copy(migrated, tmp_path / "mlflow.db")
    server = Server(tmp_path)
    yield server
    server.kill()
