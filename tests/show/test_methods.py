"""The methods of a study in words."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import sweeps
from sweeps.record.definition import Definition
from sweeps.record.study import By, StudySnapshot
from sweeps.show.findings import Findings
from sweeps.show.methods import describe_methods
from sweeps.trial.folder import TrialFolder
from sweeps.trial.machine import facts
from tests.show import pages
from tests.show.records import with_outcome, with_trials

LOG_LR = "log interval(0.0001, 0.1)"
SAMPLERS = Path(sweeps.__file__).with_name("conf") / "hydra" / "sweeper" / "sampler"


def methods_of(study: StudySnapshot, n_trials: str = "None", **search: str) -> str:
    parameters = {"lr": LOG_LR, "batch_size": "16,32,64"}
    fixed = {"seed": "7", "epochs": "5", "target": "null", "model.hidden": "[64]", "model.act": "relu", "data": "${x}"}
    command = ["python", "app.py", "-m", "model.hidden=[64]", "lr=interval", "x=https://me:sesame@host"]
    definition = Definition(
        study.name,
        command,
        "/home/me",
        [],
        [],
        parameters,
        n_trials,
        search,
        fixed,
        len(study.rows),
        may_change=["data"],
    )
    return describe_methods(Findings(study), definition)


def grid_methods(study: StudySnapshot, parameters: dict[str, str], total: int, **changes: Any) -> str:
    search = changes.pop("search", {})
    definition = Definition("s", [], "/home/me", [], [], parameters, "None", search, {}, total=total, **changes)
    return describe_methods(Findings(replace(study, searched=False)), definition).partition(". ")[0]


def test_a_grid(tmp_path: Path) -> None:
    study = pages.grid(tmp_path / "s")
    values = {"lr": "0.001,0.003,0.01,0.03", "batch_size": "32,64,128"}
    goal = "for the highest accuracy"
    shown = "lr (0.001, 0.003, 0.01, 0.03); batch_size (32, 64, 128)"
    assert grid_methods(study, values, 12, size=12) == f"Study grid is a grid of all 12 combinations of {shown} {goal}"
    assert f"the first 5 points of {shown}" in grid_methods(study, values, 5, size=12)
    assert f"the first 5 points of {shown}" in grid_methods(study, values, 5)
    excluded = grid_methods(study, values, 11, size=11, search={"exclude": '["lr=0.01 and batch_size=32"]'})
    assert f"11 points of {shown}, except (lr=0.01 and batch_size=32) {goal}" in excluded
    listed = grid_methods(study, values, 2, size=2, search={"points": '[{"lr": 1}, {"lr": 2}]'})
    assert f"a grid of 2 listed points of {shown}" in listed
    assert "a grid of one configuration" in grid_methods(study, {}, 1)
    assert "pruners.MedianPruner could end trials early" in grid_methods(
        study, values, 12, size=12, search={"pruner": '{"_target_": "optuna.pruners.MedianPruner"}'}
    )
    words = methods_of(study)
    assert "typed in /home/me:\n\n    python app.py -m 'model.hidden=[64]' lr=interval x=https://me:***@host" in words
    assert words.endswith(f" hydra.sweeper.study_name=grid hydra.sweep.dir={study.folder}")
    assert "Trials used seed 7. Of 12 trials: 11 completed, 1 out of memory." in words
    assert "Trials ran on" not in words  # because nothing is recorded


def test_a_conditional_grid_has_not_all_combinations(tmp_path: Path) -> None:
    study = pages.grid(tmp_path / "s")
    rows = [replace(row, params={"opt": "adam", "+b": 1} if row.number < 2 else {"opt": "sgd"}) for row in study.rows]
    words = grid_methods(replace(study, rows=rows[:3]), {"opt": "adam,sgd", "+b": "1,2"}, 3, size=3)
    assert "is a grid of 3 points of opt (adam, sgd); b (1, 2), where only some points have b for" in words


def test_grid_without_results_has_no_goal(tmp_path: Path) -> None:
    study = pages.all_failed(tmp_path / "s")
    assert grid_methods(study, {"lr": "1,2"}, 2, size=2).endswith("is a grid of all 2 combinations of lr (1, 2)")
    named = grid_methods(study, {"lr": "1,2"}, 2, size=2, search={"objective": "accuracy"})
    assert named.endswith("of lr (1, 2) for the highest accuracy")


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
    assert "optuna.pruners.MedianPruner (n_startup_trials=3) could end trials early." in words
    assert "All trials shared model.hidden=[64], model.act=relu. Each training used epochs=9." in words
    assert "Trials ran on 3 hosts with 0 or 2 GPUs a trial: EPYC, A100." in words
    assert "Software: python 3.11.2." in words
    assert "1.25 kWh of the GPUs' energy, in 0:0" in words


@pytest.mark.parametrize("file", sorted(SAMPLERS.glob("*.yaml")), ids=lambda file: file.stem)
def test_each_sampler_has_its_name_and_settings(tmp_path: Path, file: Path) -> None:
    settings = yaml.safe_load(file.read_text())
    target = settings["_target_"]
    words = methods_of(pages.search(tmp_path / "s"), "20", sampler=json.dumps(settings))
    name = "sweepyard's Gaussian process" if file.stem == "default" else target
    settings_typed = [f"{key}={value}" for key, value in settings.items() if key != "_target_" and value is not None]
    assert f", by {name}{' (' if settings_typed else ''}{', '.join(settings_typed)}" in words
    assert "ten by TPE" not in words
    both = methods_of(pages.two_objectives(tmp_path / "two"), "20", sampler=json.dumps(settings))
    assert "all combinations" not in words + both
    several = methods_of(replace(pages.two_objectives(tmp_path / "t"), searched=True), sampler=json.dumps(settings))
    assert f", by {'optuna.samplers.TPESampler' if file.stem == 'default' else target}" in several
    assert "for the highest accuracy and the lowest seconds" in several


def test_samplers_of_persons_and_of_functions(tmp_path: Path) -> None:
    study = pages.search(tmp_path / "s")
    assert "by mine.Sampler (depth=3)." in methods_of(study, sampler='{"_target_": "mine.Sampler", "depth": 3}')
    assert "by an unknown sampler." in methods_of(study, sampler="{")
    default = '{"_target_": "sweeps.choose.sampler.build.DefaultSampler"}'
    words = methods_of(study, sampler=default, custom_search_space="mine.space")
    assert "batch_size (16, 32, 64) and what mine.space() suggests for the highest" in words
    assert "by optuna.samplers.TPESampler." in words


def test_points_people_and_a_race(tmp_path: Path) -> None:
    study = pages.search(tmp_path / "s")
    rows = [replace(study.rows[0], by=By.PERSON), replace(study.rows[1], memory={"start": "x"}), *study.rows[2:6]]
    rows += [replace(trial, by=By.RACE, params={**trial.params, "seed": 9}) for trial in study.rows[6:9]]
    words = methods_of(replace(study, rows=rows, repeats=3), "5", learn_from="pilot,second", objective="x")
    assert "with a budget of 5 configurations under 3 seeds each." in words
    assert "The sampler learned from pilot, second, too. The search began with 1 given point. A person added" in words
    assert f"A person added 1 trial: {rows[0].name}. Trials used seed 7. In a final race" in words
    assert "the best configurations ran under seed 9 in 3 trials." in words


def test_settings_that_differ_are_not_shared(tmp_path: Path) -> None:
    study = pages.grid(tmp_path / "s")
    for i, trial in enumerate(study.rows):
        facts.record(TrialFolder(trial.folder).attempt(1), settings={"epochs": 5 if i else 3, "steps": i, "lr": i})
        (trial.folder / ".hydra" / "config.yaml").write_text(f"data: {'new' if i else 'old'}")
    words = methods_of(study)
    varied = "epochs was 3 in 1 trial, 5 in 11 trials; data was old in 1 trial, new in 11 trials."
    assert f" Not all trials had the same settings: {varied} " in words
    assert "epochs=5" not in words


def test_groups_and_shared_values_are_named(tmp_path: Path) -> None:
    study = pages.grid(tmp_path / "s")
    choices = {"model": "mlp", "lr": "x", "dataset": "digits", "cluster": None, "hydra/launcher": "local"}
    lines = "".join(f"      {name}: {choice or 'null'}\n" for name, choice in choices.items())
    hydra = study.rows[0].folder / ".hydra" / "hydra.yaml"
    hydra.write_text(f"hydra:\n  runtime:\n    choices:\n{lines}")
    assert "All trials shared model=mlp, dataset=digits, epochs=5, model.hidden=[64]. All attempts" in methods_of(study)


@pytest.mark.parametrize("name", pages.STUDIES)
def test_every_study_has_methods(tmp_path: Path, name: str) -> None:
    assert f"study {name}".lower() in methods_of(replace(pages.STUDIES[name](tmp_path / name), name=name)).lower()
