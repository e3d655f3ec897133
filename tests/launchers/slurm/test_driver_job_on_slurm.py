"""A study whose drivers are SLURM jobs, on a cluster: killed drivers have successors, and `stop` ends the chain."""

import json
import os
import signal
from pathlib import Path

import pytest
from lab import slurm, wait_for

from sweeps.base.files import Holder, holder
from sweeps.launchers.slurm.queue import living_jobs, read_job_id
from sweeps.launchers.slurm.trials.driver_chain import folders, job_of, living
from sweeps.trial.folder import TrialFolder
from tests import command_lines as lines
from tests.command_lines import APPS

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.long]
APP = (APPS / "checkpointing_app.py").read_text()
STUDY = ["hydra/sweeper=grid", *lines.SLURM, "hydra.launcher.mem_gb=0.5", "hydra.sweeper.tracking=false"]
STUDY += ["hydra.sweeper.study_name=s", "hydra.launcher.driver=job", "hydra.launcher.driver_timeout_min=10"]


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    (folder / "their_app.py").write_text(APP)
    done = lines.run(["their_app.py", "-m", *STUDY, *arguments], folder)
    assert done.code == code, done.said
    return done.said


def driver(study: Path) -> Holder | None:
    return holder(study / "driver.lock") if (study / "driver.lock").exists() else None


def has_trained(study: Path, trial: int) -> bool:
    return (study / str(trial) / "metrics.jsonl").exists()


def test_three_drivers_of_one_study(tmp_path: Path) -> None:
    study = tmp_path / "multirun" / "s"
    notify = f"hydra.sweeper.notify=[sh,-c,'echo \"$0\" >> {tmp_path}/mails','{{subject}}']"
    out = run(tmp_path, "+x=range(6)", "+epochs=40", "hydra.launcher.array_parallelism=2", notify)
    assert out.splitlines()[1] == "Follow it: tail -F multirun/s/driver.log"
    run(tmp_path, "+x=range(6)", "+epochs=40", code=2)  # because the study has a driver
    wait_for(lambda: has_trained(study, 1))
    status = lines.sweeps(tmp_path, "status", "s").out
    process = driver(study)
    assert process
    assert f"SLURM job {job_of(study, process)}; its log: multirun/s/driver.log" in status
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: has_trained(study, 3))
    process = driver(study)
    assert process
    slurm("scancel", "--signal=TERM", str(job_of(study, process)))  # as SLURM warns of the time limit
    wait_for(lambda: has_trained(study, 5) and len(folders(study)) == 4)
    wait_for(lambda: not living(study))
    for trial in range(6):
        (end,) = TrialFolder(study / str(trial)).ends()
        assert end.state == "completed"
        rows = (study / str(trial) / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(row)["step"] for row in rows] == list(range(1, 41))
    assert (tmp_path / "mails").read_text() == "study s is finished\n"
    log = (study / "driver.log").read_text()
    assert "\033" not in log
    assert log.count("study s: 6 trials: 6 completed") == 1


def test_stop_ends_the_chain_and_resume_begins_another(tmp_path: Path) -> None:
    study = tmp_path / "multirun" / "s"
    run(tmp_path, "+x=0,1", "+epochs=100")
    wait_for(lambda: has_trained(study, 1))
    job_id = read_job_id(folders(study)[0])
    out = lines.sweeps(tmp_path, "stop", "s").out
    assert "stopped. Resume: sweepyard resume s" in out
    assert f"SLURM job {job_id}, running" not in out
    wait_for(lambda: not living(study) and not living_jobs(study, study.glob("[0-9]*")))
    assert len(folders(study)) == 2
    assert "the log of its last driver: multirun/s/driver.log" in lines.sweeps(tmp_path, "status", "s").out
    assert "its driver is SLURM job" in lines.sweeps(tmp_path, "resume", "s").out
    wait_for(lambda: not living(study))
    assert [end.state for end in TrialFolder(study / "0").ends()] == ["cancelled", "completed"]


def test_stop_of_a_pending_driver(tmp_path: Path) -> None:
    study = tmp_path / "multirun" / "s"
    for node in range(1, 5):
        slurm("scontrol", "update", f"nodename=lab{node}", "state=drain", "reason=test")
    try:
        run(tmp_path, "+x=0,1", "+epochs=1")
        status = lines.sweeps(tmp_path, "status", "s").out
        assert "pending (" in status
        assert "Resume" not in status
        assert "cancelled the driver: SLURM job" in lines.sweeps(tmp_path, "stop", "s").out
        assert not living(study)
    finally:
        for node in range(1, 5):
            slurm("scontrol", "update", f"nodename=lab{node}", "state=resume")
