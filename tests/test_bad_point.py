"""A search finds a configuration that is not valid: that trial fails, with the words of the check, and no other."""

import json
from pathlib import Path

from tests.command_lines import SWEEP, run

CODE = """
def space(cfg, trial):
    trial.suggest_categorical("epochs", [0, 1])

def train(cfg, trial):
    return {"val_accuracy": cfg.lr}
"""


def test_a_bad_point_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    search = ["hydra/sweeper=optuna", "hydra/sweeper/sampler=random", "hydra.sweeper.sampler.seed=0"]
    mine = ["trainer=own", "trainer._target_=mine.train", "hydra.sweeper.custom_search_space=mine.space"]
    rest = ["hydra.sweeper.n_trials=8", "tracking=none", "lr=interval(0.1, 1)"]
    done = run([SWEEP, "-m", *search, *mine, *rest], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 1, done.err
    results = [json.loads(file.read_text()) for file in done.study().glob("*/attempts/1/end.json")]
    refused = [line for line in done.out.splitlines() if "failed: epochs=0: training needs >= 1 epoch" in line]
    bad = {line.split()[1] for line in refused}
    assert 0 < len(bad) < 8
    assert len(results) == 8 - len(bad)
    assert all(result["state"] == "completed" for result in results)
    assert "Traceback" not in done.out + done.err
