"""A storage of the user's: what Optuna shows there is what was typed and how it ended; nothing depends on it."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from sweeps.base.errors import UserError
from sweeps.choose.sampler.mirror import Mirror, delete_study
from sweeps.hydra.settings import SweeperConf
from sweeps.space.space import SearchSpace
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, State
from sweeps.trial.metrics import MetricsLine
from tests.choose.asked import Asked, space

LINES = ("lr=0.1,0.2", "opt=adam,sgd")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/studies.db"


def asked(folder: Path, *lines: str, conditional: dict[str, list[str]] | None = None, **settings: Any) -> Asked:
    return Asked(folder / "s", SweeperConf(**settings), space(*lines, conditional=conditional))


def mirror_of(search: Asked, url: str, clock: Callable[[], float] = lambda: 0.0) -> Mirror:
    mirror = Mirror(url, "s", search.study, search.space, clock)
    mirror.open(is_new=not search.trials)
    return mirror


def shown(url: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="s", storage=url).trials


def test_typed_values_are_shown_unchanged(tmp_path: Path, url: str) -> None:
    search = asked(tmp_path, *LINES)
    mirror = mirror_of(search, url)
    ends: list[float | State] = [0.5, State.FAILED, 0.25, State.INFEASIBLE]
    points = []
    for end in ends:
        trial = search.ask()
        assert trial
        TrialFolder(trial.folder).append_metrics(MetricsLine(0, 1.0, {"objective": 9.0}))
        mirror.tick()  # writes no running trial
        assert len(shown(url)) == len(points)
        search.end(trial, end)
        points.append(trial.params)
        mirror.tick()
    trials = shown(url)
    assert [trial.params for trial in trials] == points
    assert [trial.state.name for trial in trials] == ["COMPLETE", "FAIL", "COMPLETE", "FAIL"]
    assert [trial.user_attrs["state"] for trial in trials] == ["completed", "failed", "completed", "infeasible"]
    assert [trial.constraints["runs"] for trial in trials] == [-1.0, 1.0, -1.0, 1.0]
    assert trials[0].intermediate_values == {0: 9.0}
    study = optuna.load_study(study_name="s", storage=url)
    assert (study.best_params, study.best_value) == ({"lr": 0.2, "opt": "adam"}, 0.25)


@pytest.mark.parametrize(
    ("conditional", "keys"),
    [
        ({"opt=adam": ["beta=0.9,0.99"], "opt=sgd": ["beta=0.5,0.6"]}, {"lr", "opt", "beta"}),
        ({"opt=adam": ["beta=interval(0.9,0.99)"], "opt=sgd": ["beta=0.5,0.6"]}, {"lr", "opt", "beta"}),
    ],
)
def test_key_under_several_conditions_has_one_name(
    tmp_path: Path, url: str, conditional: dict[str, list[str]], keys: set[str]
) -> None:
    sampler = {"_target_": "optuna.samplers.RandomSampler", "seed": 1}
    search = asked(tmp_path, *LINES, conditional=conditional, sampler=sampler, n_trials=6)
    mirror = mirror_of(search, url)
    points = search.run(lambda point: 1.0)
    mirror.tick()
    assert [trial.params for trial in shown(url)] == points
    assert {key for trial in shown(url) for key in trial.params} == keys


def test_added_trials_and_repeats_are_counted_separately(tmp_path: Path, url: str) -> None:
    sampler = {"_target_": "optuna.samplers.RandomSampler", "seed": 1}
    search = asked(tmp_path, "x=1,2", sampler=sampler, n_trials=1, repeats=2, seed_key="+seed")
    mirror = mirror_of(search, url)
    points = search.run(lambda point: 1.0)
    mirror.tick()
    assert [trial.params for trial in shown(url)] == [{"x": point["x"]} for point in points]
    assert [trial.user_attrs["seed"] for trial in shown(url)] == [{"+seed": 0}, {"+seed": 1}]


@pytest.mark.long
def test_returned_storage_receives_missing_trials(tmp_path: Path, url: str) -> None:
    now = [0.0]
    search = asked(tmp_path, *LINES)
    mirror = mirror_of(search, url, lambda: now[0])
    search.run(lambda point: 1.0, most=1)
    other = sqlite3.connect(tmp_path / "studies.db", timeout=0)
    other.execute("DROP TABLE trial_params")
    other.commit()
    mirror.tick()
    assert "hydra.sweeper.storage does not answer: " in str(mirror.problem)
    search.run(lambda point: 2.0, most=2)
    mirror.tick()  # not asked again so soon
    other.close()
    (tmp_path / "studies.db").unlink()
    now[0] = 60.0
    second = Mirror(url, "s", search.study, search.space, lambda: now[0])
    second.open(is_new=False)
    second.tick()
    assert second.problem is None
    assert [trial.values for trial in shown(url)] == [[1.0], [2.0], [2.0]]


def test_started_study_continues_without_its_storage(tmp_path: Path, url: str) -> None:
    search = asked(tmp_path, *LINES)
    search.run(lambda point: 1.0, most=1)
    away = Mirror("sqlite:////no/such/folder/s.db", "s", search.study, search.space)
    away.open(is_new=False)
    assert away.problem and "the study continues without it" in away.problem


@pytest.mark.parametrize("url", ["nonsense", "sqlite:////no/such/folder/studies.db", "mysql+nodriver://host/db"])
def test_new_study_is_refused_without_its_storage(tmp_path: Path, url: str) -> None:
    search = asked(tmp_path, *LINES)
    with pytest.raises(UserError, match=r"hydra.sweeper.storage cannot be used: "):
        mirror_of(search, url)


def test_other_study_of_same_name_is_unchanged(tmp_path: Path, url: str) -> None:
    optuna.create_study(study_name="s", storage=url).add_trial(optuna.trial.create_trial(value=1.0))
    with pytest.raises(UserError, match=r"has another study named s, with 1 trials\.\nChoose another name: ") as error:
        mirror_of(asked(tmp_path, *LINES), url)
    assert len(str(error.value).splitlines()) == 2
    assert len(shown(url)) == 1


def test_a_trial_that_runs_again_and_more_choices_are_written_anew(tmp_path: Path, url: str) -> None:
    search = asked(tmp_path, *LINES)
    mirror_of(search, url).tick()
    search.run(lambda point: State.FAILED if point["lr"] == 0.1 else 1.0)
    mirror_of(search, url).tick()
    search.record.reopen([0])
    mirror_of(search, url).tick()
    assert [trial.state.name for trial in shown(url)] == ["FAIL", "FAIL", "COMPLETE", "COMPLETE"]
    more = asked(tmp_path, "lr=0.1,0.2", "opt=adam,sgd,lion")
    points: list[Point] = more.run(lambda point: 2.0)
    mirror_of(more, url).tick()
    assert len(points) == 3 and len(shown(url)) == 6
    assert shown(url)[0].values == [2.0]


def test_a_study_is_forgotten(tmp_path: Path, url: str) -> None:
    search = asked(tmp_path, *LINES)
    mirror_of(search, url).tick()
    delete_study(url, "s")
    delete_study(url, "s")  # it is not there
    assert optuna.get_all_study_names(url) == []
    with pytest.raises(UserError, match="study s cannot be deleted from its storage"):
        delete_study("sqlite:////no/such/folder/s.db", "s")


def test_an_end_without_a_result_has_none(tmp_path: Path, url: str) -> None:
    search: Asked = asked(tmp_path, *LINES)
    whole: SearchSpace = search.space
    assert whole.parameters
    mirror, trial = mirror_of(search, url), search.ask()
    assert trial
    search.end(trial, Outcome(State.PRUNED, objective=[7.0], started_at=1.0))
    mirror.tick()
    assert (shown(url)[0].state, shown(url)[0].values) == (TrialState.PRUNED, None)


def test_a_range_that_optuna_rounds_is_shown_once(tmp_path: Path, url: str) -> None:
    search = asked(tmp_path, "x=range(0,0.5,0.07)")
    mirror = mirror_of(search, url)
    points = search.run(lambda point: 1.0)
    mirror.tick()
    assert mirror.problem is None
    assert [trial.params for trial in shown(url)] == points


def test_words_under_one_condition_and_numbers_under_another(tmp_path: Path, url: str) -> None:
    under = {"opt=adam": ["x=p,q"], "opt=sgd": ["x=interval(0.1,1)"]}
    sampler = {"_target_": "optuna.samplers.RandomSampler", "seed": 1}
    search = asked(tmp_path, "opt=adam,sgd", conditional=under, sampler=sampler, n_trials=4)
    mirror = mirror_of(search, url)
    points = search.run(lambda point: 1.0)
    mirror.tick()
    assert [trial.user_attrs["params"] for trial in shown(url)] == points


@pytest.mark.parametrize("failing", ["create_study", "create_new_trial"])
def test_lost_connection_neither_loses_nor_duplicates_trials(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    search = asked(tmp_path, *LINES)
    mirror = mirror_of(search, url)
    search.run(lambda point: 1.0, most=2)
    mirror.tick()
    if failing == "create_study":
        search.record.reopen([0])
    search.run(lambda point: 2.0, most=1)

    owner = optuna if failing == "create_study" else type(optuna.storages.get_storage(url))
    works = getattr(owner, failing)

    def fails(*arguments: Any, **named: Any) -> None:
        works(*arguments, **named)
        raise OSError("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(owner, failing, fails)
        mirror.tick()
        assert mirror.problem
    mirror.tick(at_once=True)
    assert mirror.problem is None
    assert [trial.params for trial in shown(url)] == [trial.params for trial in search.trials]
