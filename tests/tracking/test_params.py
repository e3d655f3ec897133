"""MLflow's params of a trial's configuration in any app: the engine knows no hyperparameter by name."""

import os
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import trainers.config.schema  # noqa: F401 - registers the schema that conf/config.yaml starts from
from sweeps.trial.folder import TrialFolder
from sweeps.trial.machine import facts
from tests.tracking.studies import complete, finish, new_row, open_tracker, runs, summary_of

ROOT = Path(__file__).parents[2]


def params_of(store: str, folder: Path, config: Any, **swept: Any) -> dict[str, str]:
    tracker = open_tracker(store, folder / "s")
    row = new_row(folder / "s", 0, **swept)
    tracker.start_trial(row, [], config)
    finish(tracker, summary_of(folder / "s", complete(row)))
    assert tracker.problem is None
    (run,) = (run for run in runs(store).values() if run.data.tags["role"] == "trial")
    params: dict[str, str] = run.data.params
    return params


@pytest.mark.parametrize("written", [True, False], ids=["as Hydra wrote it", "as composed"])
def test_params_of_our_own_app(store: str, tmp_path: Path, written: bool) -> None:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", ["optimizer=sgd", "seed=7"], return_hydra_config=True)
    if written:
        (tmp_path / "s" / "0" / ".hydra").mkdir(parents=True)
        task = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        OmegaConf.save(task, tmp_path / "s" / "0" / ".hydra" / "config.yaml")
        OmegaConf.save(OmegaConf.masked_copy(config, ["hydra"]), tmp_path / "s" / "0" / ".hydra" / "hydra.yaml")
    params = params_of(store, tmp_path, None if written else config, gpus=2, **{"optimizer.momentum": 0.5})
    swept = {"gpus": "2", "optimizer.momentum": "0.5"}
    groups = {
        "optimizer": "sgd",
        "model": "mlp",
        "dataset": "digits",
        "loss": "cross_entropy",
        "trainer": "keras",
        "lr_schedule": "constant",
        "batch_schedule": "constant",
    }
    values = {"lr": "0.1", "batch_size": "32", "epochs": "5", "seed": "7", "mixed_precision": "False"}
    values |= {"nodes": "1", "ranks": "1", "lr_scaling": "none", "warmup_epochs": "0.0", "all_reduce_dtype": "float32"}
    assert params.items() >= {**groups, "tracking": "mlflow", **values, **swept}.items()
    nested = {"optimizer.learning_rate": "0.1", "model.hidden": "[128]", "dataset.n_train": "1500"}
    assert params.items() >= nested.items()
    assert not [name for name in params if name.startswith(("config/", "hydra"))]


def test_settings_as_the_training_used_them(store: str, tmp_path: Path) -> None:
    attempt = TrialFolder(tmp_path / "s" / "0").new_attempt()
    facts.record(attempt, process={"host": "node7", "gpu_model": "NVIDIA Fake"})
    facts.record(attempt, settings={"batch_size": 256, "steps": 40, "lr": 9})
    config = OmegaConf.create({"batch_size": 32, "batch_per_gpu": 128, "steps": None, "lr": 1})
    params = params_of(store, tmp_path, config, lr=0.1)
    assert params == {"lr": "0.1", "batch_size": "256", "batch_per_gpu": "128", "steps": "40"}
    (tags,) = (run.data.tags for run in runs(store).values() if run.data.tags["role"] == "trial")
    assert tags.items() >= {"host": "node7", "gpu_model": "NVIDIA Fake"}.items()


def test_settings_of_a_foreign_app(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "sesame")
    config = OmegaConf.create(
        {
            "depth": 3,
            "rate": "${solver.rate}",
            "again": "${rate}",
            "deterministic": True,
            "note": None,
            "missing": "???",
            "dangling": "${nothing}",
            "endless": "${without_end}",
            "without_end": "${endless}",
            "token": "${oc.env:TOKEN}",
            "behind": "${token}",
            "within": "x-${token}",
            "address": "http://me:sesame@host/",
            "solver": {"rate": 1e-5, "tolerance": 1e-9},
            "widths": [1, 2],
            "nested": "${solver.${kind}}",
            "kind": "rate",
            "composed": "rate-${solver.rate}-${note}",
            "stolen": "${${resolver}:TOKEN}",
            "resolver": "oc.env",
            "list": ["${depth}", 1],
            "list_of_sections": [{"a": "${oc.env:TOKEN}"}],
            "relative": {"first": 1, "second": "${.first}", "third": "${..depth}", "far": "${....depth}"},
            "loop": {"first": "${loop}", "second": "${loop}"},
            "hydra": {
                "runtime": {
                    "choices": {
                        "solver": "lbfgs",
                        "db@source": "big",
                        "hydra/launcher": "local",
                        "x": None,
                        "stolen": "${oc.env:TOKEN}",
                    }
                }
            },
        }
    )
    params = params_of(store, tmp_path, config, **{"+solver.steps": 9})
    assert params == {
        "depth": "3",
        "rate": "1e-05",
        "again": "1e-05",
        "deterministic": "True",
        "address": "http://me:***@host/",
        "solver": "lbfgs",
        "solver.rate": "1e-05",
        "solver.tolerance": "1e-09",
        "widths": "[1,2]",
        "nested": "1e-05",
        "kind": "rate",
        "composed": "rate-1e-05-None",
        "resolver": "oc.env",
        "list": "[3,1]",
        "relative.first": "1",
        "relative.second": "1",
        "relative.third": "3",
        "db_at_source": "big",
        "solver.steps": "9",
    }
    assert os.environ["TOKEN"] not in (tmp_path / "mlflow.db").read_bytes().decode(errors="replace")
