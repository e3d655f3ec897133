"""Grids as job arrays, and short trials in workers, on a SLURM with a simulated clock."""

import copy
import math
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated import SimulatedSlurm, simulated_slurm

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.launchers.slurm.queue import cancel_pending_and_dismiss_idle, jobs_of_attempts, living_jobs, read_ticket
from sweeps.launchers.slurm.script import limits
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job
from tests.command_lines import some

MakeJob = Callable[..., Job]


def task(cfg: Any) -> float:
    return 0.0


class Driver:
    """A launcher in the hands of a loop that has all trials of a grid, or asks for one after the other."""

    def __init__(
        self, slurm: SimulatedSlurm, jobs: list[Job], folder: Path, ahead: bool = True, **settings: Any
    ) -> None:
        self.slurm, self.left, self.ahead = slurm, list(jobs), ahead
        self.jobs = {job.number: job for job in jobs}
        self.launcher = SlurmTrials(SlurmLauncherConf(**settings), folder)
        self.launcher.workers.open()
        self.over: dict[int, Outcome] = {}
        self._asked_at = slurm.now

    def turn(self) -> None:
        """Fill, poll and ask SLURM, as the driver and its watcher do."""
        while self.left and self.launcher.has_room(ahead=self.ahead) and self.launcher.submit(self.left[0]):
            self.left.pop(0)
        for number, end in self.launcher.poll(0.25):
            self.over[number] = self.jobs[number].attempt_folder.close(end)
        if self.slurm.now - self._asked_at >= self.launcher._settings.poll_s:
            self._asked_at = self.slurm.now
            self.launcher.slurm.watcher.update_if_due()

    def run(self, until: Callable[[], object] = lambda: False, hours: float = 24) -> "Driver":
        """Run until all trials are over, or the condition is met."""
        deadline = self.slurm.now + 3600 * hours
        while (self.left or len(self.over) < len(self.jobs)) and not until():
            assert self.slurm.now < deadline, (len(self.over), len(self.left), self.launcher.notes())
            self.turn()
        return self

    @property
    def states(self) -> dict[str, int]:
        states = [end.state.value for end in self.over.values()]
        return {state: states.count(state) for state in states}


@pytest.fixture
def start(make_job: MakeJob, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Yield a function (slurm, trials, **settings) that returns a driver; `job` are settings of each trial."""

    def start(slurm: SimulatedSlurm, count: int, job: dict[str, Any] | None = None, **settings: Any) -> Driver:
        own = {"trials_per_job": settings.get("trials_per_job", "auto"), "array": settings.get("array", "auto")}
        template = make_job(0, task, **own, **(job or {}))
        folders = [TrialFolder(template.folder.path.with_name(str(number))) for number in range(count)]
        jobs = [  # with the first trial's configuration, because nothing runs
            replace(template, number=number, folder=folder, attempt=folder.new_attempt().number)
            for number, folder in enumerate(folders)
        ]
        return Driver(slurm, jobs, jobs[0].folder.path.parent, **settings)

    yield start


def run_and_count(driver: Driver) -> int:
    """Run until all trials are over, and return the most jobs that ran at a time."""
    counts: list[int] = []

    def count_running() -> bool:
        counts.append(sum(job.state == "RUNNING" for job in driver.slurm.jobs.values()))
        return False

    driver.run(count_running)
    return max(counts)


def most_in(times: list[float], window_s: float) -> int:
    """Return the largest number of events in any window."""
    return max((sum(start <= at < start + window_s for at in times) for start in times), default=0)


@pytest.mark.long
@pytest.mark.parametrize(("rate", "queued_s"), [(60, 0), (60, 40), (60, 300), (10, 0)])
def test_a_default_grid_of_short_trials_breaks_no_published_rule(
    start: Callable[..., Driver], rate: int, queued_s: int
) -> None:
    with simulated_slurm(slots=0, trial_s=20.0, step_s=1.0) as slurm:
        driver = start(slurm, 200, max_submissions_per_min=rate)
        opens_at = slurm.now + queued_s
        driver.run(lambda: slurm.now >= opens_at)
        slurm.slots = 64
        driver.run()
        slurm.sleep(120.0)
    assert driver.states == {"completed": 200}
    jobs = list(slurm.jobs.values())
    assert sum(job.ended - job.started < 120 for job in jobs) <= 100  # LRZ
    assert most_in([job.started for job in jobs], 60.0) <= 10  # ULHPC
    assert most_in(slurm.times("sbatch"), 1.0) == 1  # UAB
    assert len(slurm.times("sbatch")) <= 5
    assert sum(job.is_worker for job in jobs) <= 10
    assert most_in(slurm.times("squeue"), 60.0) <= 12  # UF
    assert {job.state for job in jobs} == {"COMPLETED"}


def test_a_search_of_short_trials_starts_slowly_and_goes_to_workers(start: Callable[..., Driver]) -> None:
    with simulated_slurm(slots=64, trial_s=20.0) as slurm:
        driver = start(slurm, 60, ahead=False, array_parallelism=8).run()
    assert driver.states == {"completed": 60}
    jobs = list(slurm.jobs.values())
    assert most_in([job.started for job in jobs], 60.0) <= 10
    assert sum(not job.is_worker for job in jobs) <= 10


@pytest.mark.long
def test_long_trials_are_arrays_within_the_throttle(start: Callable[..., Driver]) -> None:
    with simulated_slurm(slots=64, trial_s=800.0) as slurm:
        driver = start(slurm, 100, array_parallelism=25)
        driver.run(lambda: not driver.left and not driver.launcher.jobs.unsent)
        assert len(slurm.jobs) == 100
        most = run_and_count(driver)
    assert driver.states == {"completed": 100}
    assert len(slurm.times("sbatch")) <= 5
    assert most == 25


def test_trials_of_an_earlier_command_show_the_length_from_the_start(start: Callable[..., Driver]) -> None:
    with simulated_slurm(slots=64, trial_s=20.0) as slurm:
        earlier = start(slurm, 4).run()
        for job in earlier.jobs.values():
            job.folder.write_trial({"number": job.number})
        shutil.copytree(earlier.jobs[3].folder.path, earlier.jobs[3].folder.path.with_name("3.copy"))
        driver = start(slurm, 30)
        driver.launcher.slurm.lengths.read(driver.jobs[0].folder.path.parent)
        submissions = len(slurm.jobs)
        driver.run()
    assert all(job.is_worker for job in list(slurm.jobs.values())[submissions:])


@pytest.mark.parametrize(
    ("array_limit", "submit_limit"),
    [(41, math.inf), (1001, 30), (1, math.inf)],
    ids=["MaxArraySize", "MaxSubmitJobs", "no arrays"],
)
def test_slices_respect_the_limits_of_the_site(
    start: Callable[..., Driver], array_limit: int, submit_limit: float
) -> None:
    with simulated_slurm(slots=64, trial_s=100.0) as slurm:
        slurm.array_limit, slurm.submit_limit = max(2, array_limit), submit_limit
        driver = start(slurm, 70, trials_per_job=1).run()
    assert driver.states == {"completed": 70}
    sizes = [sum(job.array == array for job in slurm.jobs.values()) for array in {j.array for j in slurm.jobs.values()}]
    assert max(sizes) < max(2, array_limit)
    assert max(sizes) <= submit_limit


@pytest.mark.parametrize(("array_limit", "submit_limit"), [(4, math.inf), (1001, 3)])
def test_arrays_of_workers_respect_the_limits_of_the_site(
    start: Callable[..., Driver], array_limit: int, submit_limit: float
) -> None:
    with simulated_slurm(slots=64, trial_s=100.0) as slurm:
        slurm.array_limit, slurm.submit_limit = array_limit, submit_limit
        driver = start(slurm, 9, trials_per_job=None).run()
    assert driver.states == {"completed": 9}
    assert all(job.is_worker for job in slurm.jobs.values())
    sizes = [sum(job.array == array for job in slurm.jobs.values()) for array in {j.array for j in slurm.jobs.values()}]
    assert 1 < max(sizes) <= 3


def test_workers_for_trials_of_unknown_length_come_ten_in_ten_seconds(start: Callable[..., Driver]) -> None:
    with simulated_slurm(slots=64, trial_s=30.0, step_s=1.0) as slurm:
        driver = start(slurm, 15, trials_per_job=None).run()
    assert driver.states == {"completed": 15}
    assert most_in([job.started for job in slurm.jobs.values()], 9.0) == 10
    assert len(slurm.times("sbatch")) == 2


def test_limits_are_read_from_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "scontrol": "Configuration data as of now\nMaxArraySize            = 501\nMaxDBDMsgs = 9\n",
        "assoc": "lab|normal|80|\nother|normal||\n",
        "qos": "normal||\nnarrow|7|9\n",
    }
    monkeypatch.setattr(limits, "answer", lambda words: answers[words[0] if words[0] == "scontrol" else words[4]])
    assert limits.max_array() == 501
    assert limits.max_submitted(SlurmLauncherConf(account="lab")) == 80
    assert limits.max_submitted(SlurmLauncherConf(account="lab", qos="narrow")) == 7
    assert limits.max_submitted(SlurmLauncherConf()) == math.inf
    answers |= {"scontrol": "?", "assoc": "", "qos": ""}
    assert (limits.max_array(), limits.max_submitted(SlurmLauncherConf(account="lab"))) == (1000, math.inf)
    answers |= {"assoc": "lab|normal|0|\n"}
    assert limits.max_submitted(SlurmLauncherConf(account="lab")) == 1  # so that sbatch names the limit
    monkeypatch.setattr(limits.pwd, "getpwuid", lambda uid: {}[uid])
    assert limits.max_submitted(SlurmLauncherConf(account="lab")) == math.inf


def test_folders_of_an_array_are_private_and_name_its_elements(start: Callable[..., Driver]) -> None:
    with simulated_slurm(slots=0, trial_s=1.0) as slurm:
        driver = start(slurm, 3, job={"setup": ["export SECRET=1"]}, trials_per_job=1)
        driver.run(lambda: slurm.jobs)
        job = driver.jobs[2]
        study, attempt = job.folder.path.parent, job.attempt_folder.path
        [array] = study.glob("arrays/*/1")
        assert stat.S_IMODE(array.stat().st_mode) == 0o700
        assert (array / "elements" / "2").resolve() == attempt.resolve()
        assert read_ticket(attempt).id == "1_2"
        assert stat.S_IMODE((attempt / "slurm" / "setup.sh").stat().st_mode) == 0o600
        jobs = living_jobs(study, [job.folder.path for job in driver.jobs.values()])
        assert [info.id for info in jobs] == ["1_0", "1_1", "1_2"]
        assert jobs_of_attempts(study, {2: attempt}) == {2: "1_2"}
        cancel_pending_and_dismiss_idle(study, jobs[1:])
        driver.run(lambda: len(driver.over) == 2)
        assert driver.states == {"cancelled": 2}
        assert not (attempt / "slurm" / "setup.sh").exists()
    (attempt / "job.json").write_text('{"array": "../../../arrays/elsewhere/1", "index": 2}')
    assert read_ticket(attempt).id is None


@pytest.mark.parametrize("accepted", [True, False])
def test_new_driver_adopts_the_elements_of_a_killed_driver(start: Callable[..., Driver], accepted: bool) -> None:
    with simulated_slurm(slots=2, trial_s=600.0) as slurm:
        slurm.lost_answers = int(accepted)
        slurm.submit_limit = math.inf if accepted else 0
        first = start(slurm, 5, trials_per_job=1)
        first.run(lambda: slurm.calls)
        slurm.sleep(1.0)
        second = Driver(slurm, list(first.jobs.values()), first.jobs[0].folder.path.parent, trials_per_job=1)
        adopted = [second.launcher.adopt(job) for job in second.jobs.values()]
        assert adopted == [accepted] * 5
        if accepted:
            second.left.clear()
            second.run()
            assert second.states == {"completed": 5}
            assert len(slurm.jobs) == 5
            assert read_ticket(second.jobs[4].attempt_folder.path).id == "1_4"


def test_throttle_of_a_running_array_follows_the_settings(start: Callable[..., Driver]) -> None:
    with simulated_slurm(slots=64, trial_s=600.0) as slurm:
        first = start(slurm, 40, trials_per_job=1, array_parallelism=4)
        first.run(lambda: sum(job.state == "RUNNING" for job in slurm.jobs.values()) == 4)
        second = Driver(
            slurm, list(first.jobs.values()), first.jobs[0].folder.path.parent, trials_per_job=1, array_parallelism=9
        )
        second.left.clear()
        assert all(second.launcher.adopt(job) for job in second.jobs.values())
        second.run(lambda: sum(job.state == "RUNNING" for job in slurm.jobs.values()) == 9, hours=1)
    assert len(slurm.times("scontrol")) <= 3


def test_cancel_pending_ends_collected_and_pending_elements(start: Callable[..., Driver]) -> None:
    with simulated_slurm(slots=2, trial_s=600.0) as slurm:
        driver = start(slurm, 150, trials_per_job=1)
        driver.run(lambda: slurm.jobs)
        assert len(slurm.jobs) == 150
        slurm.sleep(1.0)
        driver.launcher.cancel_pending()
        driver.run()
    assert driver.states == {"cancelled": 148, "completed": 2}
    assert len(slurm.times("scancel")) == 1


def test_cancelling_an_element_without_an_id_cancels_no_other(start: Callable[..., Driver]) -> None:
    with simulated_slurm(slots=2, trial_s=600.0) as slurm:
        slurm.lost_answers = 1
        driver = start(slurm, 5, trials_per_job=1)
        driver.run(lambda: slurm.jobs)
        jobs = driver.launcher.slurm
        elements = list(jobs.jobs.values())
        jobs.cancel(elements[4:])
        assert not slurm.times("scancel")
        jobs.cancel(elements)
        assert len(slurm.times("scancel")) == 1
        driver.run()
    assert driver.states == {"completed": 2, "cancelled": 3}


def test_lost_element_is_retried_alone(start: Callable[..., Driver]) -> None:
    with simulated_slurm(slots=64, trial_s=600.0) as slurm:
        driver = start(slurm, 6, trials_per_job=1)
        driver.run(lambda: len(slurm.jobs) == 6 and all(job.state == "RUNNING" for job in slurm.jobs.values()))
        slurm.jobs["1_3"].state, slurm.jobs["1_3"].ended = "NODE_FAIL", slurm.now
        driver.run(lambda: driver.over)
        assert driver.over[3].state is State.LOST


@some("seed", range(6), 3)
def test_random_faults_lose_no_element(start: Callable[..., Driver], seed: int) -> None:
    """Check that every trial ends, whatever SLURM answers."""
    dice = random.Random(seed)
    with simulated_slurm(slots=5, trial_s=30.0) as slurm:
        driver = start(slurm, 25, trials_per_job=dice.choice([1, "auto"]), array_parallelism=dice.choice([3, 50]))

        def disturb() -> bool:
            slurm.is_silent = dice.random() < 0.2
            if dice.random() < 0.02:
                slurm.lost_answers = 1
            slurm.submit_limit = dice.choice([8, math.inf])
            alive = [job for job in slurm.jobs.values() if job.ended == math.inf]
            if alive and dice.random() < 0.02:
                job = dice.choice(alive)
                job.state, job.ended = dice.choice(["CANCELLED", "NODE_FAIL", "PREEMPTED", "TIMEOUT"]), slurm.now
            return False

        driver.run(disturb)
    assert len(driver.over) == 25


def test_detaching_ends_at_the_limit_of_the_user(start: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "max_submitted", lambda settings: 3)
    with simulated_slurm(slots=0, trial_s=1.0) as slurm:
        driver = start(slurm, 8, trials_per_job=1, detach=True)
        driver.run(lambda: slurm.jobs)
        sleep = slurm.sleep
        monkeypatch.setattr(slurm, "sleep", lambda s: pytest.fail("it waits") if slurm.now > 9000 else sleep(s))
        driver.launcher.close(keep=True)
        ends = dict(driver.launcher.poll(0.0))
    assert len(slurm.jobs) == 3
    assert {number: end.state for number, end in ends.items()} == dict.fromkeys(range(3, 8), State.CANCELLED)


@some(("trial_s", "requests"), [(20.0, 1), (700.0, 12)], 2)
def test_all_jobs_share_array_parallelism(start: Callable[..., Driver], trial_s: float, requests: int) -> None:
    """Check how many jobs run: arrays, single jobs of several requests, and workers."""
    with simulated_slurm(slots=64, trial_s=trial_s) as slurm:
        driver = start(slurm, 24, array_parallelism=4)
        for number, job in enumerate(driver.left):
            driver.left[number] = replace(job, config=copy.deepcopy(job.config))
            driver.left[number].config.hydra.launcher.mem_gb = 1 + number % requests
        most = run_and_count(driver)
    assert driver.states == {"completed": 24}
    assert most == 4
