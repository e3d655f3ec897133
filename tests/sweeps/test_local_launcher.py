"""The local launcher: the contract of all launchers, and what only forks of a warm process can do or suffer."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import psutil
import pytest
from omegaconf import OmegaConf

from sweeps.errors import UserError
from sweeps.launchers.local import LocalTrials
from sweeps.settings import LocalLauncherConf
from sweeps.trial import current_trial
from sweeps.trial_folder import State
from tests.launcher_contract import (
    LauncherContract,
    MakeJob,
    are_gone,
    completes,
    exits,
    never_returns,
    process_ids,
    submit,
    wait_until,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])

CORES = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="two trials side by side need two cores")


def shows_what_it_owns(cfg: Any) -> float:
    """Its cores, threads and GPUs; it ends when the trial beside it runs too."""
    own = current_trial().checkpoint_folder.parent
    cores, threads = sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]
    (own / "owns").write_text(f"{cores};{threads};{os.environ['CUDA_VISIBLE_DEVICES']}")
    deadline = time.monotonic() + 20
    while len(list(own.parent.glob("*/owns"))) < 2:
        assert time.monotonic() < deadline, "the other one never ran"
        time.sleep(0.02)
    return 0.0


def servers() -> list[psutil.Process]:
    """The fork servers that this process has started and that live."""
    children = psutil.Process().children()
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "fork_server" in " ".join(child.cmdline())]


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    yield
    assert not servers()


class TestLocalTrials(LauncherContract):
    LAUNCHER = "local"
    SETTINGS: ClassVar[dict[str, Any]] = {"mem_gb": 0.1}

    @pytest.fixture
    def trials(self, tmp_path: Path) -> Iterator[LocalTrials]:
        launcher = LocalTrials([], tmp_path / "fork_server.log")
        launcher.open()
        yield launcher
        if servers():  # a test may have closed it
            launcher.close()

    def test_no_room_is_no_error(self, trials: LocalTrials, make_job: MakeJob) -> None:
        whole = {"cpus_per_task": len(CORES)}
        first, second = make_job(0, never_returns, **whole), make_job(1, completes, **whole)
        assert not trials.submit(first)  # the server has not said yet that it is ready
        assert not trials.has_room()
        submit(trials, first)
        assert not trials.has_room()
        assert not trials.submit(second)
        trials.cancel(0)
        exits(trials, 1)
        assert trials.has_room()
        assert trials.submit(second)
        assert set(exits(trials, 1)) == {1}

    def test_memory_is_room_too(self, trials: LocalTrials, make_job: MakeJob) -> None:
        most = psutil.virtual_memory().total / 1e9 * 0.9
        submit(trials, make_job(0, never_returns, mem_gb=most))
        assert not trials.submit(make_job(1, completes, mem_gb=most))

    @two_cores
    def test_side_by_side_each_has_its_own(
        self, tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sweeps.launchers.local.visible_gpus", lambda: ["4", "GPU-b"])
        trials = LocalTrials([], tmp_path / "two.log")
        trials.open()
        jobs = [make_job(number, shows_what_it_owns, gpus_per_node=1, cpus_per_task=1) for number in (0, 1)]
        for job in jobs:
            submit(trials, job)
        exits(trials, 2)
        trials.close()
        owned = [(job.folder.path / "owns").read_text().split(";") for job in jobs]
        assert {cores for cores, _, _ in owned} == {f"[{CORES[0]}]", f"[{CORES[1]}]"}
        assert [threads for _, threads, _ in owned] == ["1", "1"]
        assert [gpus for _, _, gpus in owned] == ["4", "GPU-b"]

    def test_a_time_limit(self, trials: LocalTrials, make_job: MakeJob) -> None:
        job = make_job(0, never_returns, timeout_min=1 / 60)
        submit(trials, job)
        over = exits(trials, 1)[0]
        assert (over.state, "timeout_min" in over.error) == (State.TIMED_OUT, True)
        assert are_gone(process_ids(trials, job)[:1])

    def test_a_killed_server_loses_attempts_alone(self, trials: LocalTrials, make_job: MakeJob) -> None:
        job = make_job(0, never_returns)
        submit(trials, job)
        trial, child = process_ids(trials, job)
        (server,) = servers()
        server.send_signal(signal.SIGKILL)
        over = exits(trials, 1)[0]
        assert (over.state, "killed from outside" in over.error) == (State.LOST, True)
        wait_until(lambda: are_gone([trial]))
        os.kill(child, signal.SIGKILL)  # nobody was left to end it
        again = make_job(0, completes)
        submit(trials, again)
        assert set(exits(trials, 1)) == {0}

    def test_a_server_killed_just_before_it_is_needed(self, trials: LocalTrials, make_job: MakeJob) -> None:
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

    def test_a_server_killed_just_before_a_trial_is_cancelled(
        self, trials: LocalTrials, make_job: MakeJob
    ) -> None:
        job = make_job(0, never_returns)
        submit(trials, job)
        _, child = process_ids(trials, job)
        (server,) = servers()
        server.send_signal(signal.SIGKILL)
        server.wait()
        trials.cancel(0)
        assert exits(trials, 1)[0].state is State.CANCELLED
        os.kill(child, signal.SIGKILL)


def test_what_cannot_be_preloaded_is_named(tmp_path: Path) -> None:
    trials = LocalTrials(["no_such_module"], tmp_path / "fork_server.log")
    trials.open()
    with pytest.raises(UserError, match=r"preload.*no_such_module.*\n.*fork_server.log"):
        exits(trials, 1)
    trials.close()


@pytest.mark.parametrize("kills", [1, 3])
def test_a_server_killed_while_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(2)")
    monkeypatch.syspath_prepend(tmp_path)
    trials = LocalTrials(["slow_to_import"], tmp_path / "fork_server.log")
    trials.open()
    for _ in range(kills - 1):
        _kill_server()
        trials.poll(0.1)
    _kill_server()
    if kills == 1:
        wait_until(lambda: trials.poll(0.1) or trials.has_room())
    else:
        with pytest.raises(UserError, match=r"slow_to_import.*was killed 3 times"):
            exits(trials, 1)
    trials.close()


def _kill_server() -> None:
    (server,) = servers()
    server.send_signal(signal.SIGKILL)
    wait_until(lambda: server not in servers())  # its exit code is for the launcher to read


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus_per_node": 64}, "gpus=64: this machine has .* GPUs. Ask for .* at most, .*launcher=slurm"),
        ({"cpus_per_task": 4096}, "cpus_per_task=4096: this machine has .* CPU cores"),
        ({"mem_gb": 1e6}, "mem_gb=1000000.0: this machine has .* GB of memory"),
    ],
)
def test_more_than_the_machine_has(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    config = OmegaConf.create({"hydra": {"launcher": OmegaConf.structured(LocalLauncherConf(**settings))}})
    with pytest.raises(UserError, match=message):
        LocalTrials([], tmp_path / "log").check(config)
