"""The search for the largest batch on a node of the cluster, and later studies on the cluster that use the result."""

import json
from pathlib import Path

import pytest

from tests.command_lines import SLURM, SWEEP, rows, run

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.long
def test_largest_batch_of_a_node_bounds_equal_requests(tmp_path: Path) -> None:
    home = {"KERAS_HOME": str(tmp_path / "home")}
    same = [*SLURM, "hydra.launcher.mem_gb=2", "tracking=none", "model=mlp", "steps=1"]
    done = run([SWEEP, "+find=largest_batch", *same, "batch_size=64", "trainer.most=64"], tmp_path, home)
    assert done.code == 0, done.said
    (record,) = (tmp_path / "home" / "sweepyard" / "largest_batch").iterdir()
    # As if 65 had not fitted, because this cluster kills the whole job if one try needs too much memory.
    record.write_text(json.dumps({**json.loads(record.read_text()), "too_large": 65}))

    done = run([SWEEP, "-m", *same, "batch_size=64,65", "hydra.sweeper.study_name=bounded"], tmp_path, home)
    assert done.code == 0, done.said
    assert [row.state for row in rows(tmp_path / "multirun" / "bounded")] == ["completed", "infeasible"]
    assert "on a SLURM node (mem_gb=2) with gpus=0: the largest batch that fits is 64, found by" in done.out
