"""The largest batch that fits, found on a node of the cluster, and what later studies on it make of that."""

from pathlib import Path

import pytest

from tests.command_lines import SWEEP, end, rows, run

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.long
def test_what_a_node_found_bounds_those_that_ask_for_the_same(tmp_path: Path) -> None:
    home = {"KERAS_HOME": str(tmp_path / "home")}
    asked = ["hydra/launcher=slurm", "hydra.launcher.mem_gb=4", "hydra.launcher.poll_s=0.5", "tracking=none"]
    wide = [*asked, "model=mlp", "model.hidden=[400000]", "epochs=1", "steps=1"]  # of 1,250 examples not all fit
    done = run([SWEEP, "+find=largest_batch", *wide, "batch_size=512", "trainer.precision=0.5"], tmp_path, home)
    assert done.code == 0, done.said
    largest = int(end(done.study() / "0").metrics["largest_batch"])
    assert 256 <= largest < 1250

    done = run([SWEEP, "-m", *wide, "batch_size=64,1250", "hydra.sweeper.study_name=bounded"], tmp_path, home)
    assert done.code == 0, done.said
    assert [row.state for row in rows(tmp_path / "multirun" / "bounded")] == ["completed", "pruned"]
    assert f"on a SLURM node (mem_gb=4) with gpus=0: the largest that fits is {largest}, found by" in done.out
