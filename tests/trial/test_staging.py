"""Data that is copied to the node's own disk."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeps.base.errors import UserError
from sweeps.base.files import Lock
from sweeps.trial import staged
from sweeps.trial.run.staging import STAGED, staging


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the node's disk, for job 7."""
    (tmp_path / "disk").mkdir()
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / "disk"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv(STAGED, "{}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "cats").mkdir(parents=True)
    (tmp_path / "data" / "cats" / "1.png").write_text("cat")
    (tmp_path / "x.npz").write_text("numbers")
    return tmp_path / "disk"


def test_paths_below_staged_folders_lead_to_the_copies(disk: Path) -> None:
    assert staged("data") == Path("data")
    with staging(["data", str(Path("x.npz").absolute())]):
        for path in ("data/cats/1.png", "x.npz", Path("x.npz").absolute()):
            assert staged(path).is_relative_to(disk)
            assert staged(path).read_text() == Path(path).read_text()
        assert staged("data").stat().st_mode & 0o77 == Path("data").stat().st_mode & 0o77
        assert (disk / f"sweepyard-{os.getuid()}-7").stat().st_mode & 0o777 == 0o700
        assert staged("database") == Path("database")
    assert not [*disk.iterdir()]


READ = """
import sys
from sweeps.trial.run.staging import staged, staging
with staging(["data"]):
    print(staged("data").stat().st_ino, flush=True)
    sys.stdin.read()
"""


def test_processes_of_a_job_share_one_copy(disk: Path) -> None:
    processes = [start_reader() for _ in range(3)]
    assert len({process.stdout.readline() for process in processes if process.stdout}) == 1
    for process in processes:
        process.communicate()
    assert not [*disk.iterdir()]


def start_reader() -> "subprocess.Popen[str]":
    """Start a process that prints the inode of its copy, and holds the copy until its input ends."""
    return subprocess.Popen([sys.executable, "-c", READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_copies_of_a_killed_job_are_removed_by_the_next(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start_reader() as killed:
        assert killed.stdout and killed.stdout.readline()
        killed.send_signal(signal.SIGKILL)
    (left,) = disk.iterdir()
    in_use = disk / f"sweepyard-{os.getuid()}-6"
    in_use.mkdir()
    lock = Lock(in_use / "alive.1")
    for folder in (left, in_use):
        os.utime(folder, (time.time() - 100,) * 2)
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    with staging(["x.npz"]):
        assert {folder.name.rpartition("-")[2] for folder in disk.iterdir()} == {"6", "8"}
    lock.release()


def test_missing_data_are_named(disk: Path) -> None:
    with pytest.raises(UserError, match=r"hydra\.launcher\.stage: .*nothing.*\nStage less"), staging(["nothing"]):
        pass
    assert json.loads(os.environ[STAGED]) == {}
