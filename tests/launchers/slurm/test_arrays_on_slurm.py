"""A grid as an array on a real cluster, with SLURM's commands behind scripts that count their calls."""

import shutil
from pathlib import Path

import pytest
from lab import slurm, wait_for

from sweeps.trial.folder import TrialFolder
from tests import command_lines as lines
from tests.launchers.slurm.test_driver_on_slurm import SLURM, assert_done_once, attempts, jobs, start, states

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.long]
COUNTED = ("sbatch", "squeue")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a file for each command, one line for each call, and `overlaps` of two calls of squeue."""
    folder = tmp_path / "calls"
    (folder / "bin").mkdir(parents=True)
    for name in COUNTED:
        script = f'#!/bin/sh\ncd "{folder}" && echo >> {name}; cd "$OLDPWD"\n'
        if name == "squeue":
            script += f'mkdir "{folder}/lock" || echo >> "{folder}/overlaps"\ntrap \'rmdir "{folder}/lock"\' EXIT\n'
        (folder / "bin" / name).write_text(f'{script}{shutil.which(name)} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    return folder


def count(calls: Path, name: str) -> int:
    return len((calls / name).read_text().splitlines()) if (calls / name).exists() else 0


def test_array_survives_its_driver_and_the_cancellation_of_an_element(tmp_path: Path, calls: Path) -> None:
    study = ["+x=range(6)", "+epochs=60", "hydra.launcher.array_parallelism=3"]
    driver = start(tmp_path, *study)
    folder = tmp_path / "multirun" / "s"
    wait_for((folder / "0" / "metrics.jsonl").exists)
    driver.kill()
    driver.wait()
    assert count(calls, "sbatch") == 1
    assert [len(list(array.iterdir())) for array in folder.glob("arrays/*/*/elements")] == [6]
    pending = [job.id for job in jobs(tmp_path) if job.state == "PENDING"]
    slurm("scancel", pending[-1])
    settings = ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s", *SLURM, *study]
    done = lines.run(["their_app.py", "-m", *settings], tmp_path)
    assert done.code != 0, done.said
    cancelled = int(next(iter(states(tmp_path).keys() - {0, 1, 2, 3, 4}), -1))
    assert states(tmp_path) == {**dict.fromkeys(range(5), "completed"), cancelled: "cancelled"}
    assert count(calls, "sbatch") == 1
    done = lines.run(["their_app.py", "-m", *settings], tmp_path)
    assert done.code == 0, done.said
    assert attempts(tmp_path) == [1, 1, 1, 1, 1, 2]
    newest = TrialFolder(folder / "5").newest()
    assert newest and newest.end()
    assert count(calls, "sbatch") == 2
    assert count(calls, "overlaps") == 0
    assert_done_once(tmp_path, 6, 60)
