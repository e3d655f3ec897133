"""Put the repository on sys.path, because trainers is not installed, and share the test files among processes."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).parent
# Until all tests are collected, because each of many processes would otherwise compile sweepyard and its tests.
NO_BYTECODE, sys.dont_write_bytecode = sys.dont_write_bytecode, False
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


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Start a SLURM cluster of four nodes. If no cluster can be installed, skip the tests, or fail in CI."""
    from tests.launchers.slurm.lab import CLUSTER, cluster_sh

    unable = pytest.fail if os.environ.get("CI") else pytest.skip
    if shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            unable("SLURM is not installed; as root on Debian: docker/slurm/cluster.sh install")
        installed = subprocess.run([CLUSTER, "install"], capture_output=True, text=True)
        if installed.returncode:
            unable(f"SLURM cannot be installed here: {installed.stderr[-500:]}")
    os.environ["SLURM_CONF"] = cluster_sh("env").strip().removeprefix("export SLURM_CONF=")
    try:
        cluster_sh("start")
        yield
    finally:
        cluster_sh("stop")
        del os.environ["SLURM_CONF"]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = NO_BYTECODE
    gc.freeze()  # because each garbage collection would otherwise traverse all imported modules


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the longest tests first: the SLURM tests, and the tests in this folder, which start whole sweeps."""
    items.sort(key=lambda item: ("slurm" not in item.path.parts, item.path.parent != HERE))
