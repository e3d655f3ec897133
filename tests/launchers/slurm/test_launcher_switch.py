"""A driver is killed while its SLURM jobs run, and the study is resumed with another launcher."""

from pathlib import Path

import pytest
from lab import wait_for

from tests import command_lines as lines
from tests.launchers.slurm.test_driver_on_slurm import APP, SLURM, WARM, assert_done_once, attempts, jobs, start, sweeps

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.long]
STUDY = ["+x=range(2)", "+epochs=60"]
LAUNCHERS = {"jobs": SLURM, "workers": [*SLURM, WARM], "local": ["hydra/sweeper=grid", "hydra/launcher=local"]}


def resume(folder: Path, launcher: str) -> lines.Done:
    settings = ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s", *LAUNCHERS[launcher]]
    return lines.run(["their_app.py", "-m", *settings, *STUDY], folder)


@pytest.mark.parametrize("first, second", [("jobs", "workers"), ("workers", "jobs")])
def test_trial_of_another_launcher_is_not_started_twice(tmp_path: Path, first: str, second: str) -> None:
    driver = start(tmp_path, *STUDY, *LAUNCHERS[first][len(SLURM) :])
    study = tmp_path / "multirun" / "s"
    wait_for((study / "0" / "metrics.jsonl").exists)
    hold = tmp_path / "hold"
    hold.touch()
    driver.kill()
    driver.wait()
    refused = resume(tmp_path, "local")
    assert refused.code == 2, refused.said
    problem, as_before, stop_first = refused.err.splitlines()[-3:]
    assert "still runs in SLURM job" in problem
    assert as_before.startswith("Resume with that launcher: ") and "hydra/launcher=slurm" in as_before
    assert stop_first.endswith("sweepyard stop s")
    hold.unlink()
    done = resume(tmp_path, second)  # adopts the trials, because both ways are SLURM's
    assert done.code == 0, done.said
    assert_done_once(tmp_path, 2, 60)
    assert attempts(tmp_path) == [1, 1]


def test_trials_stopped_in_slurm_resume_here(tmp_path: Path) -> None:
    driver = start(tmp_path, *STUDY)
    wait_for((tmp_path / "multirun" / "s" / "0" / "metrics.jsonl").exists)
    driver.kill()
    driver.wait()
    assert "stop after the current epoch" in sweeps(tmp_path, "stop", "s")
    wait_for(lambda: jobs(tmp_path) == [])
    done = resume(tmp_path, "local")
    assert done.code == 0, done.said
    assert_done_once(tmp_path, 2, 60)


def test_local_trials_end_before_jobs_start(tmp_path: Path) -> None:
    (tmp_path / "their_app.py").write_text(APP)
    settings = ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s", *LAUNCHERS["local"]]
    driver = lines.start(["their_app.py", "-m", *settings, *STUDY], tmp_path)
    wait_for((tmp_path / "multirun" / "s" / "0" / "metrics.jsonl").exists)
    driver.kill()
    driver.wait()
    done = resume(tmp_path, "jobs")
    assert done.code == 0, done.said
    assert_done_once(tmp_path, 2, 60)
