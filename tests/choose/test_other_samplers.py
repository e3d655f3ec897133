"""Samplers that other people wrote: chosen by their names, refused in two lines, and stopped by their own errors."""

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from sweeps.base.errors import UserError
from sweeps.choose.sampler.build import Samplers, pruner_of
from sweeps.choose.sampler.encoding import in_distribution
from sweeps.hydra.settings import SweeperConf
from tests.choose.asked import Asked, space
from tests.command_lines import SEARCH, refuse, rows, run, some, theirs

SAMPLER = """
from pathlib import Path
import numpy
import optuna

class Raising(optuna.samplers.RandomSampler):
    def sample_independent(self, study, trial, name, distribution):
        if len(study.trials) == 3 and not Path("corrected").exists():
            raise LookupError("no third point")
        return super().sample_independent(study, trial, name, distribution)

class Adding(optuna.samplers.RandomSampler):
    def sample_relative(self, study, trial, space):
        if len(study.trials) == 3 and not Path("corrected").exists():
            study.enqueue_trial({"x": 0.5})
        return {}

class Exiting(optuna.samplers.RandomSampler):
    def sample_relative(self, study, trial, space):
        if len(study.trials) == 3 and not Path("corrected").exists():
            raise GeneratorExit
        return {}

class Telling(optuna.samplers.RandomSampler):
    def sample_relative(self, study, trial, space):
        if len(study.trials) == 3 and not Path("corrected").exists():
            study.tell(trial.number, 1.0)
        return {}

class Storing(optuna.samplers.RandomSampler):
    def before_trial(self, study, trial):
        if len(study.trials) == 3 and not Path("corrected").exists():
            study._storage.set_trial_system_attr(trial._trial_id, "seen", {1})

class Remembering(optuna.samplers.RandomSampler):
    def before_trial(self, study, trial):
        if len(study.trials) == 3 and not Path("corrected").exists():
            study._storage.set_study_system_attr(study._study_id, "seen", numpy.zeros(2))
"""


class StoringPruner(optuna.pruners.BasePruner):
    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        study._storage.set_trial_system_attr(trial._trial_id, "seen", {1})  # type: ignore[arg-type]
        return False


def make_tpe(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(seed=seed, multivariate=False)


def make_random() -> optuna.samplers.BaseSampler:
    return optuna.samplers.RandomSampler()


def make_number() -> int:
    return 3


def make_nothing() -> None:
    raise SystemExit


def samplers(name: str, **settings: Any) -> Samplers:
    return Samplers({"_target_": name, **settings}, ["minimize"], space("x=interval(0,1)"), "s")


def test_function_makes_the_sampler_of_each_trial() -> None:
    made = samplers(f"{__name__}.make_tpe", seed=1)
    assert made.kind is optuna.samplers.TPESampler
    assert made.sampler(20, 20) is not made.sampler(21, 21)


def test_function_with_a_seed_is_built_without_a_typed_seed() -> None:
    assert samplers(f"{__name__}.make_tpe").kind is optuna.samplers.TPESampler


def test_cmaes_of_two_objectives_is_refused() -> None:
    conf = {"_target_": "optuna.samplers.CmaEsSampler"}
    with pytest.raises(UserError, match="sampler=cmaes: CMA-ES has one objective, and this study has 2"):
        Samplers(conf, ["minimize", "maximize"], space("x=interval(0,1)"), "s")


def test_function_without_a_seed_makes_one_sampler() -> None:
    made = samplers(f"{__name__}.make_random", seed=None)
    assert made.sampler(20, 20) is made.sampler(21, 21)


@pytest.mark.parametrize("value", [1000.0, np.inf, np.nan, -0.1, "hello", None])
def test_value_outside_of_the_space_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        in_distribution("x", value, FloatDistribution(0, 1))
    assert type(in_distribution("x", np.float32(0.5), FloatDistribution(0, 1))) is float
    with pytest.raises(ValueError, match=r"its value y=-1 is outside of IntDistribution"):
        in_distribution("y", -1, IntDistribution(0, 2))


@pytest.mark.parametrize(
    "name, problem",
    [
        (
            "nothing.Sampler",
            "it cannot be imported: No module named 'nothing'.\\nType the name of a class with its module",
        ),
        ("optuna.samplers.Nothing", "it cannot be imported: "),
        ("builtins.dict", "it is no sampler of Optuna"),
        (f"{__name__}.make_number", "it is no sampler of Optuna.\\nChoose a subclass"),
        ("pathlib.Path", "it is no sampler of Optuna"),
    ],
)
def test_wrong_name_is_refused(name: str, problem: str) -> None:
    with pytest.raises(UserError, match=rf"hydra.sweeper.sampler._target_={name}: {problem}"):
        samplers(name)


@pytest.mark.parametrize(
    ("kind", "setting", "value", "problem"),
    [
        (
            "TPESampler",
            "n_ei_candidates",
            0,
            "it must be 1 or more.\nType at least hydra.sweeper.sampler.n_ei_candidates=1",
        ),
        ("TPESampler", "n_ei_candidates", 2.5, "it must be a whole number.\n"),
        ("TPESampler", "n_startup_trials", -1, "it must be 0 or more.\n"),
        ("RandomSampler", "seed", -1, "it must be 0 or more.\n"),
        ("CmaEsSampler", "n_startup_trials", -1, "it must be 0 or more.\n"),
        ("CmaEsSampler", "popsize", 0, "it must be 2 or more.\n"),
        ("CmaEsSampler", "popsize", 1, "it must be 2 or more.\n"),
        ("CmaEsSampler", "popsize", -3, "it must be 2 or more.\n"),
        ("CmaEsSampler", "popsize", 2.5, "it must be a whole number.\n"),
        ("CmaEsSampler", "sigma0", 0, "it must be a number above 0.\n"),
        ("CmaEsSampler", "sigma0", -0.1, "it must be a number above 0.\n"),
        ("CmaEsSampler", "sigma0", "x", "it must be a number above 0.\n"),
    ],
)
def test_setting_out_of_its_range_is_refused(kind: str, setting: str, value: Any, problem: str) -> None:
    with pytest.raises(UserError, match=f"^hydra.sweeper.sampler.{setting}={value}: {problem}"):
        samplers(f"optuna.samplers.{kind}", **{setting: value})


@pytest.mark.parametrize(("setting", "value"), [("n_startup_trials", 0), ("seed", 0), ("seed", 1e3)])
def test_whole_number_in_its_range_is_accepted(setting: str, value: float) -> None:
    assert samplers("optuna.samplers.TPESampler", **{setting: value}).kind is optuna.samplers.TPESampler


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        ("TPESampler", "n_startup_trials", 2.0),
        ("TPESampler", "n_startup_trials", "2"),
        ("TPESampler", "n_startup_trials", None),
        ("TPESampler", "n_ei_candidates", 20.0),
        ("TPESampler", "seed", 1e3),
        ("TPESampler", "seed", "1000"),
        ("CmaEsSampler", "popsize", 8.0),
        ("CmaEsSampler", "popsize", None),
    ],
)
def test_whole_number_of_any_type_is_accepted(tmp_path: Path, kind: str, setting: str, value: Any) -> None:
    sampler = {"_target_": f"optuna.samplers.{kind}", "seed": 1, setting: value}
    settings = SweeperConf(n_trials=6, sampler=sampler, direction="minimize")
    points = Asked(tmp_path, settings, space("x=interval(0,1)", "y=interval(0,1)")).run(lambda point: float(point["x"]))  # type: ignore[arg-type]
    assert len(points) == 6


def test_function_that_exits_is_refused() -> None:
    with pytest.raises(UserError, match=r"_target_=.*make_nothing: it cannot be built: SystemExit\.\nCorrect its code"):
        samplers(f"{__name__}.make_nothing")


def test_seed_of_a_sampler_that_has_none_is_refused() -> None:
    with pytest.raises(UserError, match=r"sampler.seed: .*make_number has no such setting; it has none"):
        samplers(f"{__name__}.make_number", seed=3)


def test_misspelled_setting_is_named_with_the_nearest() -> None:
    with pytest.raises(
        UserError, match=r"; did you mean multivariate\?\nRemove it, or add ~hydra.*sampler.multivarite$"
    ):
        samplers("optuna.samplers.TPESampler", multivarite=True)


@pytest.mark.parametrize(
    ("kind", "settings", "problem"),
    [
        ("HyperbandPruner", {"max_resource": 0}, r"pruner.max_resource=0: it must be 1 or more"),
        ("HyperbandPruner", {"min_resource": 9, "max_resource": 3}, r"min_resource=9 is above .*max_resource=3"),
        ("HyperbandPruner", {"max_resource": "auto", "reduction_factor": 1}, r"reduction_factor=1: it must be 2 or"),
        ("SuccessiveHalvingPruner", {"reduction_factor": 0}, r"ValueError: .*\nType: \+\+hydra.*factor=4$"),
        ("PatientPruner", {}, r"it cannot be built: TypeError: .*\nAdd a setting with \+hydra.sweeper.pruner.NAME"),
    ],
)
def test_pruner_that_cannot_be_built_is_refused(kind: str, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        pruner_of({"_target_": f"optuna.pruners.{kind}", **settings})
    assert pruner_of({"_target_": "optuna.pruners.HyperbandPruner", "max_resource": "auto"})


@pytest.mark.parametrize("setting", ["seed", "n_startup_trials"])
def test_number_of_a_sampler_that_is_text_is_refused(setting: str) -> None:
    with pytest.raises(UserError, match=rf"sampler.{setting}=x: it must be a whole number.\nType, for example: "):
        samplers("optuna.samplers.TPESampler", **{setting: "x"})


def test_pruner_that_stores_no_json_is_refused(tmp_path: Path) -> None:
    pruner = {"_target_": f"{__name__}.StoringPruner"}
    sampler = {"_target_": "optuna.samplers.RandomSampler"}
    settings = SweeperConf(n_trials=2, sampler=sampler, pruner=pruner, direction="minimize")
    search = Asked(tmp_path, settings, space("x=interval(0,1)"))
    trial = search.ask()
    assert trial and search.pruner
    with pytest.raises(UserError, match=r"pruner._target_=.*StoringPruner: it stored the system attribute 'seen'"):
        search.pruner.report(trial.number, 0, 1.0)


def test_setting_out_of_its_range_starts_nothing(tmp_path: Path) -> None:
    line = theirs(*SEARCH, "hydra/sweeper/sampler=cmaes", "hydra.sweeper.sampler.sigma0=-1", "+x=interval(0,1)")
    refused = refuse([*line, "hydra.sweeper.n_trials=4"], tmp_path)
    assert refused.code == 2 and not (tmp_path / "multirun").exists()
    assert "sampler.sigma0=-1: it must be a number above 0.\nType, for example: hydra.sweeper" in refused.said


UNSTORABLE = "it stored the system attribute 'seen', which JSON cannot hold: Object of type"


@some(
    ("name", "fault"),
    [
        ("Raising", "it raised LookupError: no third point"),
        ("Adding", "it added trials to Optuna's study, where each trial must be one of the record"),
        ("Exiting", "it raised GeneratorExit: no message"),
        ("Telling", "it raised UpdateFinishedTrialError: Trial#2 has already finished and can not be updated."),
        ("Storing", f"{UNSTORABLE} set is not JSON serializable"),
        ("Remembering", f"{UNSTORABLE} ndarray is not JSON serializable"),
    ],
    6,
)
def test_study_of_a_faulty_sampler_is_resumed(tmp_path: Path, name: str, fault: str) -> None:
    (tmp_path / "theirs.py").write_text(SAMPLER)
    line = theirs(*SEARCH, "hydra/sweeper/sampler=random", f"hydra.sweeper.sampler._target_=theirs.{name}")
    line += ["+x=interval(0,1)", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=1"]
    extra = {"PYTHONPATH": str(tmp_path)}
    stopped = run(line, tmp_path, extra)
    assert stopped.code == 3
    assert f"theirs.{name}: {fault}\nNo trial is lost. Correct its code" in stopped.said
    assert "Traceback" not in stopped.said
    before = [row.params for row in rows(stopped.study())]
    (tmp_path / "corrected").touch()
    (tmp_path / "theirs.py").write_text(f"{SAMPLER}# corrected\n")
    assert run([*line, "hydra.sweeper.extend=true"], tmp_path, extra).code == 0
    after = rows(stopped.study())
    assert len(before) == 2 and [row.params for row in after][:2] == before
    assert [row.state for row in after] == ["completed"] * 4
