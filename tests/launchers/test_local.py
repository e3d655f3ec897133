"""The contract of all launchers on the local launcher, and the faults of forks of a warm process."""

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pytest
from omegaconf import OmegaConf

from sweeps.base.errors import UserError
from sweeps.base.files import Lock, holder
from sweeps.hydra.settings import LocalLauncherConf
from sweeps.launchers.local.fork_server import Server, Start
from sweeps.launchers.local.launcher import LocalTrials
from sweeps.launchers.local.machine import Machine
from sweeps.trial import current_trial
from sweeps.trial.job import Objective, Request, State, World
from tests.command_lines import some
from tests.launchers.launcher_contract import (
    LauncherContract,
    MakeJob,
    are_gone,
    asks_whether_to_stop,
    check_sharing,
    completes,
    end_of,
    exits,
    never_returns,
    process_ids,
    shares_a_gpu,
    submit,
    wait_until,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROOT = Path(__file__).parents[2]
CORES = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="two trials side by side need two cores")


def shows_what_it_owns(cfg: Any) -> float:
    """Write the trial's cores, threads and GPUs, and return after the trial beside this trial wrote too."""
    own = current_trial().checkpoint_folder.parent
    cores, threads = sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]
    (own / "owns").write_text(f"{cores};{threads};{os.environ['CUDA_VISIBLE_DEVICES']}")
    deadline = time.monotonic() + 20
    while len(list(own.parent.glob("*/owns"))) < 2:
        assert time.monotonic() < deadline, "the other one never ran"
        time.sleep(0.02)
    return 0.0


def leaves_others_behind(cfg: Any) -> float:
    """Start a child of a thread, a child in its own session, and a daemon without ties."""
    threading.Thread(target=_spawn, args=["thread"]).start()
    _spawn("session")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(3, 256)
            _spawn("daemon")
            time.sleep(600)
        os._exit(0)
    while len(list(current_trial().checkpoint_folder.parent.glob("*.left"))) < 3:
        time.sleep(0.01)
    return 0.0


def leaves_others_and_waits(cfg: Any) -> float:
    leaves_others_behind(cfg)
    time.sleep(600)
    return 0.0


def _spawn(name: str) -> None:
    """Start a shell in its own session, which starts a further process."""
    folder = current_trial().checkpoint_folder.parent
    script = f"sleep 600 & echo $$ $! > {folder}/.{name} && mv {folder}/.{name} {folder}/{name}.left; sleep 600"
    subprocess.Popen(["setsid", "sh", "-c", script])


def left_behind(trial: Path) -> list[int]:
    """Return the processes that a trial with `leaves_others_behind` started."""
    wait_until(lambda: len(list(trial.glob("*.left"))) == 3)
    return [int(pid) for file in trial.glob("*.left") for pid in file.read_text().split()]


def exits_with_nothing(cfg: Any) -> None:
    sys.exit()


def fills_memory(cfg: Any) -> float:
    """Fill 300 MB in this process, and 300 MB in a child."""
    mine = np.ones(300_000_000, np.uint8)
    subprocess.Popen([sys.executable, "-c", "import time; held = b'1' * 300_000_000; time.sleep(600)"])
    time.sleep(600)
    return float(mine[0])


def shares_memory(cfg: Any) -> float:
    """Fill 300 MB that three forks share: 1.2 GB, if each process counted the memory as its own."""
    shared = np.ones(300_000_000, np.uint8)
    forks = []
    for _ in range(3):
        forks.append(os.fork())
        if not forks[-1]:
            time.sleep(600 * int(shared[0]))
    time.sleep(2)
    return 0.0


def servers() -> list[psutil.Process]:
    """Return the living fork servers that this process started."""
    return [child for child in psutil.Process().children() if is_server(child)]


def is_server(child: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # also of a process that has just become a zombie
        return child.status() != psutil.STATUS_ZOMBIE and "fork_server" in " ".join(child.cmdline())
    return False


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    yield
    assert not servers()


class TestLocalTrials(LauncherContract):
    LAUNCHER = "local"

    @pytest.fixture
    def trials(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalTrials]:
        monkeypatch.setattr("sweeps.launchers.local.machine.visible_gpus", lambda: ["4", "GPU-b"])
        launcher = LocalTrials([], tmp_path / "fork_server.log")
        launcher.open()
        yield launcher
        if servers():  # a test may have closed the launcher
            launcher.close()

    def test_no_room_is_no_error(self, trials: LocalTrials, make_job: MakeJob) -> None:
        whole = {"cpus_per_task": len(CORES)}
        first, second = make_job(0, asks_whether_to_stop, **whole), make_job(1, completes, **whole)
        assert not trials.submit(first)  # the server is not ready yet
        assert not trials.has_room()
        submit(trials, first)
        assert not trials.has_room()
        assert not trials.submit(second)
        first.attempt_folder.request_stop(State.CANCELLED)
        exits(trials, 1)
        assert trials.has_room()
        assert trials.submit(second)
        assert set(exits(trials, 1)) == {1}

    def test_memory_is_room_too(self, trials: LocalTrials, make_job: MakeJob) -> None:
        most = psutil.virtual_memory().total / 1e9 * 0.9
        submit(trials, make_job(0, never_returns, mem_gb=most))
        assert not trials.submit(make_job(1, completes, mem_gb=most))

    @two_cores
    def test_side_by_side_each_has_its_own(self, trials: LocalTrials, make_job: MakeJob) -> None:
        jobs = [make_job(number, shows_what_it_owns, gpus_per_node=1) for number in (0, 1)]
        for job in jobs:
            submit(trials, job)
        exits(trials, 2)
        owned = [(job.folder.path / "owns").read_text().split(";") for job in jobs]
        share = len(CORES) // 2
        assert [cores for cores, _, _ in owned] == [str(CORES[:share]), str(CORES[share : 2 * share])]
        assert [threads for _, threads, _ in owned] == [str(share)] * 2
        assert [gpus for _, _, gpus in owned] == ["4", "GPU-b"]

    @pytest.mark.long
    def test_four_trials_share_a_gpu(self, trials: LocalTrials, make_job: MakeJob) -> None:
        settings = {"gpus_per_node": 1, "trials_per_gpu": 2, "cpus_per_task": 0, "mem_gb": 0.5}
        jobs = [make_job(number, shares_a_gpu, **settings) for number in range(5)]
        of_gpu = {gpu: f"{gpu} 0.5 0.4500" for gpu in ("4", "GPU-b")}  # 0.45, because NVML does not know the memory
        assert sorted({*check_sharing(trials, jobs, at_once=4)}) == [of_gpu["4"], of_gpu["GPU-b"]]

    def test_a_time_limit(self, trials: LocalTrials, make_job: MakeJob) -> None:
        job = make_job(0, never_returns, timeout_min=0.1)
        submit(trials, job)
        over = end_of(trials, job)
        assert (over.state, "timeout_min" in over.error) == (State.TIMED_OUT, True)
        assert are_gone(process_ids(trials, job)[:1])

    @pytest.mark.long
    @pytest.mark.parametrize("how", ["ended", "timed out", "closed", "server killed", "server killed, closed"])
    def test_processes_of_a_trial_end_with_the_trial(self, trials: LocalTrials, make_job: MakeJob, how: str) -> None:
        bystander = subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
        task = leaves_others_behind if how == "ended" else leaves_others_and_waits
        job = make_job(0, task, timeout_min=0.1 if how == "timed out" else None)
        submit(trials, job)
        pids = left_behind(job.folder.path)
        assert how == "ended" or not are_gone(pids)
        if "server" in how:
            servers()[0].send_signal(signal.SIGKILL)
        if "closed" in how:
            trials.close()
        else:
            end = end_of(trials, job)
            expected = {"ended": State.COMPLETED, "timed out": State.TIMED_OUT}.get(how, State.LOST)
            assert (end.state, bool(end.error)) == (expected, expected is not State.COMPLETED)
        wait_until(lambda: are_gone(pids))
        assert bystander.poll() is None
        bystander.kill()
        bystander.wait()

    def test_a_killed_server_loses_attempts_alone(self, trials: LocalTrials, make_job: MakeJob) -> None:
        job = make_job(0, never_returns)
        submit(trials, job)
        pids = process_ids(trials, job)
        (server,) = servers()
        server.send_signal(signal.SIGKILL)
        over = exits(trials, 1)[0]
        assert (over.state, "killed from outside" in over.error) == (State.LOST, True)
        wait_until(lambda: are_gone(pids))
        submit(trials, make_job(0, completes))
        assert set(exits(trials, 1)) == {0}

    @pytest.mark.long
    def test_server_killed_just_before_a_trial_starts(self, trials: LocalTrials, make_job: MakeJob) -> None:
        submit(trials, make_job(0, completes))
        exits(trials, 1)
        (server,) = servers()
        server.send_signal(signal.SIGKILL)
        server.wait()
        submit(trials, make_job(1, completes))
        over = exits(trials, 1)[1]
        if over.state is State.LOST:
            submit(trials, make_job(1, completes))
            exits(trials, 1)

    @pytest.mark.long
    def test_a_server_killed_just_before_a_time_limit(self, trials: LocalTrials, make_job: MakeJob) -> None:
        job = make_job(0, never_returns, timeout_min=0.1)
        submit(trials, job)
        pids = process_ids(trials, job)
        (server,) = servers()
        server.send_signal(signal.SIGKILL)
        time.sleep(6)  # the launcher must read the server's exit code
        assert exits(trials, 1)[0].state is State.LOST
        wait_until(lambda: are_gone(pids))

    @pytest.mark.parametrize(
        "objective, state, words",
        [(Objective(needed=False), State.COMPLETED, ""), (Objective(), State.FAILED, "a trial returns its objective")],
    )
    def test_sys_exit_without_a_code_is_a_return(
        self, trials: LocalTrials, make_job: MakeJob, objective: Objective, state: State, words: str
    ) -> None:
        job = replace(make_job(0, exits_with_nothing), objective=objective)
        submit(trials, job)
        end = end_of(trials, job)
        assert (end.state, words in end.error) == (state, True)

    @pytest.mark.long
    def test_memory_limit_counts_child_processes(self, trials: LocalTrials, make_job: MakeJob) -> None:
        job, free = make_job(0, fills_memory, mem_gb=0.5), make_job(1, completes)
        submit(trials, job)
        end = end_of(trials, job)
        assert end.state is State.OUT_OF_MEMORY
        assert re.fullmatch(r"it used 0\.[5-8]\d* GB, more than hydra.launcher.mem_gb=0.5", end.error), end.error
        submit(trials, free)
        assert end_of(trials, free).state is State.COMPLETED

    @some("task, limit", [(shares_memory, 0.9), (completes, None)], 2)
    def test_memory_within_the_limit(
        self, trials: LocalTrials, make_job: MakeJob, task: Any, limit: float | None
    ) -> None:
        job = make_job(0, task, mem_gb=limit)
        submit(trials, job)
        assert end_of(trials, job).state is State.COMPLETED

    @some("in_the_way", ["log", "alive", "started"], 3)
    def test_a_folder_that_cannot_be_written_refuses_its_trial_alone(
        self, trials: LocalTrials, make_job: MakeJob, in_the_way: str
    ) -> None:
        refused, fine = make_job(0, completes), make_job(1, completes)
        (refused.attempt_folder.path / in_the_way).mkdir()
        (server,) = servers()
        submit(trials, refused)
        end = exits(trials, 1)[0]
        assert (end.state, "Is a directory" in end.error) == (State.REFUSED, True), end
        assert str(refused.attempt_folder.path / in_the_way) in end.error
        submit(trials, fine)
        assert end_of(trials, fine).state is State.COMPLETED
        assert servers() == [server]

    def test_an_earlier_drivers_trial_is_waited_for(
        self, trials: LocalTrials, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = make_job(0, completes)
        assert not trials.adopt(job)
        lock = Lock(job.attempt_folder.path / "alive")
        monkeypatch.setattr("sweeps.launchers.contract._PATIENCE_S", 0.1)
        with pytest.raises(UserError, match=rf"is still running in process {os.getpid()} on .*\nEnd that process"):
            trials.adopt(job)
        lock.release()
        assert not trials.adopt(job)


def test_no_process_for_a_trial_is_no_end_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("os.fork", refuse)
    ours, theirs = Pipe()
    Server(theirs)._fork(Start(7, b"", Path("log"), [], {}, None, World()))
    ((number, end),) = ours.recv()
    assert (number, end.state) == (7, State.LOST)
    assert end.error == "its process could not be started: [Errno 11] Resource temporarily unavailable"


DRIVER = """
import time
from pathlib import Path
from sweeps.launchers.local.launcher import LocalTrials
from tests.launchers.launcher_contract import making_jobs, submit
from tests.launchers.test_local import TestLocalTrials, leaves_others_and_waits

trials = LocalTrials([], Path("fork_server.log"))
trials.open()
with making_jobs(trials, Path.cwd(), "local", TestLocalTrials.SETTINGS) as make_job:
    submit(trials, make_job(0, leaves_others_and_waits))
time.sleep(600)
"""


def test_killed_driver_leaves_no_process(tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    trial = tmp_path / f"study-{tmp_path.name}" / "0"
    pids = left_behind(trial)
    driver.kill()
    driver.wait()
    wait_until(lambda: are_gone(pids))
    wait_until(lambda: holder(trial / "attempts" / "1" / "alive") is None)


def test_module_that_cannot_be_preloaded_is_named(tmp_path: Path) -> None:
    trials = LocalTrials(["no_such_module"], tmp_path / "fork_server.log")
    trials.open()
    with pytest.raises(UserError, match=r"preload.*no_such_module.*\n.*fork_server.log"):
        exits(trials, 1)
    trials.close()


def test_server_killed_while_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(2)")
    monkeypatch.syspath_prepend(tmp_path)
    trials = LocalTrials(["slow_to_import"], tmp_path / "fork_server.log")
    trials.open()
    wait_until(lambda: len(servers()) == 1)  # because a new process shows no command line
    for _ in range(2):  # memory may be short for a moment
        (server,) = servers()
        server.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while servers() in ([], [server]) and time.monotonic() < deadline:
            assert trials.poll(0.1) == []
    servers()[0].send_signal(signal.SIGKILL)
    with pytest.raises(UserError, match=r"slow_to_import.*was killed by signal 9"):
        exits(trials, 1)
    trials.close()


def test_programs_that_a_killed_driver_left_end_before_its_successor_starts(tmp_path: Path) -> None:
    log = tmp_path / "fork_server.log"
    logs = {"left": log, "other": tmp_path / "other.log"}
    programs = {
        name: subprocess.Popen(["sleep", "600"], env={**os.environ, "SWEEPYARD_FORKS": str(path)})
        for name, path in logs.items()
    }
    log.touch()
    trials = LocalTrials([], log)
    try:
        trials.open()
        assert programs["left"].wait(10) == -signal.SIGKILL
        assert programs["other"].poll() is None
    finally:
        trials.close()
        programs["other"].kill()
        programs["other"].wait()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus_per_node": 64}, "gpus_per_node=64: .* GPUs.\nType .*gpus_per_node=.*, or .*launcher=slurm"),
        ({"cpus_per_task": 4096}, "cpus_per_task=4096: this machine has .* CPU cores"),
        ({"mem_gb": 1e6}, "mem_gb=1000000.0: this machine has .* GB of memory"),
        ({"trials_per_gpu": 2}, r"trials_per_gpu=2: the trial requests no GPU\.\nAdd gpus=1 "),
    ],
)
def test_more_than_the_machine_has(settings: dict[str, Any], message: str) -> None:
    config = OmegaConf.create({"hydra": {"launcher": OmegaConf.structured(LocalLauncherConf(**settings))}})
    with pytest.raises(UserError, match=message):
        Machine.here().request(config)


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, Request(0, 1)),
        ({"gpus_per_node": 1, "timeout_min": 5}, Request(1, 4, None, 5)),
        ({"gpus_per_node": 2, "cpus_per_task": 3, "mem_gb": 0.5}, Request(2, 3, 0.5)),
        ({"cpus_per_task": 0}, Request(0, 0)),
        ({"gpus_per_node": 1, "trials_per_gpu": 4}, Request(0.25, 1)),
    ],
)
def test_request_of_a_trial(settings: dict[str, Any], expected: Request) -> None:
    config = OmegaConf.create({"hydra": {"launcher": OmegaConf.structured(LocalLauncherConf(**settings))}})
    assert Machine(tuple(range(8)), ("0", "1"), 16.0).request(config) == expected


def test_launcher_closes_without_being_opened(tmp_path: Path) -> None:
    LocalTrials([], tmp_path / "log").close()
