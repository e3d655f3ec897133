"""Warm workers, with a SLURM that answers in milliseconds as a test chooses."""

import errno
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from lab import ScriptedSlurm

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.follow import following, watcher
from sweeps.launchers.slurm.follow.listing import ENDED
from sweeps.launchers.slurm.inside import in_worker
from sweeps.launchers.slurm.inside.in_worker import Worker
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.launchers.slurm.queue import read_ticket
from sweeps.launchers.slurm.trials import workers
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job
from tests.command_lines import some

MakeJob = Callable[..., Job]
WARM = {"trials_per_job": None}


def task(cfg: Any) -> float:
    return 0.0


class Driver:
    """The launcher, the SLURM that answers the launcher, and workers whose acts a test chooses."""

    def __init__(self, slurm: ScriptedSlurm, folder: Path, **settings: Any) -> None:
        self.slurm = slurm
        self.folder = folder
        values = {"poll_s": 3600, "max_submissions_per_min": 10**6, **WARM, **settings}
        self.launcher = SlurmTrials(SlurmLauncherConf(**values), folder.parent)
        self.launcher.open()
        self.asked: set[int] = set()
        self.over: dict[int, Outcome] = {}

    def submit(self, *jobs: Job) -> None:
        for job in jobs:
            assert self.launcher.submit(job)
            self.asked.add(job.number)
        self.check()

    def tick(self, *states: str) -> dict[int, Outcome]:
        """Return the outcomes of `poll` after squeue listed the workers in these states."""
        self.slurm.list(*states)
        self.launcher.slurm.watcher.update()
        outcomes = dict(self.launcher.poll(0.02))
        self.over |= outcomes
        self.check()
        return outcomes

    def check(self) -> None:
        """Check that each submitted trial is in exactly one place: queued, claimed by a followed worker, or over."""
        queued = [file.name for file in self.folder.glob("*/queue/*.job")]
        claimed = [
            file.name for worker in self.launcher.workers.jobs.values() for file in worker.folder.glob("claimed/*")
        ]
        assert len(self.launcher.workers.jobs) <= self.launcher.workers._settings.array_parallelism
        for number in self.asked - self.over.keys():
            places = [name for name in queued + claimed if int(name.split(".")[0]) == number]
            assert len(places) == 1, (number, queued, claimed)
            assert number in self.launcher.workers.trials

    def worker(self, number: int) -> Path:
        """Return the folder of the job with this id."""
        name = self.slurm.names[number - 1]
        return next(file.parent for file in self.folder.glob("*/*/slurm") if read_ticket(file.parent).name == name)

    def claim(self, worker: int) -> str:
        """Claim the oldest trial for the worker."""
        folder = self.worker(worker)
        (folder / "claimed").mkdir(exist_ok=True)
        oldest = min((folder.parent / "queue").glob("*.job"))
        oldest.rename(folder / "claimed" / oldest.name)
        return oldest.name

    def finish(self, worker: int, token: str) -> None:
        claimed = self.worker(worker) / "claimed" / token
        job: Job = cloudpickle.loads(claimed.read_bytes())
        job.attempt_folder.close(Outcome(State.COMPLETED))
        claimed.unlink()


@pytest.fixture
def start(
    scripted_slurm: ScriptedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Driver]]:
    """Yield a function (**settings) that returns a driver."""
    monkeypatch.setattr(following, "BUSY_PAUSE_S", 0.0)
    monkeypatch.setattr(following, "_LATE_S", {})
    monkeypatch.setattr(following, "_LISTING_S", 0.0)
    monkeypatch.setattr(watcher, "_ABSENT_S", 0.0)
    drivers = []

    def one(**settings: Any) -> Driver:
        drivers.append(Driver(scripted_slurm, tmp_path / "study" / "workers", **settings))
        return drivers[-1]

    yield one
    for driver in drivers:
        driver.launcher.slurm.watcher.stop()


def states(outcomes: dict[int, Outcome]) -> dict[int, State]:
    return {number: end.state for number, end in outcomes.items()}


def test_trials_are_taken_in_their_order_and_end(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=1)
    driver.submit(*(make_job(number, task, **WARM) for number in (0, 2, 10)))
    assert driver.tick() == {}
    assert [driver.claim(1) for _ in range(3)] == [f"{number:07}.0001.job" for number in (0, 2, 10)]
    driver.finish(1, "0000002.0001.job")
    assert states(driver.tick("RUNNING")) == {2: State.COMPLETED}
    assert states(driver.tick("NODE_FAIL")) == {0: State.LOST, 10: State.LOST}


def test_a_cancelled_pending_worker_costs_no_trial(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=1)
    driver.submit(*(make_job(number, task, **WARM) for number in range(3)))
    driver.tick()
    assert driver.tick("PENDING Priority") == {}
    assert driver.tick("CANCELLED") == {}
    assert driver.tick("CANCELLED") == {}
    assert len(driver.slurm.names) == 2
    driver.claim(2)
    assert driver.tick("CANCELLED", "RUNNING") == {}
    assert states(driver.tick("CANCELLED", "CANCELLED")) == {0: State.CANCELLED}  # the running trial
    assert driver.tick("CANCELLED", "CANCELLED", "PENDING") == {}
    assert driver.tick("CANCELLED", "CANCELLED", "CANCELLED") == {}  # the second worker had begun


@pytest.mark.parametrize("together", [True, False])
@some(
    ("left", "words"),
    [
        ("log", "a setup line failed"),
        ("slurm/errno.28", "[Errno 28] No space left on device: "),
        ("set_down", "/log: its disk may be full, read-only or not mounted"),
    ],
    3,
)
def test_two_workers_that_never_start_refuse_queued_trials(
    start: Callable[..., Driver], make_job: MakeJob, together: bool, left: str, words: str
) -> None:
    driver = start(array_parallelism=2 if together else 1)
    driver.submit(*(make_job(number, task, **WARM) for number in range(4)))
    for _ in range(6):
        for folder in driver.folder.glob("*/[0-9]*/slurm"):
            (folder.parent / left).touch()
        driver.tick(*["FAILED"] * len(driver.slurm.names))
    assert states(driver.over) == dict.fromkeys(range(4), State.REFUSED)
    assert all("never started" in end.error and words in end.error for end in driver.over.values()), driver.over
    before = len(driver.slurm.names)
    assert before <= 2 + together  # another submission may have started before the second failure
    driver.submit(make_job(9, task, **WARM))  # the reason has not gone away
    for _ in range(3):
        driver.tick(*["FAILED"] * len(driver.slurm.names))
    assert driver.over[9].state is State.REFUSED
    assert len(driver.slurm.names) <= before + 1 + together


def test_workers_lost_before_they_begin_are_replaced(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=1)
    driver.submit(make_job(0, task, **WARM))
    for _ in range(8):
        driver.tick(*["PREEMPTED"] * len(driver.slurm.names))
    assert driver.over == {}
    assert len(driver.slurm.names) > 2


def test_a_refused_worker_refuses_its_pool_alone(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=1)
    driver.submit(make_job(0, task, **WARM))
    driver.tick()
    driver.slurm.refuse("invalid partition")
    driver.launcher.workers._settings.array_parallelism = 2
    driver.submit(make_job(1, task, partition="nowhere", **WARM), make_job(2, task, partition="nowhere", **WARM))
    outcomes = driver.tick("RUNNING")
    assert states(outcomes) == {1: State.REFUSED, 2: State.REFUSED}
    assert outcomes[1].error == "SLURM refused the job: invalid partition. Change hydra.launcher.partition"
    assert driver.slurm.lines("refused") == [""]


@pytest.mark.parametrize("taken", [True, False])
def test_worker_of_an_unanswered_submission_is_followed(
    start: Callable[..., Driver], make_job: MakeJob, taken: bool
) -> None:
    driver = start(array_parallelism=1)
    driver.slurm.never_answer(but_take=taken)
    driver.submit(*(make_job(number, task, **WARM) for number in range(2)))
    driver.launcher.poll(0.02)
    driver.check()
    driver.slurm.accept()
    for _ in range(4):
        driver.tick(*["RUNNING"] * taken, *["RUNNING"] * (not taken))
    assert len(driver.slurm.names) == 1
    assert driver.over == {}


@pytest.mark.parametrize("answered", [True, False])
def test_workers_are_an_array_that_the_next_driver_adopts(
    start: Callable[..., Driver], make_job: MakeJob, answered: bool
) -> None:
    driver = start(array_parallelism=3)
    if not answered:
        driver.slurm.never_answer(but_take=True)
    jobs = [make_job(number, task, **WARM) for number in range(3)]
    driver.submit(*jobs)
    driver.launcher.poll(0.02)
    assert driver.slurm.ids == ["1_0", "1_1", "1_2"]
    driver.slurm.accept()
    driver.slurm.list("RUNNING", "PENDING", "PENDING")
    second = start(array_parallelism=3)
    assert all(second.launcher.adopt(job) for job in jobs)
    second.asked = {0, 1, 2}
    states_of_workers = ["RUNNING", "PENDING", "PENDING"]
    token = second.claim(1)
    assert second.tick(*states_of_workers) == {}
    assert second.tick("RUNNING", "CANCELLED", "PENDING") == {}  # one element, by scancel
    second.tick("RUNNING", "CANCELLED", "PENDING")
    assert driver.slurm.ids[3:] == ["4"]  # a job of its own replaces the element
    second.finish(1, token)
    assert states(second.tick("RUNNING", "CANCELLED", "PENDING", "RUNNING")) == {0: State.COMPLETED}


def test_next_driver_follows_workers_that_slurm_accepts_late(
    start: Callable[..., Driver], make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "_ABSENT_S", 60.0)
    driver = start(array_parallelism=2)
    driver.slurm.never_answer(but_take=True)
    jobs = [make_job(number, task, **WARM) for number in range(3)]
    driver.submit(*jobs)
    driver.launcher.poll(0.02)
    driver.slurm.accept()
    driver.slurm.list("", "")
    second = start(array_parallelism=2)
    assert all(second.launcher.adopt(job) for job in jobs)
    second.asked = {0, 1, 2}
    assert second.tick("", "") == {}
    token = second.claim(1)
    assert second.tick("RUNNING", "RUNNING") == {}
    second.finish(1, token)
    assert states(second.tick("RUNNING", "RUNNING")) == {0: State.COMPLETED}
    assert second.slurm.ids == ["1_0", "1_1"]


@pytest.mark.parametrize(("array", "trials", "ids"), [("never", 3, ["1", "2", "3"]), ("always", 1, ["1_0"])])
def test_user_chooses_whether_workers_are_arrays(
    start: Callable[..., Driver], make_job: MakeJob, array: str, trials: int, ids: list[str]
) -> None:
    driver = start(array_parallelism=3)
    driver.submit(*(make_job(number, task, **WARM, array=array) for number in range(trials)))
    for _ in range(3):
        driver.tick(*["PENDING"] * len(driver.slurm.names))
    assert driver.slurm.ids == ids


def test_workers_that_are_no_longer_needed_are_taken_back_if_they_wait(
    start: Callable[..., Driver], make_job: MakeJob
) -> None:
    driver = start(array_parallelism=3)
    driver.submit(*(make_job(number, task, **WARM) for number in range(3)))
    for _ in range(3):
        driver.tick(*["PENDING"] * len(driver.slurm.names))
    driver.tick("RUNNING", "PENDING", "PENDING")
    for _ in range(2):
        driver.finish(1, driver.claim(1))
    driver.tick("RUNNING", "PENDING", "PENDING")
    driver.tick("RUNNING", "PENDING", "PENDING")
    assert driver.slurm.lines("scancelled") == ["--state=PENDING 1_[1,2]"]
    driver.claim(2)  # the worker claims before the cancellation
    driver.tick("COMPLETED", "RUNNING", "CANCELLED")
    assert states(driver.tick("COMPLETED", "NODE_FAIL", "CANCELLED")) == {2: State.LOST}
    assert driver.launcher.workers._failed_starts == {}


def test_cancel_pending_removes_trials_without_a_worker(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=1)
    driver.submit(*(make_job(number, task, **WARM) for number in range(3)))
    driver.tick()
    driver.claim(1)
    driver.launcher.cancel_pending()
    assert states(driver.tick("RUNNING")) == {1: State.CANCELLED, 2: State.CANCELLED}


def test_trial_with_a_deleted_file_is_lost(
    start: Callable[..., Driver], make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = start(array_parallelism=1)
    driver.submit(make_job(0, task, **WARM))
    driver.tick()
    next(driver.folder.glob("*/queue/*.job")).unlink()
    assert dict(driver.launcher.poll(0.02)) == {}  # a rename may appear in one folder before the other folder
    monkeypatch.setattr(workers, "_GONE_S", -1.0)
    outcomes = dict(driver.launcher.poll(0.02)) | dict(driver.launcher.poll(0.02))
    assert (outcomes[0].state, "is missing" in outcomes[0].error) == (State.LOST, True)


def test_damaged_ends_and_tickets_concern_one_trial(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=1)
    jobs = [make_job(number, task, **WARM) for number in range(3)]
    driver.submit(*jobs)
    driver.tick()
    tokens = [driver.claim(1) for _ in jobs]
    driver.finish(1, tokens[0])
    (jobs[0].attempt_folder.path / "end.json").write_text("noise")
    (jobs[1].attempt_folder.path / "end.json").write_text("noise")  # the trial runs, and will write the file again
    driver.finish(1, tokens[2])
    outcomes = driver.tick("RUNNING")
    assert states(outcomes) == {0: State.LOST, 2: State.COMPLETED}
    assert str(jobs[0].attempt_folder.path / "end.json") in outcomes[0].error
    assert any("trial 1" in note for note in driver.launcher.notes())
    (driver.worker(1) / "job.json").write_text("noise")
    second = start(array_parallelism=1)
    assert second.launcher.adopt(jobs[1])
    assert not second.launcher.adopt(jobs[0])
    second.asked = {1}
    assert second.tick("RUNNING") == {}
    assert states(second.tick("OUT_OF_MEMORY")) == {1: State.OUT_OF_MEMORY}


def test_new_driver_adopts_trials_queued_under_other_settings(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=1)
    job = make_job(0, task, **WARM)
    driver.submit(job)
    driver.launcher.poll(0.02)
    driver.slurm.list("PENDING")
    second = start(array_parallelism=1)
    longer = replace(job, config=make_job(1, task, timeout_min=90, **WARM).config)
    assert second.launcher.adopt(longer)
    second.asked = {0}
    assert second.tick("PENDING") == {}
    assert len(second.slurm.names) == 1
    second.tick("RUNNING")
    second.finish(1, second.claim(1))
    assert states(second.tick("RUNNING")) == {0: State.COMPLETED}


def test_only_their_owner_may_look_into_the_queues(start: Callable[..., Driver], make_job: MakeJob) -> None:
    before = os.umask(0)
    try:
        driver = start(array_parallelism=1)
        driver.submit(make_job(0, task, **WARM))
        driver.tick()
    finally:
        os.umask(before)
    for folder in (driver.folder, *driver.folder.glob("*/queue"), driver.worker(1), driver.worker(1) / "slurm"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


@pytest.mark.parametrize("damage", ["owner", "cut", "noise", "empty"])
def test_worker_loads_only_complete_files_of_its_user(
    start: Callable[..., Driver], make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    driver = start(array_parallelism=1)
    driver.submit(make_job(0, task, **WARM), make_job(1, task, **WARM))
    driver.tick()
    bad = min(driver.folder.glob("*/queue/*.job"))
    content = bad.read_bytes()
    if damage == "owner":
        foreign = os.stat_result([*bad.stat()[:4], os.getuid() + 1, *bad.stat()[5:]])
        real = os.fstat
        inode = bad.stat().st_ino
        monkeypatch.setattr(os, "fstat", lambda fd: foreign if real(fd).st_ino == inode else real(fd))
    else:
        bad.write_bytes({"cut": content[:-9], "noise": b"\x80\x05noise", "empty": b""}[damage])
    started: list[int] = []
    worker = Worker(driver.worker(1), SlurmLauncherConf(trials_per_job=None, trials_at_once=2))
    monkeypatch.setenv("SWEEPYARD_JOB_START", str(time.time()))
    monkeypatch.setattr(worker._forks, "ready", True)
    monkeypatch.setattr(worker._forks, "start", lambda job, *_: started.append(job.number))
    worker._claim()
    assert started == [1]
    monkeypatch.setattr(workers, "_GONE_S", -1.0)
    outcomes = dict(driver.launcher.poll(0.02)) | dict(driver.launcher.poll(0.02))
    assert (outcomes[0].state, str(bad) in outcomes[0].error) == (State.LOST, True)


def test_worker_returns_unreadable_trials_to_the_queue(
    start: Callable[..., Driver], make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = start(array_parallelism=1)
    driver.submit(make_job(0, task, **WARM))
    driver.tick()
    worker = Worker(driver.worker(1), SlurmLauncherConf(trials_per_job=None))
    monkeypatch.setenv("SWEEPYARD_JOB_START", str(time.time()))
    monkeypatch.setattr(worker._forks, "ready", True)
    started: list[int] = []
    monkeypatch.setattr(worker._forks, "start", lambda job, *_: started.append(job.number))
    with monkeypatch.context() as away:
        away.setattr(in_worker, "read_own", stale)
        with pytest.raises(OSError, match="Stale"):
            worker._claim()
    driver.check()
    worker._claim()
    assert started == [0]


def stale(path: Path) -> bytes:
    raise OSError(errno.ESTALE, "Stale file handle", str(path))


def test_idle_workers_are_released(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=2)
    driver.submit(make_job(0, task, **WARM), make_job(1, task, **WARM))
    driver.tick()
    driver.tick("RUNNING")
    for _ in range(2):
        driver.finish(1, driver.claim(1))
    driver.tick("RUNNING", "PENDING")
    driver.launcher.close()
    assert [(driver.worker(number) / "dismissed").exists() for number in (1, 2)] == [True, True]
    assert all(line.startswith("--state=PENDING") for line in driver.slurm.lines("scancelled"))


def test_a_driver_that_is_killed_ends_its_workers(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=1)
    driver.submit(make_job(0, task, **WARM), make_job(1, task, **WARM))
    driver.tick()
    driver.claim(1)
    driver.tick("RUNNING")
    driver.launcher.close()
    assert driver.slurm.lines("scancelled") == ["1"]
    assert list(driver.folder.glob("*/queue/*.job")) == []


def test_kept_workers_match_the_queued_trials(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(array_parallelism=2, detach=True)
    for number in range(8):
        assert driver.launcher.submit(make_job(number, task, **WARM))
    driver.launcher.close(keep=True)
    assert len(driver.slurm.names) == 2
    assert len(list(driver.folder.glob("*/queue/*.job"))) == 8
    assert driver.slurm.lines("scancelled") == []


def test_trials_that_no_worker_serves_are_not_left(start: Callable[..., Driver], make_job: MakeJob) -> None:
    driver = start(detach=True)
    driver.slurm.refuse("QOSMaxSubmitJobPerUserLimit")
    for number in range(3):
        assert driver.launcher.submit(make_job(number, task, **WARM))
    driver.launcher.close(keep=True)
    assert not driver.slurm.names
    assert list(driver.folder.glob("*/queue/*.job")) == []
    ends = dict(driver.launcher.poll(0.0))
    assert {number: end.state for number, end in ends.items()} == dict.fromkeys(range(3), State.CANCELLED)
    assert "no worker was submitted" in ends[0].error


@some("seed", range(12), 4)
def test_random_slurm_faults_lose_no_trial(start: Callable[..., Driver], make_job: MakeJob, seed: int) -> None:
    """Check the invariant after each random step, and check that all trials end."""
    dice = random.Random(seed)
    settings = {"array": dice.choice(["auto", "never"]), "trials_at_once": dice.choice([1, 2])}
    driver = start(array_parallelism=dice.choice([1, 3]), **settings)
    left = [make_job(number, task, **WARM, array=settings["array"]) for number in range(5)]
    now: list[str] = []
    for _ in range(150):
        if left and driver.launcher.has_room(ahead=True) and dice.random() < 0.5:
            driver.submit(left.pop(0))
        answers = dice.random() < 0.8
        driver.slurm.accept() if answers else driver.slurm.never_answer(but_take=dice.random() < 0.5)
        now += ["PENDING Priority"] * (len(driver.slurm.names) - len(now))
        now = [lives_on(driver, dice, number, state) for number, state in enumerate(now, 1)]
        driver.tick(*now)
        if not left and driver.over.keys() == driver.asked:
            break
    assert not left and driver.over.keys() == driver.asked, (driver.over, now, driver.launcher.notes())
    assert len(driver.slurm.names) < 60


def lives_on(driver: Driver, dice: random.Random, worker: int, state: str) -> str:
    """Return the worker's state after a random step."""
    if state.startswith("PENDING"):
        return dice.choice([state] * 2 + ["RUNNING"] * 6 + ["CANCELLED"])
    if state != "RUNNING":
        return state
    folder = driver.worker(worker)
    claimed = sorted(file.name for file in folder.glob("claimed/*"))
    doing = dice.random()
    if doing < 0.5 and any((folder.parent / "queue").glob("*.job")) and len(claimed) < 2:
        driver.claim(worker)
    elif doing < 0.9 and claimed:
        driver.finish(worker, claimed[0])
    elif doing > 0.95:
        return dice.choice(sorted(ENDED.keys() - {"GONE"}))
    return state
