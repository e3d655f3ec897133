"""A training on two nodes of the cluster that equals a training on one node, with killed, stopped and lost ranks."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from lab import cluster_sh, wait_for

from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from tests.command_lines import SLURM, SWEEP, finish, run, steps, sweeps
from tests.command_lines import start as start_line
from tests.warm import Running

pytestmark = pytest.mark.usefixtures("cluster")
EPOCHS = 250
STUDY = [*SLURM, "nodes=1,2", "model=cnn", "model.filters=[4]", "model.hidden=[8]", f"epochs={EPOCHS}"]
STUDY += ["dataset.subset=576", "trainer.checkpoint_interval_s=0", "tracking=none", "hydra.sweeper.study_name=s"]
STUDY += ["hydra.launcher.mem_gb=1.9", "hydra.sweeper.max_attempts=6"]


def start(folder: Path) -> Running:
    return start_line([SWEEP, "-m", *STUDY], folder)


def rank_of(trial: TrialFolder, rank: int) -> tuple[int, str]:
    """Return the process of a rank of the newest attempt, and the process's node."""
    newest = trial.newest()
    assert newest is not None
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(newest.path / "slurm") in words and "srun" not in words[0]:
            around = process.environ()
            if around.get("SLURM_PROCID") == str(rank):
                return process.pid, around["SLURMD_NODENAME"]
    raise AssertionError(f"rank {rank} does not run")


@pytest.mark.long
@pytest.mark.timeout(1200)  # five attempts on two nodes, each of which imports TensorFlow anew
def test_ranks_on_two_nodes_give_the_weights_of_one(tmp_path: Path) -> None:
    driver = start(tmp_path)
    trial = TrialFolder(tmp_path / "multirun" / "s" / "1")

    def hurt(attempt: int, rank: int, what: int) -> None:
        """Send a signal after three further epochs of the attempt, and wait for its end, well before rank_timeout_s."""
        wait_for(lambda: trial.attempt(attempt).began(), 180)
        before = len(steps(trial.path))
        wait_for(lambda: len(steps(trial.path)) >= before + 3, 180)
        os.kill(rank_of(trial, rank)[0], what)
        wait_for(lambda: trial.attempt(attempt).is_over)  # within a minute

    hurt(1, 1, signal.SIGKILL)
    hurt(2, 0, signal.SIGKILL)
    hurt(3, 1, signal.SIGSTOP)
    wait_for(lambda: trial.attempt(4).began(), 180)
    driver.kill()
    driver.communicate()
    second_driver = start(tmp_path)
    before = len(steps(trial.path))
    wait_for(lambda: len(steps(trial.path)) >= before + 3, 180)
    process, node = rank_of(trial, 1)
    os.kill(process, signal.SIGSTOP)  # so that the training cannot end while the node is being killed
    cluster_sh("kill", node)
    try:
        wait_for(lambda: trial.attempt(4).is_over)
        done = finish(second_driver, tmp_path, 300)
    finally:
        cluster_sh("revive", node)
    assert done.code == 0, done.said
    ends = trial.ends()
    assert [end.state for end in ends] == [State.LOST] * 4 + [State.COMPLETED], ends
    for end in ends[:4]:  # srun or the other rank may be the first to observe the end
        assert any(words in end.error for words in ("another rank is gone", "killed from outside", "node failed"))
    assert "rank 0: another rank is gone" in ends[2].error
    assert steps(trial.path) == list(range(1, EPOCHS + 1))
    on_one_node, on_two_nodes = (
        json.loads((tmp_path / "multirun" / "s" / number / "attempts" / attempt / "end.json").read_text())["metrics"]
        for number, attempt in (("0", "1"), ("1", "5"))
    )
    for name in ("loss", "val_loss", "accuracy", "test_loss"):
        assert on_two_nodes[name] == pytest.approx(on_one_node[name], rel=1e-3)


OWN = """
import os

def train(cfg, trial):
    gpus = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    nodes = os.environ["SLURM_JOB_NUM_NODES"]
    (trial.folder / f"seen{trial.world.rank}").write_text(f"{nodes} {gpus} {trial.world.size}")
    for epoch in range(1, 4):
        trial.report({"val_accuracy": 0.9, "epoch_time": 8.0 / (cfg.nodes * cfg.gpus)}, step=epoch)
    return {"val_accuracy": 0.9}
"""


@pytest.mark.long
def test_each_trial_of_a_grid_gets_its_own_nodes_and_gpus_and_all_are_compared(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    grid = ["nodes=1,2", "gpus=1,2", "trainer=own", "trainer._target_=own.train", "tracking=none"]
    more = [*SLURM, "hydra.launcher.mem_gb=0.5", "hydra.sweeper.study_name=s"]
    done = run([SWEEP, "-m", *grid, *more], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.said
    study = tmp_path / "multirun" / "s"
    points = [(nodes, gpus) for nodes in (1, 2) for gpus in (1, 2)]
    for number, (nodes, gpus) in enumerate(points):
        files = {file.name: file.read_text() for file in (study / str(number)).glob("seen*")}
        assert files == {f"seen{rank}": f"{nodes} {gpus} {nodes}" for rank in range(nodes)}
    assert "4 GPUs on 2 nodes: 4.00 times as fast as 1" in sweeps(tmp_path, "report", "s", "--scaling").out
    assert "Scaling" in (study / "report.html").read_text()
