"""What a trial asks for is what its job gets; several ranks are one trial."""

import json
import os
import socket
import time

from sweeps.trial.folder import State


def submit_all(trials, jobs):
    for job in jobs:
        while not trials.submit(job):
            time.sleep(0.05)


def describe(cfg):
    names = ["CUDA_VISIBLE_DEVICES", "SLURM_PROCID", "SLURM_LOCALID", "SLURMD_NODENAME", "SLURM_NTASKS"]
    found = {name: os.environ.get(name) for name in [*names, "SITE_MODULE", "SLURM_CPUS_PER_TASK"]}
    print("FOUND " + json.dumps({**found, "host": socket.gethostname()}), flush=True)
    return 1.0


def rank_1_dies(cfg):
    if os.environ["SLURM_PROCID"] == "1":
        os._exit(7)
    time.sleep(60)
    return 1.0


def rank_1_raises(cfg):
    if os.environ["SLURM_PROCID"] == "1":
        raise RuntimeError("rank 1 has no data")
    time.sleep(60)
    return 1.0


def found_by(job):
    lines = [line for line in (job.attempt / "log").read_text().splitlines() if "FOUND " in line]
    return sorted(
        (json.loads(line.split("FOUND ")[1]) for line in lines), key=lambda one: one["SLURM_PROCID"]
    )


def test_each_job_has_the_resources_of_its_trial(trials, make_job, ends):
    jobs = [
        make_job(1, describe, gpus_per_node=1, setup=["export SITE_MODULE=cuda"]),
        make_job(2, describe, gres="gpu:2", cpus_per_task=2, additional_parameters={"nice": 5}),
        make_job(3, describe, gpus_per_node=4),
    ]
    submit_all(trials, jobs)
    assert {end.state for end in ends(3).values()} == {State.COMPLETED}
    one, two, four = (found_by(job)[0] for job in jobs)
    assert one["SITE_MODULE"] == "cuda"
    assert two["SLURM_CPUS_PER_TASK"] == "2"
    assert [len(found["CUDA_VISIBLE_DEVICES"].split(",")) for found in (one, two, four)] == [1, 2, 4]


def test_ranks_start_in_one_step_and_end_as_one(trials, make_job, ends):
    whole = make_job(1, describe, nodes=2, tasks_per_node=2, gpus_per_node=2)
    dies = make_job(2, rank_1_dies, tasks_per_node=2)
    raises = make_job(3, rank_1_raises, nodes=2)
    submit_all(trials, [whole, dies, raises])
    found = ends(3)
    assert found[1].state is State.COMPLETED, found[1]
    ranks = found_by(whole)
    assert [rank["SLURM_PROCID"] for rank in ranks] == ["0", "1", "2", "3"]
    assert [rank["SLURM_LOCALID"] for rank in ranks] == ["0", "1", "0", "1"]
    assert len({rank["SLURMD_NODENAME"] for rank in ranks}) == 2
    assert all(len(rank["CUDA_VISIBLE_DEVICES"].split(",")) == 2 for rank in ranks)
    assert (found[2].state, found[3].state) == (State.FAILED, State.FAILED)
    assert "rank1: RuntimeError: rank 1 has no data" in found[3].error
    assert dies.folder.read_result() is None and raises.folder.read_result() is None
