"""The methods of a study in words."""

from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.record.definition import Definition
from sweeps.record.study import By, StudySnapshot
from sweeps.results.findings import Findings
from sweeps.results.methods import describe_methods
from sweeps.trial import facts
from sweeps.trial.folder import TrialFolder
from tests.results import pages
from tests.results.records import with_outcome, with_trials

LOG_LR = "log interval(0.0001, 0.1)"


def methods_of(study: StudySnapshot, n_trials: str = "None", **search: str) -> str:
    parameters = {"lr": LOG_LR, "batch_size": "16,32,64"}
    fixed = {"seed": "7"}
    definition = Definition(
        study.name, ["python", "app.py"], "/home/me", [], [], parameters, n_trials, search, fixed, total=len(study.rows)
    )
    return describe_methods(Findings(study), definition)


def test_a_grid(tmp_path: Path) -> None:
    study = replace(pages.search(tmp_path / "s"), searched=False, command="python app.py -m x=https://me:sesame@host")
    words = methods_of(study)
    assert "tried all combinations of lr (log interval(0.0001, 0.1)); batch_size (16, 32, 64)" in words
    assert "Trials used seed 7. Of 25 trials: 5 queued, 2 running, " in words
    assert "Trials ran on" not in words  # because nothing is recorded
    assert words.endswith("typed in /home/me:\n\n    python app.py -m x=https://me:***@host")


def test_a_search_on_gpus(tmp_path: Path) -> None:
    study = pages.search(tmp_path / "s")
    for i, trial in enumerate(study.rows):
        attempt = TrialFolder(trial.folder).attempt(1)
        facts.record(attempt, process={"host": f"node{i % 3}", "cpu_model": "EPYC", "versions": "python 3.11.2"})
        facts.record(attempt, process={"gpu_model": "A100"}, settings={"epochs": 9, "steps": i, "batch_size": 4})
    study = with_trials(study, with_outcome(study.rows[0], gpus=2, energy_kwh=1.25))
    pruner = '{"_target_": "optuna.pruners.MedianPruner", "n_startup_trials": 3}'
    words = methods_of(study, "20", sampler='{"_target_": "optuna.samplers.TPESampler", "seed": null}', pruner=pruner)
    assert "searched lr (log interval(0.0001, 0.1)); batch_size" in words
    assert "by optuna.samplers.TPESampler, with a budget of 20 trials; " in words
    assert "optuna.pruners.MedianPruner (n_startup_trials=3) ended unpromising trials early." in words
    assert "Each training used epochs=9. Trials ran on 3 hosts with 0 or 2 GPUs a trial: EPYC, A100." in words
    assert "Software: python 3.11.2." in words
    assert "1.25 kWh of the GPUs' energy, within 0:0" in words


def test_points_people_and_a_race(tmp_path: Path) -> None:
    study = pages.search(tmp_path / "s")
    rows = [replace(study.rows[0], by=By.PERSON), *study.rows[1:6]]
    rows += [replace(trial, by=By.RACE, params={**trial.params, "seed": 9}) for trial in study.rows[6:9]]
    words = methods_of(replace(study, rows=rows), "5", learn_from="pilot", objective="x")
    assert "with a budget of 5 trials; " not in words
    assert "The sampler learned from pilot, too. A person added 1 trial. Trials used seed 7. In a final race" in words
    assert "the best configurations ran under seed 9 in 3 trials." in words
    listed = methods_of(replace(study, searched=False), points='[{"lr": 1}, {"lr": 2}]')
    assert "tried 2 listed points of lr (log interval" in listed


@pytest.mark.parametrize("name", pages.STUDIES)
def test_every_study_has_methods(tmp_path: Path, name: str) -> None:
    assert f"study {name}".lower() in methods_of(replace(pages.STUDIES[name](tmp_path / name), name=name)).lower()
