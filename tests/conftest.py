"""Put the repository on sys.path, because trainers is not installed, and share the test files among processes."""

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
    """Assign each test file to one process, and all SLURM tests to one process, because SLURM tests share a cluster."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "slurm" if "/slurm/" in file else file


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an empty MLflow database once, because the migrations take most of a test's time."""
    from mlflow import MlflowClient

    database = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{database}").search_experiments()
    return database


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_finish() -> None:
    gc.freeze()  # because each garbage collection would otherwise traverse all imported modules


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the longest tests first: the SLURM tests, and the tests in this folder, which start whole sweeps."""
    items.sort(key=lambda item: ("slurm" not in item.path.parts, item.path.parent != HERE))
