"""Whole studies on the cluster: the driver leaves, is interrupted, comes back, and nothing is orphaned or doubled."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import cluster_sh, wait_for

from sweeps.launchers.slurm.follow.listing import JobInfo
from sweeps.launchers.slurm.queue import living_jobs
from sweeps.trial.folder import TrialFolder
from tests import command_lines as lines
from tests.command_lines import APPS
from tests.warm import Running

pytestmark = pytest.mark.usefixtures("cluster")
APP = (APPS / "checkpointing_app.py").read_text()
SLURM = ["hydra/sweeper=grid", *lines.SLURM, "hydra.launcher.mem_gb=0.5"]
WARM = "hydra.launcher.trials_per_job=null"
ONE_AT_A_TIME = "+hydra.launcher.additional_parameters={nodelist: lab1, exclusive: true}"


def start(folder: Path, *arguments: str) -> Running:
    (folder / "their_app.py").write_text(APP)
    settings = ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s", *SLURM]
    return lines.start(["their_app.py", "-m", *settings, *arguments], folder)


def finish(folder: Path, *arguments: str, code: int = 0) -> str:
    done = lines.finish(start(folder, *arguments), folder)
    assert done.code == code, done.said
    return done.said


def sweeps(folder: Path, *words: str) -> str:
    return lines.sweeps(folder, *words).out


def jobs(folder: Path) -> list[JobInfo]:
    study = folder / "multirun" / "s"
    return living_jobs(study, study.glob("[0-9]*"))


def states(folder: Path) -> dict[int, str]:
    """Return the outcomes of the newest attempts, by trial."""
    trials = (TrialFolder(path) for path in (folder / "multirun" / "s").glob("[0-9]*"))
    ends = {int(trial.path.name): newest.end() for trial in trials if (newest := trial.newest())}
    return {number: end.state for number, end in ends.items() if end}


def attempts(folder: Path) -> list[int]:
    trials = sorted((folder / "multirun" / "s").glob("[0-9]*"), key=lambda path: int(path.name))
    return [len(list((trial / "attempts").iterdir())) for trial in trials]


def assert_done_once(folder: Path, count: int, epochs: int) -> None:
    assert states(folder) == dict.fromkeys(range(count), "completed")
    for trial in range(count):
        lines = (folder / "multirun" / "s" / str(trial) / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(1, epochs + 1))


@pytest.mark.long
@pytest.mark.parametrize(
    "count, left, epochs, settings",
    [
        pytest.param(3, 3, 40, [], id="jobs"),  # the jobs run during a request for the status
        pytest.param(12, 12, 10, [WARM, "hydra.launcher.worker_idle_s=5"], id="warm"),  # queued
    ],
)
def test_detached_jobs_continue_and_are_adopted(
    tmp_path: Path, count: int, left: int, epochs: int, settings: list[str]
) -> None:
    study = [f"+x=range({count})", f"+epochs={epochs}", "hydra.launcher.array_parallelism=2", *settings]
    out = finish(tmp_path, *study, "hydra.launcher.detach=true", code=0 if left == count else 3)
    assert f"{left} trials queued or running without this command." in out
    assert "SLURM jobs:" in sweeps(tmp_path, "status", "s")
    wait_for(lambda: states(tmp_path) == dict.fromkeys(range(left), "completed"))
    assert f"{left} of {count} trials have ended" in sweeps(tmp_path, "status", "s")
    finish(tmp_path, *study)
    assert_done_once(tmp_path, count, epochs)
    assert attempts(tmp_path) == [1] * count
    wait_for(lambda: jobs(tmp_path) == [])


@pytest.mark.long
def test_stop_cancels_trials_queued_by_a_detached_driver(tmp_path: Path) -> None:
    warm = [WARM, "hydra.launcher.worker_idle_s=1"]
    study = ["+x=range(3)", "+epochs=20", "hydra.launcher.array_parallelism=1", *warm]
    (tmp_path / "hold").touch()
    finish(tmp_path, *study, "hydra.launcher.detach=true", code=0)
    wait_for(lambda: TrialFolder(tmp_path / "multirun" / "s" / "0").attempt(1).began())
    assert "1 stop after the current epoch" in sweeps(tmp_path, "stop", "s")
    (tmp_path / "hold").unlink()
    wait_for(lambda: jobs(tmp_path) == [])
    assert states(tmp_path) == {0: "cancelled"}
    finish(tmp_path, *study)
    assert_done_once(tmp_path, 3, 20)


@pytest.mark.long
def test_ctrl_c_lets_the_running_end_and_cancels_the_pending(tmp_path: Path) -> None:
    study = ["+x=1,2,3", "+epochs=30", ONE_AT_A_TIME]
    driver = start(tmp_path, *study)
    metrics = tmp_path / "multirun" / "s" / "0" / "metrics.jsonl"
    wait_for(metrics.exists)
    (tmp_path / "hold").touch()
    wait_for(lambda: len(jobs(tmp_path)) == 3)
    driver.send_signal(signal.SIGINT)
    wait_for(TrialFolder(metrics.parent).attempt(1).stop_requested)
    (tmp_path / "hold").unlink()
    done = lines.finish(driver, tmp_path)
    assert done.code == 130, done.said
    wait_for(lambda: jobs(tmp_path) == [])  # because the last job's process ends after its outcome
    assert states(tmp_path) == dict.fromkeys(range(3), "cancelled")
    assert "Resume with: " in done.said
    finish(tmp_path, *study)
    assert_done_once(tmp_path, 3, 30)
    assert attempts(tmp_path) == [2, 2, 2]


@pytest.mark.long
def test_ctrl_c_may_leave_the_jobs_which_stop_then_ends(tmp_path: Path) -> None:
    study = ["+x=1,2,3", "+epochs=300", ONE_AT_A_TIME, "hydra.launcher.keep_on_interrupt=true"]
    driver = start(tmp_path, *study)
    wait_for((tmp_path / "multirun" / "s" / "0" / "metrics.jsonl").exists)
    wait_for(lambda: len(jobs(tmp_path)) == 3)
    driver.send_signal(signal.SIGINT)
    done = lines.finish(driver, tmp_path, 60)
    assert done.code == 130, done.said
    assert "3 trials queued or running without this command." in done.said
    assert len(jobs(tmp_path)) == 3
    assert "cancelled 2 queued jobs; 1 stop" in sweeps(tmp_path, "stop", "s")
    wait_for(lambda: jobs(tmp_path) == [])
    assert states(tmp_path) == {0: "cancelled"}
    assert "is not running" in sweeps(tmp_path, "stop", "s")


@pytest.fixture
def without_accounting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start a second cluster, without accounting of jobs."""
    monkeypatch.setenv("SLURM_LAB", str(tmp_path / "lab"))
    monkeypatch.setenv("SLURM_LAB_PORT", "29000")
    monkeypatch.setenv("SLURM_LAB_ACCOUNTING", "0")
    monkeypatch.setenv("SLURM_CONF", cluster_sh("env").strip().removeprefix("export SLURM_CONF="))
    try:
        cluster_sh("start")
        yield
    finally:
        cluster_sh("stop")


@pytest.mark.long
def test_without_accounting(without_accounting: None, tmp_path: Path) -> None:
    assert "disabled" in subprocess.run(["sacct"], capture_output=True, text=True).stderr
    driver = start(tmp_path, "+x=0,1,2", "+epochs=3", "+how=0", "hydra.sweeper.max_attempts=1")
    done = lines.finish(driver, tmp_path)
    assert done.code == 1, done.said
    assert "trial 1 failed: its process ended without a result" in done.said
    assert "trial 2 lost: its process was killed from outside" in done.said
    assert states(tmp_path) == {0: "completed", 1: "failed", 2: "lost"}


EDITED = """
import hydra
from pathlib import Path

@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    from lib import helper

    Path(helper.__file__).write_text("VALUE = 22\\n")  # what its author does meanwhile
    return {"value": helper.VALUE}

if __name__ == "__main__":
    main()
"""


@pytest.mark.long
@pytest.mark.parametrize("settings", [pytest.param([], id="jobs"), pytest.param([WARM], id="warm")])
def test_jobs_run_the_code_of_the_studys_start(tmp_path: Path, settings: list[str]) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper.py").write_text("VALUE = 1\n")
    (tmp_path / "app.py").write_text(EDITED)
    more = ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s", "hydra.sweeper.n_jobs=1"]
    done = lines.run(["app.py", "-m", *more, *SLURM, "+x=1,2", *settings], tmp_path)
    assert done.code == 0, done.said
    ends = [TrialFolder(tmp_path / "multirun" / "s" / number).ends()[0] for number in "01"]
    assert [end.metrics for end in ends] == [{"value": 1.0}] * 2
