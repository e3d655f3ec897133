"""Studies on a disk without room for files, and on a slow disk."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.faults import TRIALS, Study
from tests.chaos.oracle import check
from tests.command_lines import GRID

pytestmark = pytest.mark.long
SLOW = {"PYTHONPATH": str(Path(__file__).parent / "shims" / "slow"), "DELAY_S": os.environ.get("CHAOS_DELAY_S", "0.3")}
"""CHAOS_DELAY_S=5 is the delay of a bad day; the tests then take minutes."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a disk that has room for 60 files."""
    if os.geteuid():
        pytest.skip("only root can mount a disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=60", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_full_inode_table_loses_no_trial(small_disk: Path, store: str) -> None:
    study = Study(small_disk / "work", store, 3)
    stopped = study.finish(study.start(GRID))
    assert stopped.code == 3, stopped.said
    assert "No space left on device" in stopped.err
    assert "What has ended is kept. Resume with: " in stopped.err
    subprocess.run(["mount", "-o", "remount,nr_inodes=5000", small_disk], check=True)
    done = study.finish(study.start(GRID))
    assert done.code == 0, done.said
    check(study.path, store, TRIALS, 3)


def test_slow_disk_loses_no_trial(tmp_path: Path, store: str) -> None:
    study = Study(tmp_path / "work", store, 6)
    driver = study.start(GRID, SLOW)
    study.wait_for_epochs(1)
    driver.kill()
    driver.wait()
    done = study.finish(study.start(GRID, SLOW), timeout_s=600)
    assert done.code == 0, done.said
    check(study.path, store, TRIALS, 6)
