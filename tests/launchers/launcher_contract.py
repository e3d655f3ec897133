"""A suite of tests for every TrialLauncher, like Hydra's own suite for its launchers.

A subclass returns an open launcher from the fixture `trials`, and names the launcher's config group in `LAUNCHER`.
"""

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import psutil
import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext
from omegaconf import open_dict

from sweeps.launchers.contract import TrialLauncher
from sweeps.trial import current_trial
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Objective, Outcome, State
from sweeps.trial.run.app import pack_app
from sweeps.trial.run.sent_job import Job

MakeJob = Callable[..., Job]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a trial's process need not find the tests


def completes(cfg: Any) -> float:
    print("hello from the trial", os.environ.get("FROM_DRIVER"), flush=True)
    trial = current_trial()
    for step in range(3):
        trial.report({"objective": 1.0 / (step + 1)}, step)
    return 0.25


def raises(cfg: Any) -> float:
    raise RuntimeError("too large")


def exits_with_3(cfg: Any) -> float:
    sys.exit(3)


def is_gone_with_4(cfg: Any) -> float:
    os._exit(4)


def is_killed(cfg: Any) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def segfaults(cfg: Any) -> float:
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0.0


def never_returns(cfg: Any) -> float:
    """Write the ids of this process and of a started process into the trial's folder."""
    child = subprocess.Popen(["sleep", "600"])
    folder = current_trial().checkpoint_folder.parent
    (folder / ".pids").write_text(f"{os.getpid()} {child.pid}")
    (folder / ".pids").rename(folder / "pids")
    time.sleep(600)
    return 0.0


def asks_whether_to_stop(cfg: Any) -> float:
    trial = current_trial()
    for step in range(1000):
        trial.report({"objective": 1.0}, step)
        if trial.should_stop():
            return 1.0
        time.sleep(0.05)
    return 2.0


def shares_a_gpu(cfg: Any) -> float:
    """Write the trial's GPU, and its part of the memory; return once the file `go` exists."""
    folder = current_trial().checkpoint_folder.parent
    names = ("CUDA_VISIBLE_DEVICES", "SWEEPYARD_GPU_SHARE", "XLA_PYTHON_CLIENT_MEM_FRACTION")
    (folder / "shares").write_text(" ".join(os.environ.get(name, "-") for name in names))
    deadline = time.monotonic() + 60
    while not (folder.parent / "go").exists():
        assert time.monotonic() < deadline, "the test never let it go"
        time.sleep(0.02)
    return 0.0


def leaves_work_to_its_end(cfg: Any) -> float:
    """Leave an open file, an exit handler and a child process to the end of this process."""
    folder = current_trial().folder
    atexit.register((folder / "handler").write_text, "called")
    main_module: Any = sys.modules["__main__"]
    main_module.left_open = (folder / "open").open("w")
    main_module.left_open.write("1,2")
    multiprocessing.get_context("fork").Process(target=time.sleep, args=[600], daemon=True).start()
    return 0.0


def check_sharing(trials: TrialLauncher, jobs: Sequence[Job], at_once: int) -> list[str]:
    """Check that `at_once` jobs of `shares_a_gpu` run at a time, and never more; return what they wrote, sorted."""
    study, waiting, outcomes = jobs[0].folder.path.parent, list(jobs), dict[int, Outcome]()

    def running() -> int:
        while waiting and trials.submit(waiting[0]):
            waiting.pop(0)
        assert not trials.poll(0.1)
        return len(list(study.glob("*/shares")))

    wait_until(lambda: running() >= at_once, 60)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert running() == at_once
    (study / "go").touch()
    while len(outcomes) < len(jobs):
        while waiting and trials.submit(waiting[0]):
            waiting.pop(0)
        outcomes |= dict(trials.poll(0.2))
    ends = [job.attempt_folder.close(outcomes[job.number]) for job in jobs]
    assert {end.state for end in ends} == {State.COMPLETED}, ends
    return sorted(file.read_text() for file in study.glob("*/shares"))


def submit(trials: TrialLauncher, job: Job, timeout_s: float = 60) -> None:
    """Submit the job as the loop does: repeat until the launcher has room."""
    deadline = time.monotonic() + timeout_s
    while not trials.submit(job):
        assert time.monotonic() < deadline, "there was never room"
        trials.poll(0.1)


def exits(trials: TrialLauncher, count: int, timeout_s: float = 60) -> dict[int, Outcome]:
    """Return the outcomes of the next `count` jobs that end, by number."""
    outcomes: dict[int, Outcome] = {}
    deadline = time.monotonic() + timeout_s
    while len(outcomes) < count:
        assert time.monotonic() < deadline, f"only {sorted(outcomes)} ended"
        outcomes |= dict(trials.poll(0.2))
    return outcomes


def end_of(trials: TrialLauncher, job: Job, timeout_s: float = 60) -> Outcome:
    """Return the outcome of the only running job after its end. As in the loop, the first outcome is final."""
    return job.attempt_folder.close(exits(trials, 1, timeout_s)[job.number])


def wait_until(holds: Callable[[], bool], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def process_ids(trials: TrialLauncher, job: Job) -> list[int]:
    """Wait until a trial that never returns runs, and return the ids of the trial and of the trial's child."""
    file = job.folder.path / "pids"
    wait_until(file.exists)
    return [int(word) for word in file.read_text().split()]


def are_gone(pids: list[int]) -> bool:
    """Return whether no process runs. A zombie does not run, because a zombie only waits for its parent."""
    running = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                running.add(pid)
    return not running


@contextmanager
def making_jobs(
    trials: TrialLauncher, folder: Path, launcher: str, defaults: Mapping[str, Any] | None = None
) -> Iterator[MakeJob]:
    """Yield a function (number, task function, **launcher settings) that prepares an attempt as the driver does."""
    (folder / "config.yaml").write_text("x: 1\n")
    study = folder / f"study-{folder.name}"
    with initialize_config_dir(str(folder), job_name="app", version_base="1.3"):

        def make(number: int, task: Callable[[Any], Any], **settings: Any) -> Job:
            where = [f"hydra.sweep.dir={study}", f"hydra.sweep.subdir={number}", "hydra.mode=MULTIRUN"]
            config = compose("config", [*where, f"hydra/launcher={launcher}"], return_hydra_config=True)
            with open_dict(config):
                config.hydra.job.id, config.hydra.job.num = f"app_{number}", number
                config.hydra.launcher.update({**(defaults or {}), **settings})
            context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())
            of_trial, request = TrialFolder(study / str(number)), trials.request(config)
            attempt, app = of_trial.new_attempt().number, pack_app(task, context)
            return Job(study.name, number, attempt, config, request, of_trial, app, Objective())

        yield make


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


class LauncherContract:
    """Inherit, and give the fixture `trials`."""

    LAUNCHER: str
    SETTINGS: ClassVar[Mapping[str, Any]] = {}
    BAD_ENDS: ClassVar[Mapping[Callable[[Any], Any], tuple[State, str]]] = {
        raises: (State.FAILED, "RuntimeError: too large"),
        exits_with_3: (State.FAILED, "sys.exit(3)"),
        is_gone_with_4: (State.FAILED, "exit code 4"),
        is_killed: (State.LOST, "killed"),
        segfaults: (State.FAILED, "Segmentation fault"),
    }

    @pytest.fixture
    def make_job(self, trials: TrialLauncher, tmp_path: Path) -> Iterator[MakeJob]:
        with making_jobs(trials, tmp_path, self.LAUNCHER, self.SETTINGS) as make:
            yield make

    def test_a_trial_completes(self, trials: TrialLauncher, make_job: MakeJob) -> None:
        job = replace(make_job(0, completes), environment={"FROM_DRIVER": "and its driver"})
        submit(trials, job)
        end = end_of(trials, job)
        assert (end.state, end.error, end.objective) == (State.COMPLETED, "", [0.25])
        assert end.started_at is not None
        assert [line.step for line in job.folder.read_metrics().values] == [0, 1, 2]
        assert "hello from the trial and its driver" in job.attempt_folder.log.read_text()

    def test_bad_end_has_a_state_and_ends_no_other_trial(self, trials: TrialLauncher, make_job: MakeJob) -> None:
        tasks = [*self.BAD_ENDS, completes]
        jobs = [make_job(number, task) for number, task in enumerate(tasks)]
        outcomes: dict[int, Outcome] = {}
        for job in jobs:
            while not trials.submit(job):
                outcomes |= dict(trials.poll(0.1))
        outcomes |= exits(trials, len(jobs) - len(outcomes))
        ends = {task: job.attempt_folder.close(outcomes[job.number]) for job, task in zip(jobs, tasks, strict=True)}
        completed = ends.pop(completes)
        assert (completed.state, completed.error) == (State.COMPLETED, "")
        for task, (state, words) in self.BAD_ENDS.items():
            assert ends[task].state is state
            assert words.lower() in ends[task].error.lower()

    def test_process_of_a_trial_ends_as_a_program(self, trials: TrialLauncher, make_job: MakeJob) -> None:
        job = make_job(0, leaves_work_to_its_end)
        submit(trials, job)
        assert end_of(trials, job).state is State.COMPLETED
        files = {"handler": "called", "open": "1,2"}
        wait_until(lambda: all(_read(job.folder.path / name) == text for name, text in files.items()), 20)

    def test_trial_receives_a_stop(self, trials: TrialLauncher, make_job: MakeJob) -> None:
        job = make_job(0, asks_whether_to_stop)
        submit(trials, job)
        wait_until(lambda: bool(job.folder.read_metrics().values))
        job.attempt_folder.request_stop(State.PRUNED)
        end = end_of(trials, job)
        assert (end.state, end.objective) == (State.PRUNED, [1.0])

    def test_no_process_is_left_after_close(self, trials: TrialLauncher, make_job: MakeJob) -> None:
        job = make_job(0, never_returns)
        submit(trials, job)
        pids = process_ids(trials, job)
        trials.close()
        wait_until(lambda: are_gone(pids))
