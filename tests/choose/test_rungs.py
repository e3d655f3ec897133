"""Trials that pause at rungs, and the best that are promoted: with a fake launcher, and killed anywhere."""

import random
from pathlib import Path
from typing import Any

import pytest

from sweeps.base.errors import UserError
from sweeps.choose.rungs import Halving, best_to_train_on, pause_results, rungs_of
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.figures.rungs import rungs
from sweeps.show.findings import Findings
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import SILENT, Clock, FakeLauncher, Study, begin, by_trial, ends, trains

RUNGS = {"first": 1, "factor": 3}  # a trial counts its epochs from 0, and so pauses after two, and after four
GRID = "x=1,2,3,4,5,6,7,8,9"


class Killed(BaseException):
    """The end of a driver that is killed."""


def epochs(study: Study, number: int) -> list[int]:
    return [line.step for line in TrialFolder(study.folder / str(number)).read_metrics().values]


def test_the_best_of_each_rung_go_on_and_one_completes(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study(GRID, rungs=RUNGS)
    diary: list[tuple[int, int]] = []
    done = study.drive(FakeLauncher(trains(7, diary=diary), clock, slots=1))
    assert done.states() == ["completed", *["paused"] * 8]
    lengths = [len(epochs(study, number)) for number in range(9)]
    assert lengths[0] == 7 and lengths.count(2) == 6 and lengths.count(4) == 2
    assert len(diary) == len(set(diary)) == sum(lengths)  # nothing is trained twice
    assert done.summary.over() == done.summary.total == 9
    figure = rungs(FigureData(Findings(done.summary), {}))
    assert figure
    assert [mark["name"] for mark in figure["data"][1:]] == ["paused (8)", "promoted (4)", "completed (1)"]
    resumed = study.drive(FakeLauncher(trains(7), clock))
    assert resumed.states() == done.states() and resumed.loop.result().all_had_ended


def test_few_trials_still_have_a_winner_that_completed(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2", rungs={"first": 1, "factor": 4})
    assert study.drive(FakeLauncher(trains(9), clock)).states() == ["completed", "completed"]


def test_a_trial_that_fails_after_its_promotion_is_replaced(make_study: MakeStudy, clock: Clock) -> None:
    def fails_later(job: Any) -> Any:
        return (trains(7) if job.attempt == 1 else ends(Outcome(State.FAILED, "it fails")))(job)

    study = make_study("x=1,2,3", rungs=RUNGS)
    done = study.drive(FakeLauncher(by_trial(trains(7), t0=fails_later), clock, slots=1))
    assert done.states() == ["failed", "completed", "completed"]


@pytest.mark.parametrize("seed", range(12))
def test_a_driver_killed_anywhere_promotes_no_trial_twice(make_study: MakeStudy, clock: Clock, seed: int) -> None:
    draw = random.Random(seed)
    diary: list[tuple[int, int]] = []
    most = draw.choice([0, 2])
    keep = {"keep_checkpoints": f"best:{most}" if most else "none"}
    study = make_study(GRID, rungs=RUNGS, direction=draw.choice(["minimize", "maximize"]), **keep)
    script = trains(7, diary=diary)
    launcher = FakeLauncher(script, clock, slots=draw.choice([1, 3]), survives=draw.random() < 0.5)

    def may_kill() -> None:
        if draw.random() < 0.1:
            raise Killed

    launcher.on_poll = may_kill
    for _ in range(200):
        try:
            done = study.drive(launcher)
            break
        except Killed:
            launcher.act()
    assert "completed" in done.states() and set(done.states()) <= {"completed", "paused"}
    for row in done.summary.rows:
        reported = epochs(study, row.number)
        pauses = len(pause_results(row))
        assert reported == [*range(len(reported))]
        assert len(reported) == (7 if row.result else 1 + 3 ** (pauses - 1))
    assert len(diary) == len(set(diary))
    left = [row.number for row in done.summary.rows if study.trial(row.number).checkpoints()]
    assert left == sorted(row.number for row in best_to_train_on(done.summary)[:most])


def test_a_checkpoint_behind_a_link_stays(make_study: MakeStudy, clock: Clock, tmp_path: Path) -> None:
    study = make_study("x=1,2,3", keep_checkpoints="none")
    for number in range(2):
        study.trial(number).path.mkdir()
        study.trial(number).checkpoint.symlink_to(tmp_path, target_is_directory=True)
    done = study.drive(FakeLauncher(trains(), clock))
    assert done.states() == ["completed"] * 3 and done.out.count("cannot be deleted: ") == 1
    assert (tmp_path / "epoch").exists() and not study.trial(2).checkpoint.exists()


def test_the_seeds_of_a_configuration_follow_its_completion(
    make_study: MakeStudy, clock: Clock, tmp_path: Path
) -> None:
    settings = {
        "sampler": {"_target_": "optuna.samplers.RandomSampler", "seed": 0},
        "n_trials": 6,
        "repeats": 2,
        "seed_key": "+seed",
    }
    study = make_study("x=interval(0,1)", rungs=RUNGS, final_race=1, final_race_seeds=2, **settings)
    done = study.drive(FakeLauncher(trains(7), clock, slots=1))
    repeated = {row.of for row in done.summary.rows if row.of is not None}
    assert repeated == {row.number for row in done.summary.rows if row.of is None and row.result}
    assert all(row.result for row in done.summary.rows if row.of is not None)


@pytest.mark.parametrize(
    ("conf", "answer"),
    [
        ({"first": 0, "factor": 3}, "hydra.sweeper.rungs.first=0: it must be a whole number of at least 1."),
        ({"first": 1, "factor": 1}, "hydra.sweeper.rungs.factor=1: it must be a whole number of at least 2."),
        ({"first": 1.5, "factor": 3}, "hydra.sweeper.rungs.first=1.5: it must be a whole number"),
        ({"first": 2, "factor": None}, "type: hydra/sweeper/rungs=halving hydra.sweeper.rungs.first=2"),
        ({"first": 1, "factor": 3, "last": 9}, "hydra.sweeper.rungs.last=9: there is no such setting."),
    ],
)
def test_wrong_rungs_are_refused(conf: dict[str, Any], answer: str) -> None:
    with pytest.raises(UserError) as error:
        rungs_of(conf)
    assert answer in str(error.value)
    assert rungs_of(None) is None and rungs_of(RUNGS) == Halving(1, 3)


def test_useless_rungs_are_explained_once(make_study: MakeStudy, clock: Clock) -> None:
    def of_no_use(job: Any) -> Any:
        trial = begin(job)
        for step in range(1, 4):
            trial.report({"objective": 1.0}, step)
            yield
        job.attempt_folder.close(Outcome(State.COMPLETED, objective=[1.0]))
        return SILENT

    done = make_study("x=1,2", rungs={"first": 9, "factor": 3}).drive(FakeLauncher(of_no_use, clock))
    assert done.out.count("hydra.sweeper.rungs.first=9: trial 0 completed after 3 steps, before its first pause") == 1
    assert "trial 1 completed after" not in done.out
