"""mlflow.keras.autolog in a user's own trainer, beside our log of the trial."""

from pathlib import Path

import pytest

from tests.command_lines import GRID, run
from tests.tracking.studies import runs, steps_of

APP = """
import hydra
import numpy as np
from omegaconf import DictConfig


@hydra.main(version_base="1.3", config_path=None)
def main(cfg: DictConfig) -> float:
    import keras
    import mlflow

    mlflow.keras.autolog(log_models=False, log_datasets=False)
    x = np.random.rand(64, 4)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(cfg.lr), "mse")
    fitted = model.fit(x, x.sum(1), cfg.batch, cfg.epochs, verbose=0)  # for autolog batch_size=None, epochs=1
    return fitted.history["loss"][-1]


main()
"""


@pytest.mark.long
def test_its_curves_arrive_in_the_trials_run(store: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    settings = ["+epochs=3", "+batch=16", "+shuffle=false", f"hydra.sweeper.tracking_uri={store}"]
    done = run([str(tmp_path / "app.py"), "-m", *GRID, "+lr=0.01", *settings, "hydra.sweeper.study_name=s"], tmp_path)
    assert done.code == 0, done.said
    log = (tmp_path / "multirun" / "s" / "0" / "attempts" / "1" / "log").read_text()
    assert "Changing param values is not allowed" not in log
    assert set(runs(store)) == {"s", "trial 0"}
    trial = runs(store)["trial 0"]
    assert [step for step, _ in steps_of(store, trial, "loss")] == [0, 1, 2]
    ours = {"config/epochs": "3", "batch": "16", "config/shuffle": "False"}
    assert trial.data.params.items() >= {**ours, "epochs": "1", "shuffle": "True"}.items()
    assert "optimizer_learning_rate" in trial.data.params  # autolog logs this param last
    assert trial.info.status == "FINISHED"
    assert trial.data.metrics["best/objective"] == trial.data.metrics["loss"]
