"""The resources that a trial requests and its job gets, and the ranks of one trial."""

import json
import os
import re
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from lab import ScriptedSlurm, wait_for

from sweeps.launchers.slurm.inside.in_job import world_of
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.trial import current_trial
from sweeps.trial.job import State, World
from sweeps.trial.run.sent_job import Job
from tests.launchers.launcher_contract import exits

MakeJob = Callable[..., Job]
_LINES = 50  # of each rank, more than SLURM sends at a time


def submit_all(trials: SlurmTrials, jobs: list[Job]) -> None:
    for job in jobs:
        while not trials.submit(job):
            time.sleep(0.05)


def describe(cfg: Any) -> float:
    names = ["CUDA_VISIBLE_DEVICES", "SLURM_PROCID", "SLURM_LOCALID", "SLURMD_NODENAME", "SLURM_NTASKS"]
    variables = {name: os.environ.get(name) for name in [*names, "SITE_MODULE", "SLURM_CPUS_PER_TASK"]}
    trial = current_trial()
    world = {**vars(trial.world), "checkpoints": str(trial.checkpoint_folder)}
    for _ in range(_LINES):
        print("RANK", trial.world.rank, "of", trial.world.size, "x" * 150)
    print("FOUND " + json.dumps({**variables, **world, "host": socket.gethostname()}), flush=True)
    return 1.0


def rank_1_dies(cfg: Any) -> float:
    if os.environ["SLURM_PROCID"] == "1":
        os._exit(7)
    time.sleep(60)
    return 1.0


def rank_1_raises(cfg: Any) -> float:
    if os.environ["SLURM_PROCID"] == "1":
        raise RuntimeError("rank 1 has no data")
    time.sleep(60)
    return 1.0


def listens(cfg: Any) -> float:
    """Write, in each rank, the step at which the rank observed the stop."""
    trial = current_trial()
    for step in range(1200):
        trial.report({"objective": float(step)}, step)
        if trial.should_stop():
            trial.checkpoint_folder.mkdir(exist_ok=True)
            (trial.checkpoint_folder / f"rank{trial.world.rank}").write_text(str(step))
            break
        time.sleep(0.05)
    return 1.0


def found_by(job: Job) -> list[dict[str, Any]]:
    log = job.attempt_folder.log.read_text()
    lines = [line for line in log.splitlines() if "FOUND " in line]
    assert len(re.findall(r"^(?:\d+: )?RANK \d+ of \d+ x{150}$", log, re.MULTILINE)) == _LINES * len(lines), log
    return sorted((json.loads(line.split("FOUND ")[1]) for line in lines), key=lambda rank: rank["SLURM_PROCID"])


def test_each_job_has_the_resources_of_its_trial(trials: SlurmTrials, make_job: MakeJob) -> None:
    jobs = [
        make_job(1, describe, gpus_per_node=1, setup=["export SITE_MODULE=cuda"]),
        make_job(2, describe, gres="gpu:2", cpus_per_task=2, additional_parameters={"nice": 5}),
        make_job(3, describe, gpus_per_node=4),
    ]
    submit_all(trials, jobs)
    assert {end.state for end in exits(trials, 3).values()} == {State.COMPLETED}
    first, second, third = (found_by(job)[0] for job in jobs)
    assert first["SITE_MODULE"] == "cuda"
    assert second["SLURM_CPUS_PER_TASK"] == "2"
    assert [len(rank["CUDA_VISIBLE_DEVICES"].split(",")) for rank in (first, second, third)] == [1, 2, 4]


@pytest.mark.long
def test_ranks_start_and_end_in_one_step(trials: SlurmTrials, make_job: MakeJob) -> None:
    whole = make_job(1, describe, nodes=2, tasks_per_node=2, gpus_per_node=2)
    dies = make_job(2, rank_1_dies, tasks_per_node=2)
    raises = make_job(3, rank_1_raises, nodes=2)
    submit_all(trials, [whole, dies, raises])
    ends = exits(trials, 3)
    assert ends[1].state is State.COMPLETED, ends[1]
    ranks = found_by(whole)
    assert [rank["SLURM_PROCID"] for rank in ranks] == ["0", "1", "2", "3"]
    assert [(rank["rank"], rank["size"], rank["local_rank"], rank["nodes"]) for rank in ranks] == [
        *[(0, 4, 0, 2), (1, 4, 1, 2)],
        *[(2, 4, 0, 2), (3, 4, 1, 2)],
    ]
    nodes = [rank["SLURMD_NODENAME"] for rank in ranks]
    assert len(set(nodes)) == 2
    assert all(rank["addresses"] == ranks[0]["addresses"] for rank in ranks)
    hosts, ports = zip(*(address.split(":") for address in ranks[0]["addresses"]), strict=True)
    assert list(hosts) == [rank["host"] for rank in ranks]
    assert len(set(ports)) == 4
    assert {rank["checkpoints"] for rank in ranks} == {str(whole.folder.checkpoint)}
    assert all(len(rank["CUDA_VISIBLE_DEVICES"].split(",")) == 2 for rank in ranks)
    assert (ends[2].state, ends[3].state) == (State.FAILED, State.FAILED)
    assert "rank 1: RuntimeError: rank 1 has no data" in ends[3].error
    assert dies.attempt_folder.end() is None and raises.attempt_folder.end() is None
    assert not list(whole.folder.path.rglob("ranks/*.json"))


@pytest.mark.long
@pytest.mark.parametrize("signal", [pytest.param(False, id="pruned"), pytest.param(True, id="warned by SLURM")])
def test_all_ranks_receive_a_stop_at_the_same_step(trials: SlurmTrials, make_job: MakeJob, signal: bool) -> None:
    # SLURM looks every 30 s, for the 30 s to come, and warns once: not before 20 s, when all ranks listen.
    warned = {"timeout_min": 2, "signal_delay_s": 70} if signal else {}
    job = make_job(1, listens, nodes=2, tasks_per_node=2, **warned)
    submit_all(trials, [job])
    wait_for(lambda: job.folder.read_metrics().values)
    if not signal:
        job.attempt_folder.request_stop(State.PRUNED)
    end = job.attempt_folder.close(exits(trials, 1)[1])
    assert end.state is (State.TIMED_OUT if signal else State.PRUNED), end
    heard = {file.name: file.read_text() for file in job.folder.checkpoint.iterdir()}
    assert heard.keys() == {"rank0", "rank1", "rank2", "rank3"}
    assert len(set(heard.values())) == 1


def step(rank: int, size: int, nodes: str, node: str) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": "1",
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_NODELIST": nodes,
        "SLURMD_NODENAME": node,
    }


def test_the_world_is_read_from_the_step(scripted_slurm: ScriptedSlurm) -> None:
    scripted_slurm.say("scontrol", 'test "$*" = "show hostnames n[2,10,9]" && printf "n2\\nn10\\nn9\\n"')
    world = world_of(step(4, 6, "n[2,10,9]", "n9"))
    assert world == World(4, 6, 1, 3, ("n2", "n2", "n10", "n10", "n9", "n9"))
    assert not world.is_chief
    assert world_of(step(0, 1, "n2", "n2")) == World(addresses=(socket.gethostname(),))
    with pytest.raises(RuntimeError, match="one node after the other"):  # --distribution=cyclic
        world_of(step(1, 6, "n[2,10,9]", "n10"))
