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
ALONE = "alone"
# Until all tests are collected, because each of many processes would otherwise compile sweepyard and its tests.
NO_BYTECODE, sys.dont_write_bytecode = sys.dont_write_bytecode, False
if str(HERE.parent) not in sys.path:
    sys.path.append(str(HERE.parent))


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Assign each test file to one process, all tests of an xdist_group to one, and a test of ALONE to any."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        group = test.rpartition("]")[2].partition("@")[2]
        return nodeid if group == ALONE else group or file


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
    """Group the tests by what they share. Order the longest first: groups, and this folder, which starts sweeps."""
    for item in items:
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (group_of(item) != "cluster", item.path.parent != HERE))


def group_of(item: pytest.Item) -> str:
    """Return "cluster" for users of the one SLURM cluster, and ALONE for a long test that shares nothing."""
    definitions = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    if "cluster" in definitions:
        return "cluster"
    scopes = {definition[-1].scope for definition in definitions.values()}
    is_long = item.get_closest_marker("long") and not item.get_closest_marker("xdist_group")
    return ALONE if is_long and scopes <= {"function", "session"} else ""
