"""A trial of several processes on this machine: the processes connect, end together, and stop together."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from omegaconf import OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.settings import LocalLauncherConf
from sweeps.launchers.local.launcher import LocalTrials
from sweeps.trial import Diverged, RankLost, current_trial
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State, World
from sweeps.trial.ranks import exchange_addresses, first_failure, report_failure
from tests.launchers.launcher_contract import MakeJob, end_of, exits, making_jobs, submit, wait_until

cloudpickle.register_pickle_by_value(sys.modules[__name__])

CORES = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="two ranks need two cores")


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[LocalTrials]:
    trials = LocalTrials([], tmp_path / "log")
    trials.open()
    yield trials
    trials.close()


@pytest.fixture
def make_job(trials: LocalTrials, tmp_path: Path) -> Iterator[MakeJob]:
    with making_jobs(trials, tmp_path, "local") as make:
        yield make


def rank() -> int:
    return current_trial().world.rank


def describes_itself(cfg: Any) -> float:
    trial = current_trial()
    owns = {"cores": sorted(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"], "pid": os.getpid()}
    with open(trial.folder / f"found{rank()}", "w") as file:  # noqa: PTH123
        json.dump({**vars(trial.world), **owns}, file)
    trial.report({"objective": 1.0 + rank()}, 0)
    return 1.0 + rank()


def waits(cfg: Any) -> float:
    time.sleep(600)
    return 0.0


def one_is_gone_with_7(cfg: Any) -> float:
    if rank():
        os._exit(7)
    return waits(cfg)


def one_raises(cfg: Any) -> float:
    if rank():
        raise RuntimeError("rank 1 has no data")
    return waits(cfg)


def one_is_killed(cfg: Any) -> float:
    if rank():
        os.kill(os.getpid(), signal.SIGKILL)
    return waits(cfg)


def the_chief_is_killed(cfg: Any) -> float:
    if not rank():
        os.kill(os.getpid(), signal.SIGKILL)
    return waits(cfg)


def one_gives_up(cfg: Any) -> float:
    if rank():
        current_trial().abandon("the chief has not moved for 5 s")
    return waits(cfg)


def the_chief_loses_the_other(cfg: Any) -> float:
    if rank():
        return waits(cfg)
    raise RankLost("another rank is gone: Connection reset by peer")


def all_diverge(cfg: Any) -> float:
    raise Diverged("loss is nan in epoch 3")


def the_chief_forgets_to_ask(cfg: Any) -> float:
    if rank():
        current_trial().should_stop()
    return waits(cfg)


BAD_ENDS: dict[Callable[[Any], float], tuple[State, str]] = {
    one_is_gone_with_7: (State.FAILED, "rank 1: its process ended with exit code 7 and no result"),
    one_raises: (State.FAILED, "rank 1: RuntimeError: rank 1 has no data"),
    one_is_killed: (State.LOST, "rank 1: its process was killed from outside: Killed"),
    the_chief_is_killed: (State.LOST, "rank 0: its process was killed from outside: Killed"),
    one_gives_up: (State.LOST, "rank 1: the chief has not moved for 5 s"),
    the_chief_loses_the_other: (State.LOST, "rank 0: another rank is gone: Connection reset by peer"),
    all_diverge: (State.DIVERGED, "loss is nan in epoch 3"),
    the_chief_forgets_to_ask: (State.LOST, "rank 1: the chief did not make call 1 of should_stop() within"),
}


def test_the_ranks_of_a_trial_know_of_each_other(trials: LocalTrials, make_job: MakeJob) -> None:
    job = make_job(0, describes_itself, tasks_per_node=2)
    assert (job.request.cores, job.request.nodes) == (2, 1)
    submit(trials, job)
    end = end_of(trials, job)
    assert (end.state, end.objective) == (State.COMPLETED, [1.0])
    worlds = [json.loads((job.folder.path / f"found{rank}").read_text()) for rank in (0, 1)]
    assert [(world["rank"], world["size"], world["local_rank"], world["nodes"]) for world in worlds] == [
        (0, 2, 0, 1),
        (1, 2, 1, 1),
    ]
    assert worlds[0]["addresses"] == worlds[1]["addresses"]
    hosts, ports = zip(*(address.split(":") for address in worlds[0]["addresses"]), strict=True)
    assert set(hosts) == {"127.0.0.1"}
    assert len(set(ports)) == 2
    assert sorted(worlds[0]["cores"] + worlds[1]["cores"]) == CORES[:2]
    assert {world["threads"] for world in worlds} == {"1"}
    assert [line.metrics for line in job.folder.read_metrics().values] == [{"objective": 1.0}]


@pytest.mark.long
@pytest.mark.parametrize("task", BAD_ENDS, ids=lambda task: task.__name__)
def test_a_rank_that_ends_too_early_ends_the_attempt(
    trials: LocalTrials, make_job: MakeJob, task: Callable[[Any], float]
) -> None:
    job = make_job(0, task, tasks_per_node=2, rank_timeout_s=2)
    submit(trials, job)
    end = end_of(trials, job, timeout_s=15)
    state, words = BAD_ENDS[task]
    assert end.state is state, end
    assert end.error.startswith(words)
    after = make_job(1, describes_itself, tasks_per_node=2)  # the ended trial's cores are free
    submit(trials, after)
    assert end_of(trials, after).state is State.COMPLETED


def the_other_does_not_end(cfg: Any) -> float:
    while rank():
        time.sleep(600)
    return 1.0


def the_chief_is_late(cfg: Any) -> float:
    time.sleep(0 if rank() else 3)
    return None if rank() else 1.0  # type: ignore[return-value]


@pytest.mark.long
def test_a_chief_may_take_longer_to_end_than_ranks_wait_for_a_step(trials: LocalTrials, make_job: MakeJob) -> None:
    job = make_job(0, the_chief_is_late, tasks_per_node=2, rank_timeout_s=1)
    submit(trials, job)
    assert end_of(trials, job, timeout_s=20).state is State.COMPLETED


@pytest.mark.long
def test_rank_still_running_after_the_trial_is_killed(trials: LocalTrials, make_job: MakeJob) -> None:
    job = make_job(0, the_other_does_not_end, tasks_per_node=2)
    submit(trials, job)
    assert end_of(trials, job, timeout_s=20).state is State.COMPLETED


def leaves_its_step(cfg: Any) -> float:
    trial = current_trial()
    for step in range(600):
        trial.report({"objective": float(step)}, step)
        if trial.should_stop():
            (trial.folder / f"stopped{rank()}").write_text(str(step))
            break
        time.sleep(0.02 * (1 + rank()))
    return 1.0


def test_all_ranks_receive_a_stop_at_the_same_step(trials: LocalTrials, make_job: MakeJob) -> None:
    job = make_job(0, leaves_its_step, tasks_per_node=2)
    submit(trials, job)
    wait_until(lambda: len(job.folder.read_metrics().values) > 3)
    job.attempt_folder.request_stop(State.PRUNED)
    assert end_of(trials, job).state is State.PRUNED
    steps = [(job.folder.path / f"stopped{rank}").read_text() for rank in (0, 1)]
    assert steps[0] == steps[1]


def uses_memory(cfg: Any) -> float:
    memory = bytearray(120_000_000)
    memory[::4096] = b"1" * len(memory[::4096])
    return waits(cfg)


def test_the_memory_of_all_ranks_counts(trials: LocalTrials, make_job: MakeJob) -> None:
    job = make_job(0, uses_memory, tasks_per_node=2, mem_gb=0.2)
    submit(trials, job)
    end = end_of(trials, job)
    assert end.state is State.OUT_OF_MEMORY
    assert "more than hydra.launcher.mem_gb=0.2" in end.error


def test_a_time_limit_ends_all_ranks(trials: LocalTrials, make_job: MakeJob) -> None:
    job = make_job(0, waits, tasks_per_node=2, timeout_min=0.02)
    submit(trials, job)
    assert exits(trials, 1)[0].state is State.TIMED_OUT


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"nodes": 2}, "nodes=2: this machine is one node.\nTrain in ranks=2 processes here"),
        ({"tasks_per_node": 99}, "99 ranks of 1 cores=99: this machine has"),
    ],
)
def test_request_larger_than_the_machine_is_refused(settings: dict[str, int], words: str, tmp_path: Path) -> None:
    launcher = OmegaConf.merge(OmegaConf.structured(LocalLauncherConf), settings)
    with pytest.raises(UserError) as error:
        LocalTrials([], tmp_path).request(OmegaConf.create({"hydra": {"launcher": launcher}}))
    assert words in str(error.value)


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    attempt = TrialFolder(tmp_path).new_attempt()
    with pytest.raises(RankLost, match=r"rank 1 on n2, rank 2 on n3 did not start within rank_timeout_s=0.2"):
        exchange_addresses(attempt, World(0, 3, addresses=("n1", "n2", "n3"), timeout_s=0.2))


def test_first_specific_reason_of_the_ranks_counts(tmp_path: Path) -> None:
    attempt = TrialFolder(tmp_path).new_attempt()
    assert first_failure(attempt) is None
    (attempt.path / "ranks").mkdir()
    report_failure(attempt, 0, Outcome(State.LOST, "another rank is gone"))
    assert first_failure(attempt) == Outcome(State.LOST, "rank 0: another rank is gone")
    report_failure(attempt, 2, Outcome(State.FAILED, "ValueError: no"))
    report_failure(attempt, 1, Outcome(State.FAILED, "ValueError: too late"))
    os.utime(attempt.path / "ranks" / "2.json", (1.0, 1.0))
    (attempt.path / "ranks" / "3.json").write_text('{"state": "fai')
    assert first_failure(attempt) == Outcome(State.FAILED, "rank 2: ValueError: no")
