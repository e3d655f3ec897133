"""Puts the repository on sys.path, as `python sweep.py` does: trainers is not installed. Shares the tests
among processes (pytest-xdist).
"""

import gc
import sys
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).parent
if str(HERE.parent) not in sys.path:
    sys.path.append(str(HERE.parent))


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """One process runs the tests of a file, or all of SLURM's, which share a cluster."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "slurm" if "/slurm/" in file else file


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store of this MLflow: its migrations are most of a test's time."""
    from mlflow import MlflowClient

    database = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{database}").search_experiments()
    return database


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_finish() -> None:
    gc.freeze()  # nobody looks through all the modules any more, again and again


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first: SLURM's tests, and those at the top, which start whole sweeps."""
    items.sort(key=lambda item: ("slurm" not in item.path.parts, item.path.parent != HERE))
