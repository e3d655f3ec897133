"""A job for each trial, with a SLURM that answers in milliseconds as a test chooses."""

import errno
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.follow import following, jobs, watcher
from sweeps.launchers.slurm.follow.listing import JobInfo
from sweeps.launchers.slurm.inside import in_job
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.launchers.slurm.queue import Ticket, cancel_pending_and_dismiss_idle, living_jobs, name_of
from sweeps.trial.folder import AttemptFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job, SentJob
from tests.command_lines import some

MakeJob = Callable[..., Job]


def task(cfg: Any) -> float:
    return 0.0


class Driver:
    """The launcher, and the SLURM that answers the launcher."""

    def __init__(self, slurm: ScriptedSlurm) -> None:
        self.slurm = slurm
        settings = SlurmLauncherConf(poll_s=3600, max_submissions_per_min=10**6, trials_per_job=1)
        self.launcher = SlurmTrials(settings, slurm.folder.parent / "study")
        self.launcher.open()

    def tick(self, *states: str) -> dict[int, Outcome]:
        """Return the outcomes of `poll` after squeue listed the jobs in these states."""
        self.slurm.list(*states)
        self.launcher.slurm.watcher.update()
        return dict(self.launcher.poll(0.02))


@pytest.fixture
def driver(scripted_slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr(following, "BUSY_PAUSE_S", 0.0)
    monkeypatch.setattr(following, "_LATE_S", {})
    monkeypatch.setattr(following, "_LISTING_S", 0.0)
    monkeypatch.setattr(watcher, "_ABSENT_S", 0.0)
    new_driver = Driver(scripted_slurm)
    yield new_driver
    new_driver.launcher.slurm.watcher.stop()


def test_status_of_the_launcher() -> None:
    settings = SlurmLauncherConf(detach=True, max_num_timeout=4)
    launcher = SlurmTrials(settings, Path())
    attributes = (launcher.survives, launcher.detach, launcher.keep_on_interrupt, launcher.max_timeouts)
    assert attributes == (True, True, False, 4)


def test_submission_rate(scripted_slurm: ScriptedSlurm, make_job: MakeJob) -> None:
    jobs = [make_job(number, task) for number in range(1, 12)]
    slow = SlurmTrials(SlurmLauncherConf(trials_per_job=1, max_submissions_per_min=2), Path())
    assert slow.submit(jobs[0])
    assert not slow.submit(jobs[1])
    quicker = SlurmTrials(SlurmLauncherConf(trials_per_job=1, max_submissions_per_min=1200), Path())
    started = time.monotonic()
    for job in jobs:
        while not quicker.submit(job):
            time.sleep(0.01)
    assert time.monotonic() - started >= 10 * 60 / 1200 - following._CATCH_UP_S


@pytest.mark.parametrize("taken", [True, False])
def test_unanswered_submission_is_followed_until_its_job_is_known(
    driver: Driver, make_job: MakeJob, taken: bool
) -> None:
    job = make_job(1, task)
    driver.slurm.never_answer(but_take=taken)
    assert driver.launcher.submit(job)
    assert any("Socket timed out" in note for note in driver.launcher.notes())
    driver.slurm.accept()
    assert driver.tick(*["RUNNING"] * taken) == {}
    for _ in range(3):
        assert driver.tick("RUNNING") == {}
    assert driver.slurm.names == [name_of(job.attempt_folder.path)]  # never two
    driver.launcher.close()
    assert driver.slurm.lines("scancelled") == ["1"]


def test_a_submission_without_an_answer_may_be_refused_in_the_end(driver: Driver, make_job: MakeJob) -> None:
    driver.slurm.never_answer(but_take=False)
    assert driver.launcher.submit(make_job(1, task))
    driver.slurm.refuse("no such partition")
    outcomes = driver.tick() | driver.tick() | driver.tick()
    assert (outcomes[1].state, outcomes[1].error) == (State.REFUSED, "SLURM refused the job: no such partition")


@pytest.mark.parametrize("damage", ["", "{", "noise", '{"id": "99"}', None])
def test_job_with_a_damaged_ticket_is_adopted(driver: Driver, make_job: MakeJob, damage: str | None) -> None:
    job, other = make_job(1, task), make_job(2, task)
    assert driver.launcher.submit(job)
    ticket = job.attempt_folder.path / "job.json"
    ticket.unlink()
    if damage is not None:
        ticket.write_text(damage)
    driver.slurm.list("RUNNING")
    second = Driver(driver.slurm)
    assert second.launcher.adopt(job)
    assert not second.launcher.adopt(other)
    assert second.tick("RUNNING") == {}
    assert second.tick("TIMEOUT")[1].state is State.TIMED_OUT
    second.launcher.slurm.watcher.stop()


def test_a_job_that_is_gone_is_not_adopted_unless_slurm_is_silent(driver: Driver, make_job: MakeJob) -> None:
    job = make_job(1, task)
    assert not driver.launcher.adopt(job)
    driver.slurm.say("squeue", "exit 1")
    assert driver.launcher.adopt(job)


def test_error_of_one_trial_affects_no_other(
    driver: Driver, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, damaged, well = (make_job(number, task) for number in range(3))
    for job in (stale, damaged, well):
        assert driver.launcher.submit(job)
    (damaged.attempt_folder.path / "end.json").write_text('{"state": "compl')
    real = AttemptFolder.end

    def end(self: AttemptFolder) -> Outcome | None:
        if self == stale.attempt_folder:
            raise OSError(errno.ESTALE, "Stale file handle", str(self.path))
        return real(self)

    monkeypatch.setattr(AttemptFolder, "end", end)
    well.attempt_folder.close(Outcome(State.COMPLETED, objective=[1.0]))
    assert driver.tick("RUNNING", "RUNNING", "COMPLETED") == {2: well.attempt_folder.end()}
    assert any("Stale file handle" in note and "and 1 more" in note for note in driver.launcher.notes())
    outcomes = driver.tick("COMPLETED", "COMPLETED", "COMPLETED")
    outcomes |= driver.tick("COMPLETED", "COMPLETED", "COMPLETED")
    assert {number: end.state for number, end in outcomes.items()} == {0: State.LOST, 1: State.LOST}
    assert str(damaged.attempt_folder.path / "end.json") in outcomes[1].error
    assert "Stale file handle" in outcomes[0].error
    assert damaged.attempt_folder.close(outcomes[1]).state is State.LOST


@some("seed", range(15), 5)
def test_no_damage_raises_or_hangs(driver: Driver, make_job: MakeJob, seed: int) -> None:
    dice = random.Random(seed)
    job, well = make_job(1, task), make_job(2, task)
    assert driver.launcher.submit(job) and driver.launcher.submit(well)
    job.attempt_folder.begin(1.0)
    job.attempt_folder.log.write_text("step 1")
    if dice.random() < 0.5:
        job.attempt_folder.close(Outcome(State.COMPLETED))
    victim = dice.choice([*sorted(file for file in job.attempt_folder.path.rglob("*") if file.is_file()), None])
    if victim is None:
        shutil.rmtree(job.folder.path)
    else:
        content = victim.read_bytes()
        cut = dice.randrange(len(content) + 1)
        victim.write_bytes(dice.choice([b"", content[:cut], content * 2, dice.randbytes(50)]))
    well.attempt_folder.close(Outcome(State.COMPLETED))
    second = Driver(driver.slurm)
    driver.slurm.list("RUNNING", "RUNNING")
    assert second.launcher.adopt(job) and second.launcher.adopt(well)
    outcomes = second.tick("COMPLETED", "COMPLETED") | second.tick("COMPLETED", "COMPLETED")
    assert outcomes.keys() == {1, 2}
    assert outcomes[2].state is State.COMPLETED
    assert job.attempt_folder.close(outcomes[1]).state in State
    second.launcher.slurm.watcher.stop()


def test_a_disk_without_room_refuses_and_other_troubles_pass(
    driver: Driver, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    def away(*_: Any, **__: Any) -> str:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(following, "submit", away)
    assert not driver.launcher.submit(make_job(1, task))
    assert any("Stale file handle" in note for note in driver.launcher.notes())
    monkeypatch.setattr(following, "submit", full)
    assert driver.launcher.submit(make_job(2, task))
    end = driver.tick()[2]
    assert (end.state, "No space left" in end.error) == (State.REFUSED, True)


@some(
    ("reason", "words"),
    [
        ("JobHeldUser", "Release it: scontrol release 1"),
        ("JobHeldAdmin", "Ask your admins to release it: scontrol release 1"),
        ("launch_failed_requeued_held", "Release it"),
        ("PartitionTimeLimit", "Cancel it and change its request: scancel 1"),
        ("BadConstraints", "Cancel it and change its request: scancel 1"),
        ("QOSMaxWallDurationPerJobLimit", "Cancel it and change its request: scancel 1"),
        ("AssocMaxJobsLimit", None),
        ("QOSMaxJobsPerUserLimit", None),
        ("ReqNodeNotAvail, UnavailableNodes:lab1", None),
        ("Priority", None),
        ("Resources", None),
        ("BeginTime", None),
        ("None", None),
    ],
    4,
)
def test_job_that_can_never_start_is_reported_once(
    driver: Driver, make_job: MakeJob, monkeypatch: Any, caplog: Any, reason: str, words: str | None
) -> None:
    monkeypatch.setattr(following, "_STUCK_S", 0.0)
    assert driver.launcher.submit(make_job(1, task))
    driver.tick(f"PENDING {reason}")
    driver.tick(f"PENDING {reason}")
    assert driver.launcher.notes() == ["1 pending" if reason == "None" else f"1 pending: {reason}"]
    assert len(caplog.messages) == (words is not None)
    assert words is None or (words in caplog.text and "will not start by itself" in caplog.text)


@pytest.mark.parametrize(
    ("held", "words"), [([1, 3], "release 7_[1,3], or cancel it: scancel 7_[1,3]"), (range(4), "scancel 7")]
)
def test_advice_on_held_elements_names_no_other_element(
    tmp_path: Path, monkeypatch: Any, caplog: Any, held: Sequence[int], words: str
) -> None:
    followed = following.FollowedJobs(SlurmLauncherConf())
    for index in range(4):
        state = JobInfo(f"7_{index}", "PENDING", "JobHeldUser" if index in held else "Resources")
        job = followed.follow(tmp_path, Ticket(f"a_{index}", state.id, tmp_path))
        job.info, job.warn_at = state, 0.0
    for job in followed.jobs.values():
        followed.final_info(job)
    assert [message.endswith(words) for message in caplog.messages] == [True]


@pytest.mark.parametrize("has_successor", [True, False])
def test_job_of_an_attempt_that_is_over_runs_nothing(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, has_successor: bool
) -> None:
    job = make_job(1, task)
    monkeypatch.setattr("os.environ", {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"})
    if has_successor:
        job.folder.new_attempt()
    else:
        job.attempt_folder.close(Outcome(State.CANCELLED, "it ended with its driver"))
    with pytest.raises(UserError, match="is over"):
        in_job.run_attempt(SentJob.of(job), job.config.hydra.launcher)
    assert job.attempt_folder.began() is None


def test_jobs_that_slurm_does_not_list_are_cancelled_before_they_are_retried(driver: Driver, make_job: MakeJob) -> None:
    for number in range(3):
        assert driver.launcher.submit(make_job(number, task))
    driver.tick("RUNNING", "PENDING", "RUNNING")
    outcomes = driver.tick("", "", "RUNNING") | driver.tick("", "", "RUNNING")
    assert {number: end.state for number, end in outcomes.items()} == {0: State.LOST, 1: State.LOST}
    assert driver.slurm.lines("scancelled") == ["1 2"]


def test_canceller_of_a_job_decides_about_its_retry(driver: Driver, make_job: MakeJob) -> None:
    for number in range(3):
        assert driver.launcher.submit(make_job(number, task))
    names = driver.slurm.names
    driver.slurm.say("sacct", f"echo '1|CANCELLED by 54321|{names[0]}'")
    outcomes = driver.tick("CANCELLED", "RUNNING", "RUNNING")
    assert (outcomes[0].state, "by user 54321" in outcomes[0].error) == (State.LOST, True)
    driver.slurm.say("sacct", f"echo '2|CANCELLED by {__import__('os').getuid()}|{names[1]}'")
    assert driver.tick("CANCELLED", "CANCELLED", "RUNNING")[1].state is State.CANCELLED
    driver.slurm.say("sacct", "exit 1")
    assert driver.tick("CANCELLED", "CANCELLED", "CANCELLED")[2].state is State.CANCELLED


def test_cancel_pending_cancels_queued_jobs(driver: Driver, make_job: MakeJob) -> None:
    for number in range(2):
        assert driver.launcher.submit(make_job(number, task))
    driver.launcher.cancel_pending()
    assert driver.slurm.lines("scancelled") == ["--state=PENDING 1 2"]
    outcomes = driver.tick("CANCELLED", "RUNNING")
    assert {number: end.state for number, end in outcomes.items()} == {0: State.CANCELLED}
    assert driver.tick("CANCELLED", "PREEMPTED")[1].state is State.LOST


def test_job_that_survives_scancel_is_cancelled_again(
    driver: Driver, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_CANCEL_AGAIN_S", 0.0)
    assert driver.launcher.submit(make_job(1, task))
    driver.tick("PENDING Priority")
    driver.launcher.cancel_pending()
    driver.launcher.slurm.watcher.problem = "Unable to contact slurm controller"
    driver.launcher.poll(0.02)
    assert driver.slurm.lines("scancelled") == ["--state=PENDING 1"]
    driver.tick("PENDING Priority")
    assert driver.slurm.lines("scancelled")[:2] == ["--state=PENDING 1"] * 2
    assert driver.tick("CANCELLED")[1].state is State.CANCELLED


@pytest.mark.parametrize(("straggle_s", "cancelled"), [(30.0, []), (0.0, ["1"])])
def test_a_rank_that_hangs_when_its_chief_has_ended_keeps_no_nodes(
    driver: Driver, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, straggle_s: float, cancelled: list[str]
) -> None:
    monkeypatch.setattr(jobs, "_STRAGGLE_S", straggle_s)
    job = make_job(1, task, nodes=2)
    assert driver.launcher.submit(job)
    job.attempt_folder.close(Outcome(State.COMPLETED))
    for _ in range(3):
        assert driver.tick("RUNNING") == {}
    assert driver.slurm.lines("scancelled") == cancelled
    assert driver.tick("CANCELLED")[1].state is State.COMPLETED


def test_rank_1_reports_the_error_of_its_trial(driver: Driver, make_job: MakeJob) -> None:
    job = make_job(1, task, nodes=2)
    assert driver.launcher.submit(job)
    place = job.attempt_folder
    place.begin(1.0)
    (place.path / "slurm" / "set_up").touch()
    place.log.write_text("srun: error: lab2: task 1: Exited with exit code 1")
    (place.path / "ranks").mkdir()
    (place.path / "ranks" / "2.json").write_text("noise")
    (place.path / "ranks" / "1.json").write_text(json.dumps(Outcome(State.FAILED, "RuntimeError: no data").as_json()))
    end = driver.tick("FAILED")[1]
    assert (end.state, end.error) == (State.FAILED, "rank 1: RuntimeError: no data (SLURM job 1)")


def test_leftover_jobs_are_found_by_name(driver: Driver, make_job: MakeJob) -> None:
    first, second = make_job(1, task), make_job(2, task)
    assert driver.launcher.submit(first) and driver.launcher.submit(second)
    (first.attempt_folder.path / "job.json").write_text("noise")
    driver.slurm.list("PENDING Priority", "RUNNING")
    study = first.folder.path.parent
    jobs = living_jobs(study, [first.folder.path, second.folder.path])
    assert [(job.id, job.state) for job in jobs] == [("1", "PENDING"), ("2", "RUNNING")]
    cancel_pending_and_dismiss_idle(study, jobs)
    assert driver.slurm.lines("scancelled") == ["--state=PENDING 1"]
    driver.slurm.list("CANCELLED", "COMPLETED")
    assert living_jobs(study, [first.folder.path, second.folder.path]) == []
    assert living_jobs(study, []) == []


def test_unanswered_submissions_are_reported_at_the_end(driver: Driver, make_job: MakeJob, caplog: Any) -> None:
    driver.slurm.never_answer(but_take=True)
    job = make_job(1, task)
    assert driver.launcher.submit(job)
    driver.slurm.say("scancel", "echo away >&2; exit 1")
    name = name_of(job.attempt_folder.path)
    for leave, typed in [
        (driver.launcher.cancel_pending, f"--state=PENDING --name={name}"),
        (driver.launcher.close, name),
    ]:
        caplog.clear()
        leave()
        assert "may still be running" in caplog.text and caplog.text.rstrip().endswith(typed)
