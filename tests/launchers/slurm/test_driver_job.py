"""The chain of jobs in which a study's drivers run, under a SLURM whose answers a test chooses."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm

from sweeps.base.errors import UserError
from sweeps.base.files import Lock
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.queue import read_job_id
from sweeps.launchers.slurm.trials import driver_chain, driver_job
from sweeps.launchers.slurm.trials.driver_job import DriverJob, Launch, request, run_driver
from tests.study.fake_launcher import FakeLauncher, Study, fake_time, trains

WORDS = [sys.executable, "app.py", "-m"]
SETTINGS = SlurmLauncherConf(driver="job", driver_timeout_min=60)


class Job(Exception):
    """The process of a job turned into the driver."""


@pytest.fixture
def slurm(scripted_slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ScriptedSlurm]:
    """Return a SLURM with two partitions. A job's output stays, and the job raises `Job` instead of an exec."""

    def execute(path: str, words: list[str]) -> None:
        raise Job(words)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    scripted_slurm.say("sinfo", "printf 'main*|infinite\\nshort|30:00\\nodd|30:30\\nlong|1-00:00:00\\n'")
    before = dict(os.environ)
    yield scripted_slurm
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "multirun" / "s").mkdir(parents=True)
    return tmp_path / "multirun" / "s"


def submit(study: Path) -> str:
    return DriverJob(study, SETTINGS).submit(shlex.join(WORDS))


def begin(study: Path, number: int) -> DriverJob:
    """Run the job of the driver of this number up to the driver itself, which claims and leaves the study."""
    os.environ["SLURM_JOB_ID"] = str(number)
    with pytest.raises(Job):
        run_driver(study / f"driver/jobs/{number}", Launch.of(WORDS, SETTINGS), study / f"driver/jobs/{number - 1}")
    Lock(study / "driver.lock").release()
    return DriverJob(study, SETTINGS)


def test_each_job_submits_the_next_before_its_driver_starts(slurm: ScriptedSlurm, study: Path) -> None:
    assert submit(study) == "1"
    first = (slurm.folder / "script").read_text()
    assert "dependency" not in first
    assert "#SBATCH --time=60" in first
    assert "#SBATCH --mem=2048MB" in first
    assert "#SBATCH --signal=TERM@120" in first
    assert f"#SBATCH --output={study}/driver.log" in first
    job = begin(study, 1)
    assert job.is_here and job.goes_on
    second = (slurm.folder / "script").read_text()
    assert "#SBATCH --dependency=afternotok:1" in second
    assert "#SBATCH --kill-on-invalid-dep=yes" in second
    job.end()
    assert slurm.lines("scancelled") == ["2"]


def test_a_drivers_job_starts_no_driver_of_another_study(slurm: ScriptedSlurm, study: Path) -> None:
    submit(study)
    begin(study, 1)
    os.environ["SWEEPYARD_DRIVER"] = str(study / "driver" / "jobs" / "1")
    other = study.with_name("other")  # as where hydra.sweep.dir contains the time of a start
    with pytest.raises(UserError, match=f"this job drives the study in {study}, .* to {other}.\nLet .* same folder"):
        DriverJob(other, SETTINGS)
    assert len(slurm.names) == 2  # those of the first study: the job, and the job that follows
    assert slurm.lines("scancelled") == ["2"]
    assert not other.exists()
    assert "SWEEPYARD_DRIVER" not in os.environ


def test_drivers_have_the_environment_of_the_terminal(
    slurm: ScriptedSlurm, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "long")
    monkeypatch.setenv("PYTHONPATH", "mine")
    launch = Launch.of(WORDS, SETTINGS)
    submit(study)
    for name, value in {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "1", "PYTHONPATH": "/engine:mine"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Job) as job:
        run_driver(study / "driver" / "jobs" / "1", launch, None)
    assert job.value.args == (WORDS,)
    assert not {"SLURM_JOB_ID", "SLURM_NTASKS"} & {*os.environ}
    assert (os.environ["SBATCH_PARTITION"], os.environ["PYTHONPATH"]) == ("long", "mine")
    assert "#SBATCH --partition=long" in (slurm.folder / "script").read_text()
    assert DriverJob(study, SETTINGS).is_here
    assert "SWEEPYARD_DRIVER" not in os.environ


def test_no_driver_follows_two_without_progress_until_one_makes_some(
    slurm: ScriptedSlurm, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(study)
    assert [begin(study, number).goes_on for number in (1, 2)] == [True, True]
    third = begin(study, 3)
    third.renew()
    assert not third.goes_on
    assert len(slurm.names) == 3
    (study / "journal.jsonl").write_text("a trial has ended\n")
    monkeypatch.setattr(third, "_renew_at", 0.0)
    third.renew()
    assert third.goes_on
    begin(study, 4)
    assert len(slurm.names) == 5


def test_long_life_of_a_driver_is_progress(slurm: ScriptedSlurm, study: Path) -> None:
    submit(study)
    for number in (1, 2, 3, 4):
        begin(study, number)
        begun = study / "driver" / "jobs" / str(number) / "begun"
        started_at = (study / "driver.lock").stat().st_mtime - 601
        os.utime(begun, (started_at, started_at))
    assert len(slurm.names) == 5


def test_older_driver_leaves_when_a_newer_has_begun(slurm: ScriptedSlurm, study: Path) -> None:
    submit(study)
    older = begin(study, 1)
    assert older.newer() == ""
    begin(study, 2)
    older._look_at = 0.0
    assert older.newer() == "2"


@pytest.mark.parametrize(("by", "ends"), [(str(os.getuid()), True), ("99999", False)])
def test_scancel_by_the_user_ends_the_chain(slurm: ScriptedSlurm, study: Path, by: str, ends: bool) -> None:
    submit(study)
    begin(study, 1)
    slurm.list("CANCELLED", "RUNNING")
    slurm.say("sacct", f"echo '1|CANCELLED by {by}|{slurm.names[0]}'")
    os.environ["SLURM_JOB_ID"] = "2"
    with pytest.raises(UserError if ends else Job, match="cancelled with scancel" if ends else "app.py"):
        run_driver(study / "driver/jobs/2", Launch.of(WORDS, SETTINGS), study / "driver/jobs/1")
    assert len(slurm.names) == (2 if ends else 3)


def test_nodes_that_may_not_submit_jobs(slurm: ScriptedSlurm, study: Path) -> None:
    submit(study)
    slurm.refuse("Access/permission denied")
    os.environ["SLURM_JOB_ID"] = "1"
    with pytest.raises(UserError, match=r"denied\nIf nodes may not .* app\.py -m hydra\.launcher\.driver=here"):
        run_driver(study / "driver/jobs/1", Launch.of(WORDS, SETTINGS), None)


def test_busy_controller_gets_the_next_driver_later(
    slurm: ScriptedSlurm, study: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    submit(study)
    slurm.refuse("QOSMaxSubmitJobPerUserLimit")
    job = begin(study, 1)
    assert not job.goes_on
    job.renew()
    assert "the next driver cannot be submitted now" in capsys.readouterr().out
    slurm.accept()
    monkeypatch.setattr(job, "_renew_at", 0.0)
    job.renew()
    assert job.goes_on


@pytest.mark.parametrize("taken", [True, False])
def test_lost_answer_of_sbatch(slurm: ScriptedSlurm, study: Path, monkeypatch: pytest.MonkeyPatch, taken: bool) -> None:
    monkeypatch.setattr(driver_job, "_ANSWER_S", 2.0 if taken else 0.1)
    slurm.never_answer(but_take=taken)
    slurm.say("squeue", 'echo "1|PENDING|None|$(cut -d" " -f2 "$F/taken" 2>/dev/null)"')
    if taken:
        assert submit(study) == "1"
        return
    with pytest.raises(UserError, match="SLURM accepts no job now for the driver"):
        submit(study)
    assert driver_chain.folders(study) == []


@pytest.mark.parametrize(
    ("settings", "minutes"),
    [
        ({}, 1440),
        ({"partition": "long"}, 1440),
        ({"driver_timeout_min": 5000}, 5000),
        ({"partition": "short", "driver_partition": "main"}, 1440),
        ({"partition": "short", "driver_timeout_min": 30}, 30),
        ({"partition": "hidden"}, 1440),
        ({"partition": "short"}, "hydra.launcher.driver=job: partition short allows 30 minutes, which is short"),
        ({"driver_partition": "main,short"}, "partition short allows 30"),
        (
            {"partition": "odd", "driver_timeout_min": 60},
            "Type hydra.launcher.driver_timeout_min=30, or choose another",
        ),
        ({"partition": "long", "driver_timeout_min": 1441}, "driver_timeout_min=1441: partition long allows 1440"),
    ],
)
def test_time_limits_of_partitions(slurm: ScriptedSlurm, settings: dict[str, Any], minutes: int | str) -> None:
    conf = SlurmLauncherConf(driver="job", **settings)
    if isinstance(minutes, int):
        assert request(conf).timeout_min == minutes
        return
    with pytest.raises(UserError, match=minutes) as raised:
        request(conf)
    assert len(str(raised.value).splitlines()) == 2


def test_machine_without_slurm_is_named(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"no sbatch command\.\nRun the command on a login node"):
        submit(study)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"idle": "x", "journal": null}'])
def test_damaged_start_of_a_driver_counts_as_none(slurm: ScriptedSlurm, study: Path, content: str) -> None:
    submit(study)
    begin(study, 1)
    (study / "driver" / "jobs" / "1" / "begun").write_text(content)
    assert begin(study, 2).goes_on
    assert json.loads((study / "driver" / "jobs" / "2" / "begun").read_text())["idle"] in (0, 1)


def test_twelve_drivers_lose_and_double_no_trial(slurm: ScriptedSlurm, study: Path) -> None:
    diary: list[tuple[int, int]] = []
    submit(study)
    with fake_time() as clock:
        launcher = FakeLauncher(trains(epochs=6, diary=diary), clock, slots=2, survives=True)
        launcher.keep_on_interrupt = True
        work = Study(study, clock, "x=range(32)")
        for number in range(1, 13):
            job = begin(study, number)
            assert read_job_id(study / "driver" / "jobs" / str(number)) == str(number)
            is_warned = (lambda: "SIGTERM" if launcher.polls > 7 else "") if number < 12 else (lambda: "")
            drive = work.drive(launcher, is_warned)
            assert drive.loop.interrupted == (number < 12)
        job.end()
    assert drive.states() == ["completed"] * 32
    assert sorted(diary) == [(trial, epoch) for trial in range(32) for epoch in range(6)]
    assert [attempt for _, attempt in launcher.submitted] == [1] * 32
    assert len(slurm.names) == 13
    assert slurm.lines("scancelled") == ["13"]
