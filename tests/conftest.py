"""Put the repository on sys.path, because trainers is not installed, and share the test files among processes."""

import fcntl
import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).parent
# Until all tests are collected, because each of many processes would otherwise compile sweepyard and its tests.
NO_BYTECODE, sys.dont_write_bytecode = sys.dont_write_bytecode, False
if str(HERE.parent) not in sys.path:
    sys.path.append(str(HERE.parent))

_USES_CLUSTER = re.compile(r'"cluster"\)|"cluster",|\bcluster: None|\btrials: SlurmTrials')
_SHARES = re.compile(r'scope="|mark\.service')


@cache
def has(words: re.Pattern[str], file: str) -> bool:
    """Return whether a file has these words, because one process assigns the tests, and does not import them."""
    return bool(words.search((HERE.parent / file).read_text()))


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Assign each file to one process, and all users of the one SLURM cluster to the same process.

    Of long tests, each one is assigned by itself, unless the tests of its file share a fixture.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if has(_USES_CLUSTER, file):
            return "cluster"
        is_quick = self.config.option.markexpr.startswith("not long")
        return file if is_quick or has(_SHARES, file) else nodeid


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an empty MLflow database once for all processes, because the migrations take most of a test's time."""
    from mlflow import MlflowClient

    folder = tmp_path_factory.getbasetemp()
    database = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "migrated.db"
    with database.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
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
    """Order first what waits most, then the files that share fixtures, and this folder, which starts whole sweeps."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        assert has(_USES_CLUSTER, file) or "cluster" not in item.fixturenames, f"{file}: extend _USES_CLUSTER"
    items.sort(key=place_of)


def place_of(item: pytest.Item) -> tuple[bool, ...]:
    file = item.nodeid.partition("::")[0]
    is_service = item.get_closest_marker("service") is not None
    return not has(_USES_CLUSTER, file), not is_service, not has(_SHARES, file), item.path.parent != HERE
