from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.integrations import is_reported
from tests.trainers.recorder import Recorder

X = np.random.default_rng(0).normal(size=(200, 4))
Y = X.sum(axis=1)


def test_rounds_are_reported_ever_more_rarely() -> None:
    reported = [number for number in range(1, 2001) if is_reported(number)]
    assert reported == [*range(1, 100), *range(100, 1000, 10), *range(1000, 2001, 100)]


def train_xgboost(trial: Recorder, rounds: int) -> Any:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed; .ci/run does so in a later step")
    from sweeps.integrations.xgboost import ReportToTrial

    data = xgboost.DMatrix(X, Y)
    callbacks = [ReportToTrial(trial)]  # type: ignore[arg-type]
    options = {"evals": [(data, "held_out")], "verbose_eval": False, "callbacks": callbacks}
    return xgboost.train({"max_depth": 1, "nthread": 1}, data, rounds, **options).num_boosted_rounds()


def train_lightgbm(trial: Recorder, rounds: int) -> Any:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed; .ci/run does so in a later step")
    from sweeps.integrations.lightgbm import ReportToTrial

    data = lightgbm.Dataset(X, Y)
    params = {"objective": "regression", "metric": "rmse", "max_depth": 1, "num_threads": 1, "verbose": -1}
    callbacks = [ReportToTrial(trial)]  # type: ignore[arg-type]
    options = {"valid_sets": [data], "valid_names": ["held_out"], "callbacks": callbacks}
    return lightgbm.train(params, data, rounds, **options).current_iteration()


@pytest.mark.parametrize("train", [train_xgboost, train_lightgbm])
def test_boosting_rounds_are_reported_and_stopped(tmp_path: Path, train: Any) -> None:
    whole = Recorder(tmp_path)
    assert train(whole, 130) == 130
    assert whole.steps == [*range(1, 100), 100, 110, 120, 130]
    assert whole.reported[0].keys() == {"held_out-rmse"}
    assert whole.reported[-1]["held_out-rmse"] < whole.reported[0]["held_out-rmse"]
    stopped = Recorder(tmp_path, stop_after=7)
    assert train(stopped, 130) == 7
    assert stopped.steps == [1, 2, 3, 4, 5, 6, 7]
