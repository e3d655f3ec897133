"""When a study has enough, by a clock that the tests move on."""

import math
from typing import Any

import pytest

from sweeps.hydra.settings import SweeperConf
from sweeps.study.run.budget import Budget, predict_seconds
from sweeps.trial.job import Outcome, Point, State
from sweeps.trial.run.sent_job import Job
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import Acts, Clock, Drive, FakeLauncher, Script, begin, by_trial, ends, trains

LOST = Outcome(State.LOST, "its node failed")


def takes(clock: Clock, *hours: float, objective: tuple[float, ...] = (1.0,)) -> Script:
    """Return a script of trials of these durations, by number, and these results, the last for all further trials."""

    def script(job: Job) -> Acts:
        begin(job)
        yield
        clock.now += 3600 * hours[min(job.number, len(hours) - 1)]
        value = objective[min(job.number, len(objective) - 1)]
        if math.isnan(value):
            return Outcome(State.FAILED, "too large")
        return Outcome(State.COMPLETED, objective=[value], metrics={"objective": value})

    return script


def over(done: Drive) -> int:
    return sum(row.state.is_over for row in done.summary.rows)


RESULTS = (5.0, 4.0, 4.0, math.nan, 4.5, 3.0, 3.5, 2.0, 9.0, 9.0)


@pytest.mark.parametrize(
    ("settings", "ended", "reason"),
    [
        ({"target": 4}, 2, "trial 1 reached target=4 with objective=4"),
        ({"target": 3.4}, 6, "trial 5 reached target=3.4 with objective=3"),
        ({"target": 1}, 10, ""),
        ({"target": 9, "direction": "maximize"}, 9, "trial 8 reached target=9 with objective=9"),
        ({"patience": 2}, 4, "2 trials ended without an improvement on trial 1 (patience=2)"),
        ({"patience": 3}, 5, "3 trials ended without an improvement on trial 1 (patience=3)"),
        ({"patience": 4}, 10, ""),
        ({"patience": 4, "direction": "maximize"}, 5, "4 trials ended without an improvement on trial 0 (patience=4)"),
        ({"patience": 1, "target": 5}, 1, "trial 0 reached target=5 with objective=5"),
    ],
)
def test_results_that_are_good_enough_or_get_no_better(
    make_study: MakeStudy, clock: Clock, settings: dict[str, Any], ended: int, reason: str
) -> None:
    done = make_study("x=range(10)", **settings).drive(FakeLauncher(takes(clock, 0.1, objective=RESULTS), clock, 1))
    assert (over(done), done.loop.stop.reason) == (ended, reason)
    assert bool(done.loop.stop.enough and done.loop.stop.enough.reached_goal) == bool(reason)


def test_patience_that_ran_out_is_over_for_good(make_study: MakeStudy, clock: Clock) -> None:
    done = make_study("x=range(10)").drive(FakeLauncher(takes(clock, 0.1, objective=RESULTS), clock, 1))
    enough = Budget(SweeperConf(patience=2), done.summary, lambda: clock.now).judge_results()
    assert enough and enough.reason == "2 trials ended without an improvement on trial 1 (patience=2)"


def test_patience_starts_with_the_first_result(make_study: MakeStudy, clock: Clock) -> None:
    failing = FakeLauncher(takes(clock, 0.1, objective=(math.nan,)), clock, 1)
    assert over(make_study("x=range(5)", patience=1).drive(failing)) == 5


def test_reached_target_completes_running_trials_and_a_higher_target_resumes(
    make_study: MakeStudy, clock: Clock
) -> None:
    study = make_study("x=range(6)", n_jobs=2, target=100)  # trial n returns 100 + n
    done = study.drive(FakeLauncher(by_trial(trains(3), t1=trains(6)), clock, slots=2))
    assert done.ended() == ["completed"] * 2
    assert study.steps(1) == [*range(6)]
    assert "Search finished (trial 0 reached target=100 with objective=100). Running trials complete." in done.out
    resumed = study.drive(nothing := FakeLauncher(trains(3), clock, slots=2))
    assert not nothing.submitted
    assert "trial 0 reached target=100" in resumed.loop.stop.reason
    assert study.drive(FakeLauncher(trains(3), clock, slots=2), target=99).states() == ["completed"] * 6


@pytest.mark.parametrize(("race", "then"), [(0, "."), (2, "; then the final race starts.")])
def test_running_trials_complete_when_the_search_is_finished(
    make_study: MakeStudy, clock: Clock, race: int, then: str
) -> None:
    study = make_study("x=range(4)", "seed=0", target=100, final_race=race)
    done = study.drive(FakeLauncher(by_trial(trains(3), t1=trains(6)), clock, slots=2))
    reason = "trial 0 reached target=100 with objective=100"
    assert done.lines.count(f"Search finished ({reason}). Running trials complete{then}") == 1


@pytest.mark.parametrize(
    ("hours", "settings", "ended"),
    [
        ((1,), {"max_hours": 3.5}, 3),
        ((1,), {"max_hours": 3.5, "budget_overrun": True}, 4),
        ((5,), {"max_hours": 3.5}, 1),  # nothing was known
        ((1, 1, 1, 0.1), {"max_hours": 3.5}, 3),
        ((1,), {"max_gpu_hours": 7}, 3),
        ((1,), {"max_gpu_hours": 7, "budget_overrun": True}, 4),
        ((1,), {"max_hours": 99, "max_gpu_hours": 99}, 6),
    ],
)
def test_budget_predicts_by_default(
    make_study: MakeStudy, clock: Clock, hours: tuple[float, ...], settings: dict[str, Any], ended: int
) -> None:
    study = make_study("x=range(6)", **settings)
    study.gpus = 2
    done = study.drive(FakeLauncher(takes(clock, *hours), clock, 1))
    assert over(done) == ended
    assert not (done.loop.stop.enough and done.loop.stop.enough.reached_goal)
    assert ("is predicted to take" in done.loop.stop.reason) == (ended == 3), done.loop.stop.reason


def test_hours_are_counted_once_over_trials_side_by_side_and_over_all_drivers(
    make_study: MakeStudy, clock: Clock
) -> None:
    def hour(job: Job) -> Acts:
        begin(job)
        for _ in range(4 * 60):
            yield
            clock.now += 15 / 2  # as two of them act in each poll
        return Outcome(State.COMPLETED, objective=[1.0])

    study = make_study("x=range(20)", max_hours=1.8, budget_overrun=True)
    assert over(study.drive(FakeLauncher(hour, clock, slots=2))) == 4
    clock.now += 100 * 3600  # in which nobody ran it
    assert over(study.drive(FakeLauncher(hour, clock, slots=2))) == 4
    assert over(study.drive(FakeLauncher(hour, clock, slots=2), max_hours=2.5)) == 6


def test_queued_trial_costs_no_budget(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(20)", max_gpu_hours=3.5)
    study.gpus = 1
    done = study.drive(FakeLauncher(takes(clock, 1), clock, slots=1, queue=30, survives=True))
    assert 3 <= done.states().count("completed") <= 4  # one may begin in the moment in which that is seen
    assert "is predicted to take 1 hours on 1 GPUs" in done.loop.stop.reason


def test_resumed_trial_uses_the_rest_of_its_budget(make_study: MakeStudy, clock: Clock) -> None:
    def script(job: Job) -> Acts:
        begin(job)
        yield
        clock.now += 1800 if job.number == 1 else 3600
        return LOST if (job.number, job.attempt) == (1, 1) else Outcome(State.COMPLETED, objective=[1.0])

    done = make_study("x=1,2", max_hours=2.1).drive(FakeLauncher(script, clock, 1))
    assert [len(row.attempts) for row in done.summary.rows][:2] == [1, 2]
    assert done.states()[:2] == ["completed"] * 2


@pytest.mark.parametrize(
    ("point", "durations", "about"),
    [
        ({"x": 1}, [], None),
        ({"x": 1}, [({"x": 5}, 60.0)], 60),
        ({"epochs": 100}, [({"epochs": 1}, 6.0), ({"epochs": 10}, 60.0)], 600),
        ({"m": "large"}, [({"m": "small"}, 10.0)] * 3 + [({"m": "large"}, 100.0)] * 3, 100),
        ({"m": "other"}, [({"m": "small"}, 10.0)] * 3 + [({"m": "large"}, 1000.0)] * 3, 100),
        ({"x": -2}, [({"x": -1}, 10.0), ({"x": 0}, 10.0)], 10),
        ({}, [({"b": True}, 10.0), ({"b": None}, 40.0)], 20),
        ({"x": 1}, [({"x": 1}, 50.0), ({"x": 1, "y": 2}, 50.0)], 50),
        ({"lr": 0.1, "batch": 128}, [({"lr": lr, "batch": b}, 6400 / b) for lr in (0.1, 0.01) for b in (16, 64)], 50),
    ],
)
def test_the_time_of_a_trial_is_predicted_from_that_of_others(
    point: Point, durations: list[tuple[Point, float]], about: float | None
) -> None:
    assert predict_seconds(point, durations) == (None if about is None else pytest.approx(about, rel=0.3))


@pytest.mark.parametrize("name", ["target", "patience"])
def test_several_objectives_have_no_target_and_no_patience(name: str) -> None:
    with pytest.raises(ValueError, match=rf"hydra.sweeper.{name}=3: it needs one objective"):
        SweeperConf(direction=["minimize", "maximize"], **{name: 3})


def test_failures_are_no_reason_to_call_a_study_done(make_study: MakeStudy, clock: Clock) -> None:
    failing = FakeLauncher(ends(Outcome(State.FAILED, "too large")), clock, slots=1)
    done = make_study("x=range(6)", max_failure_rate=0.2).drive(failing)
    assert done.loop.stop.enough and not done.loop.stop.enough.reached_goal
