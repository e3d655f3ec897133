"""The PyTorch example of docs/how_to/own_ranks.md, unchanged."""

import re
from pathlib import Path

import pytest

from sweeps.trial.job import State
from tests.command_lines import ROOT, SWEEP, end, run, steps


def test_torch_trains_on_two_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed; .ci/run does so in a later step")
    page = (ROOT / "docs" / "how_to" / "own_ranks.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.py").write_text(next(example for example in examples if "torch" in example))
    study = ["trainer=own", "trainer._target_=mine.train", "ranks=2", "epochs=20", "lr=0.1", "tracking=none"]
    done = run([SWEEP, "-m", *study, "hydra.sweeper.study_name=s"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.said
    trial = tmp_path / "multirun" / "s" / "0"
    assert end(trial).state is State.COMPLETED
    assert end(trial).metrics["val_accuracy"] > -1.0
    assert steps(trial) == list(range(20))
