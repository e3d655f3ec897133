"""Searches with points that are invalid, repeated, or too large for the memory."""

import json
from pathlib import Path

import pytest

from tests.command_lines import SWEEP, rows, run, sweeps

CODE = """
def space(cfg, trial):
    trial.suggest_categorical("epochs", [0, 1])

def train(cfg, trial):
    return {"val_accuracy": cfg.lr}
"""


@pytest.mark.long
def test_invalid_points_fail_and_valid_points_complete(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    search = ["hydra/sweeper=optuna", "hydra/sweeper/sampler=random", "hydra.sweeper.sampler.seed=0"]
    mine = ["trainer=own", "trainer._target_=mine.train", "hydra.sweeper.custom_search_space=mine.space"]
    rest = ["hydra.sweeper.n_trials=8", "tracking=none", "lr=interval(0.1, 1)"]
    done = run([SWEEP, "-m", *search, *mine, *rest], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 1, done.err
    results = [json.loads(file.read_text()) for file in done.study().glob("*/attempts/1/end.json")]
    bad = [row for row in rows(done.study()) if row.state == "failed"]
    assert all(row.error.startswith("epochs=0: training needs >= 1 epoch") for row in bad)
    assert done.out.count(f"trial {bad[0].number} failed: epochs=0: training needs >= 1 epoch") == 1
    assert 0 < len(bad) < 8
    assert len(results) == 8 - len(bad)
    assert all(result["state"] == "completed" for result in results)
    assert "Traceback" not in done.out + done.err


SMALL = """
def train(cfg, trial):
    if cfg.batch_size == 16:
        raise MemoryError
    return {"val_accuracy": cfg.lr}
"""


@pytest.mark.long
def test_search_tries_each_point_once_and_learns_memory_limits(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SMALL)
    search = ["-m", "hydra/sweeper=optuna", "hydra.sweeper.n_jobs=1", "trainer=own", "trainer._target_=mine.train"]
    first = ["hydra.sweeper.study_name=s", "hydra.sweeper.n_trials=20", "lr=0.1,0.1", "batch_size=16,17"]
    start = ["hydra.sweeper.start=[{batch_size: 16}]"]
    done = run([SWEEP, *search, *first, *start, "tracking=none"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 1, done.err
    assert "lr=0.1,0.1 is 1 value: each is tried once" in done.out
    assert "the search space has 2 points: each is tried once, not hydra.sweeper.n_trials=20" in done.out
    assert "study s: 2 trials in multirun/s" in done.out
    assert [row.params["batch_size"] for row in rows(done.study())] == [16, 17]
    assert [row.state for row in rows(done.study())] == ["out_of_memory", "infeasible"]
    assert (
        "is infeasible, and was not started: by batch_size/gpus it needs at least as much memory as trial 0" in done.out
    )
    status = sweeps(tmp_path, "status", "s").out
    assert "study s: 2 of 2 trials have ended" in status
    assert "1 out_of_memory" in status
    second = ["hydra.sweeper.study_name=t", "hydra.sweeper.n_trials=2", "lr=0.1,0.2", "batch_size=16,18", "seed=7"]
    start = [
        "hydra.sweeper.start=[{batch_size: 18, lr: 0.1}, {batch_size: 18, lr: 0.2}]",
        "hydra.sweeper.learn_from=[s]",
    ]
    done = run([SWEEP, *search, *second, *start, "tracking=none"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.err
    assert "warm start: 1 trial of study s; its configuration differs: seed=0, not 7" in done.out
    assert [row.number for row in rows(tmp_path / "multirun" / "t")] == [0, 1]
