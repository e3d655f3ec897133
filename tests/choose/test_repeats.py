"""Repeats and the final race: real searches, journals and folders; trials that return what a script says."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from sweeps.base.errors import UserError
from sweeps.choose.repeats import choose_seeds
from sweeps.choose.sampler.build import DefaultSampler
from sweeps.choose.sampler.encoding import Encoding
from sweeps.choose.sampler.fed_study import FedStudy
from sweeps.hydra.settings import SweeperConf
from sweeps.record.journal import Journal
from sweeps.space.grammar import parse
from sweeps.study.folder.reading import read_study
from sweeps.study.run.choosing import Choosing
from sweeps.trial.job import Outcome, Point, State
from sweeps.trial.run.sent_job import Job
from tests.command_lines import some
from tests.record.test_journal import definition
from tests.show.records import headline
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import Acts, Clock, Drive, FakeLauncher, Script, Study, begin, ends

DEFAULT = {"_target_": "sweeps.choose.sampler.build.DefaultSampler", "seed": 1}
RANDOM = {"_target_": "optuna.samplers.RandomSampler", "seed": 1}
REPEATS: dict[str, Any] = {"sampler": DEFAULT, "n_trials": 4, "repeats": 3}
RACE: dict[str, Any] = {"sampler": RANDOM, "n_trials": 6, "final_race": 3, "final_race_seeds": 5}
SPACE = ("x=1,2,3,4,5,6,7,8", "seed=0")
Judge = Callable[[Point], float | State]


def judged(judge: Judge, epochs: int = 1) -> Script:
    """Return a script of trials that report and return the value of `judge`, or end in its state."""

    def script(job: Job) -> Acts:
        trial, point = begin(job), json.loads((job.folder.path / "trial.json").read_text())["params"]
        value = judge(point)
        for epoch in range(epochs):
            if not isinstance(value, State):
                trial.report({"objective": value}, epoch)
            yield
            if trial.should_stop():
                return Outcome(job.attempt_folder.stop_reason() or State.CANCELLED)
        if isinstance(value, State):
            return Outcome(value, "so it was told")
        return Outcome(State.COMPLETED, objective=[value], metrics={"objective": value})

    return script


def noisy(point: Point) -> float:
    """Return a loss that is smaller for a smaller x, by more than the noise of a seed."""
    x, seed = int(str(point["x"])), int(str(point.get("seed", 0)))
    return x + (seed * 7 % 5) / 50 + (seed * x * 11 % 13) / 200


def told(study: Study) -> list[Any]:
    """Return the trials as the sampler observes them."""
    record = study.record(study.settings)
    named = str((study.settings.sampler or RANDOM)["_target_"])
    fed = FedStudy(record.study, DefaultSampler if "Default" in named else RandomSampler, Encoding(study.space))
    fed.follow(record.study)
    return fed.study.get_trials(deepcopy=False)


def points(drive: Drive) -> list[tuple[Any, Any]]:
    """Return x and the seed of each completed trial."""
    done = [row for row in drive.summary.rows if row.state is State.COMPLETED]
    return sorted((row.params["x"], row.params.get("seed", 0)) for row in done)


# Repeats


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_sampler_observes_the_mean(make_study: MakeStudy, clock: Clock, slots: int) -> None:
    study = make_study(*SPACE, **REPEATS)
    done = study.drive(FakeLauncher(judged(noisy), clock, slots))
    assert done.states() == ["completed"] * 12
    assert done.summary.total == 12
    by_x = {x for x, _ in points(done)}
    assert points(done) == sorted((x, seed) for x in by_x for seed in range(3))
    assert len(by_x) == 4
    for trial in told(study):
        row = done.row(trial.number)
        if row.of is None:
            mean = sum(noisy({**row.params, "seed": seed}) for seed in range(3)) / 3
            assert (trial.state, trial.values) == (TrialState.COMPLETE, [pytest.approx(mean)])
        else:
            assert trial.state is TrialState.FAIL
            assert done.row(row.of).params["x"] == row.params["x"]
        assert row.objective == [noisy(row.params)]  # a trial stays what it is


@pytest.mark.parametrize("outcome", [State.DIVERGED, State.OUT_OF_MEMORY, State.FAILED])
def test_failed_repeat_decides_for_its_configuration(make_study: MakeStudy, clock: Clock, outcome: State) -> None:
    def judge(point: Point) -> float | State:
        return outcome if point["seed"] == 1 and int(str(point["x"])) % 2 else noisy(point)

    study = make_study(*SPACE, **{**REPEATS, "n_trials": 8})
    done = study.drive(FakeLauncher(judged(judge), clock, slots=1))
    assert not done.loop.stop.reason
    odd = [row for row in done.summary.rows if int(str(row.params["x"])) % 2]
    assert sorted({str(row.params["seed"]) for row in odd}) == ["0", "1"]  # the third was not begun
    assert done.summary.total == len(done.summary.rows) == 4 * 3 + 4 * 2
    first = [trial for trial in told(study) if done.row(trial.number).of is None]
    for trial in first:
        failed = int(str(done.row(trial.number).params["x"])) % 2
        assert trial.state is (TrialState.PRUNED if failed else TrialState.COMPLETE)
        assert trial.constraints.get("runs") == (1.0 if failed else None)


def test_lost_trials_have_no_outcome(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study(*SPACE, **REPEATS, max_attempts=1)
    done = study.drive(FakeLauncher(judged(lambda point: State.LOST if point["seed"] == 2 else noisy(point)), clock))
    assert len(done.summary.rows) == 12
    for trial in told(study):
        if (row := done.row(trial.number)).of is None:
            mean = sum(noisy({**row.params, "seed": seed}) for seed in range(2)) / 2
            assert trial.values == [pytest.approx(mean)]


def test_a_repeat_that_reached_its_time_limit_is_not_in_the_mean(make_study: MakeStudy, clock: Clock) -> None:
    cut = ends(Outcome(State.TIMED_OUT, "it reached its time limit", objective=[900.0], metrics={"objective": 900.0}))

    def script(job: Job) -> Acts:
        seed = json.loads((job.folder.path / "trial.json").read_text())["params"]["seed"]
        return cut(job) if seed == 1 else judged(noisy)(job)

    study = make_study(*SPACE, **REPEATS, max_attempts=1)
    done = study.drive(FakeLauncher(script, clock))
    for trial in told(study):
        if (row := done.row(trial.number)).of is None:
            mean = sum(noisy({**row.params, "seed": seed}) for seed in (0, 2)) / 2
            assert trial.values == [pytest.approx(mean)]


@some("repeats", [1, 10], 2)
def test_surrogate_chooses_equally_often_with_repeats(make_study: MakeStudy, clock: Clock, repeats: int) -> None:
    settings = {"sampler": {**DEFAULT, "n_startup_trials": 4}, "n_trials": 12, "repeats": repeats}
    study = make_study("x=interval(0.0,8.0)", "seed=0", **settings)
    done = study.drive(FakeLauncher(judged(lambda point: abs(float(str(point["x"])) - 3)), clock, slots=1))
    chosen = ["scales" in row.memory for row in done.summary.rows if row.of is None]
    assert chosen == [False] * 4 + [True] * 8


def test_a_pruner_looks_at_the_first_alone(make_study: MakeStudy, clock: Clock) -> None:
    pruner = {"_target_": "optuna.pruners.ThresholdPruner", "upper": 4.5}
    study = make_study(*SPACE, **{**REPEATS, "n_trials": 8}, pruner=pruner)
    done = study.drive(FakeLauncher(judged(noisy, epochs=3), clock, slots=1))
    good = [row for row in done.summary.rows if row.state is State.COMPLETED]
    pruned = [row for row in done.summary.rows if row.state is State.PRUNED]
    assert {int(str(row.params["x"])) for row in good} == {1, 2, 3, 4}
    assert [row.of for row in pruned] == [None] * 4  # and none of their repeats was begun
    assert done.summary.total == 4 * 3 + 4


def test_repeats_that_run_end_with_their_configuration(make_study: MakeStudy, clock: Clock) -> None:
    pruner = {"_target_": "optuna.pruners.ThresholdPruner", "upper": 0.0}
    study = make_study(*SPACE, **{**REPEATS, "n_trials": 1}, pruner=pruner)
    done = study.drive(FakeLauncher(judged(noisy, epochs=9), clock, slots=3))
    assert done.states() == ["pruned"] * 3


def test_the_repeats_of_a_grid_are_an_axis(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2", "seed=4", repeats=3)
    done = study.drive(FakeLauncher(judged(noisy), clock))
    assert points(done) == [(x, seed) for x in (1, 2) for seed in (4, 5, 6)]
    bounded = make_study("x=1,2,3", "seed=4", repeats=2, n_trials=2)
    bounded.folder = bounded.folder / "other"
    bounded.folder.mkdir()
    assert len(bounded.drive(FakeLauncher(judged(noisy), clock)).summary.rows) == 4


# The final race


@pytest.mark.parametrize("settings", [RACE, {"final_race": 3, "final_race_seeds": 5}, {**RACE, "repeats": 2}])
@pytest.mark.parametrize("slots", [1, 4])
def test_the_best_run_on_under_fresh_seeds(
    make_study: MakeStudy, clock: Clock, slots: int, settings: dict[str, Any]
) -> None:
    study = make_study(*SPACE, **settings)
    done = study.drive(FakeLauncher(judged(noisy), clock, slots))
    searched = [row for row in done.summary.rows if not row.race]
    raced = [row for row in done.summary.rows if row.race]
    best = sorted({int(str(row.params["x"])) for row in searched})[:3]
    first = settings.get("repeats", 1)
    assert {(row.params["x"], row.params["seed"]) for row in raced} == {
        (x, seed)
        for x in best
        for seed in range(first, first + 3)  # three seeds tell them apart
    }
    assert done.summary.total == len(done.summary.rows)
    assert done.out.count("final race: 3 configurations") == 1
    assert f"winner**: x={best[0]}: mean objective" in headline(done.summary)
    assert all(trial.state is TrialState.FAIL for trial in told(study) if done.row(trial.number).race)
    resumed = study.drive(FakeLauncher(judged(noisy), clock, slots))
    assert len(resumed.summary.rows) == len(done.summary.rows)
    assert resumed.summary.total == done.summary.total


def test_race_of_one_configuration_has_three_seeds(make_study: MakeStudy, clock: Clock) -> None:
    done = make_study("x=1,2", "seed=0", final_race=1).drive(FakeLauncher(judged(noisy), clock, 1))
    assert [row.params for row in done.summary.rows if row.race] == [{"x": 1, "seed": seed} for seed in (1, 2, 3)]
    assert "final race: 1 configuration, up to 3 fresh seeds each (first seed: 1): x=1" in done.out


def test_race_continues_by_seed_until_a_test_decides(make_study: MakeStudy, clock: Clock) -> None:
    def alike(point: Point) -> float:
        return noisy({**point, "x": 1}) + int(str(point["x"])) / 1e6 * (-1) ** int(str(point.get("seed", 0)))

    def see() -> None:
        racing = [row for row in study.last.summary.rows if row.race]
        late = {row.params["seed"] for row in racing if int(str(row.params["seed"])) > 3 and not row.state.is_over}
        assert len(late) <= 1

    study = make_study(*SPACE, **RACE)
    launcher = FakeLauncher(judged(alike), clock, slots=9)
    launcher.on_poll = see
    done = study.drive(launcher)
    assert sum(row.race for row in done.summary.rows) == 15
    assert "Not significantly different from 2 others" in headline(done.summary)


def test_configuration_that_fails_under_a_fresh_seed_leaves_the_race(make_study: MakeStudy, clock: Clock) -> None:
    def judge(point: Point) -> float | State:
        return State.DIVERGED if point["x"] == 1 and point.get("seed") == 2 else noisy(point)

    study = make_study("x=1,2,3", "seed=0", final_race=3, final_race_seeds=4)
    done = study.drive(FakeLauncher(judged(judge), clock, slots=1))
    assert sum(row.race and row.params["x"] == 1 for row in done.summary.rows) < 3
    assert "winner**: x=2" in headline(done.summary)


def test_no_race_without_completed_trials(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study(*SPACE, **RACE)
    done = study.drive(FakeLauncher(judged(lambda point: State.FAILED), clock))
    assert len(done.summary.rows) == 6


def test_a_race_waits_for_trials_that_are_open(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study(*SPACE, **RACE)
    refused = ends(Outcome(State.REFUSED, "sbatch: no"), begins=False)
    done = study.drive(FakeLauncher(lambda job: (refused if job.number == 3 else judged(noisy))(job), clock))
    assert (len(done.summary.rows), done.row(3).state) == (6, State.REFUSED)
    done = study.drive(FakeLauncher(judged(noisy), clock))
    assert sum(row.race for row in done.summary.rows) == 9


def test_a_race_may_follow_later(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study(*SPACE, **{**RACE, "final_race": 0})
    assert len(study.drive(FakeLauncher(judged(noisy), clock)).summary.rows) == 6
    done = study.drive(FakeLauncher(judged(noisy), clock), final_race=2)
    assert sum(row.race for row in done.summary.rows) == 6
    done = study.drive(FakeLauncher(judged(noisy), clock), final_race=3)  # one more candidate
    assert sum(row.race for row in done.summary.rows) == 9


# Drivers that die


ENOUGH: list[tuple[dict[str, Any], str]] = [
    ({"patience": 1}, "1 trial ended without an improvement on trial 2"),
    ({"patience": 4}, ""),  # of which those of the race are none
    ({"target": 1.2}, "reached target=1.2"),
    ({"target": 0.9}, ""),  # the best has less under a fresh seed alone
]


@pytest.mark.parametrize(("settings", "reason"), ENOUGH)
def test_race_completes_after_the_search_has_enough(
    make_study: MakeStudy, clock: Clock, settings: dict[str, Any], reason: str
) -> None:
    def judge(point: Point) -> float:
        return noisy(point) - 0.3 * (int(str(point.get("seed", 0))) > 0)

    study = make_study("x=3,2,1,4,5", "seed=0", final_race=2, final_race_seeds=4, **settings)
    done = study.drive(FakeLauncher(judged(judge), clock, 1))
    ended = [row for row in done.summary.rows if row.state is State.COMPLETED]
    assert (sum(not row.race for row in ended) < 5) == bool(reason)
    assert reason in (done.loop.stop.enough.reason if done.loop.stop.enough else "") and done.loop.stop.reason == ""
    assert [row.params["seed"] for row in ended if row.race and row.params["x"] == 1] == [1, 2, 3]
    winner = headline(done.summary)
    assert winner.startswith("**The final race's winner**: x=1") and winner.endswith(
        "The others in the race were dropped."
    )
    second = FakeLauncher(judged(judge), clock, 1)
    assert headline(study.drive(second).summary) == winner
    assert second.submitted == []


@pytest.mark.parametrize("survives", [False, True])
@pytest.mark.parametrize("killed_at", range(4, 40, 9))
def test_a_race_after_enough_is_finished_by_the_next_driver(
    make_study: MakeStudy, clock: Clock, killed_at: int, survives: bool
) -> None:
    study = make_study("x=3,2,1,4,5,6", "seed=0", final_race=3, final_race_seeds=4, patience=2)
    launcher = FakeLauncher(judged(noisy), clock, 2, queue=2, survives=survives)

    class Killed(BaseException):
        pass

    def kill() -> None:
        if launcher.polls == killed_at:
            raise Killed

    launcher.on_poll = kill
    with suppress(Killed):
        study.drive(launcher)
    launcher.on_poll = lambda: None
    done = study.drive(launcher)
    assert done.loop.stop.enough and done.loop.stop.enough.reached_goal
    assert headline(done.summary).startswith("**The final race's winner**: x=1: mean")
    assert all(row.state.is_over for row in done.summary.rows if row.race)


def test_interrupted_race_is_completed(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=3,4,5,1,2", "seed=0", final_race=2, final_race_seeds=4)

    def cut() -> str:
        return "enough" if sum(row.race for row in study.last.summary.rows) > 1 else ""

    study.drive(FakeLauncher(judged(noisy), clock, 1), cut, n_trials=3)
    done = study.drive(FakeLauncher(judged(noisy), clock, 1), n_trials=5, extend=True)
    assert {row.params["x"] for row in done.summary.rows if row.race} == {1, 2, 3, 4}
    assert headline(done.summary).startswith("**The final race's winner**: x=1: mean")


def test_a_configuration_is_good_enough_by_its_mean(make_study: MakeStudy, clock: Clock) -> None:
    def judge(point: Point) -> float:
        return {1: 5.0, 2: 4.0, 3: 6.0, 4: 7.0}[int(str(point["x"]))] - 3.0 * (point["seed"] == 1)

    study = make_study("x=1,2,3,4", "seed=0", repeats=2, target=2.6)
    done = study.drive(FakeLauncher(judged(judge), clock, 1))
    assert (done.loop.stop.reason, len(points(done))) == ("trial 2 reached target=2.6 with objective=2.5", 4)


def test_a_configuration_counts_once_for_the_patience(make_study: MakeStudy, clock: Clock) -> None:
    done = make_study("x=1,2,3,4", "seed=0", repeats=2, patience=2).drive(FakeLauncher(judged(noisy), clock, 1))
    why = "2 configurations ended without an improvement on trial 0 (patience=2)"
    assert (done.loop.stop.reason, len(points(done))) == (why, 6)


@some("settings", [REPEATS, {**RACE, "n_trials": 4}, {**RACE, "n_trials": 4, "repeats": 2}], 3)
def test_a_driver_may_be_killed_at_any_poll(tmp_path: Path, clock: Clock, settings: dict[str, Any]) -> None:

    def judge(point: Point) -> float | State:
        return State.DIVERGED if point["x"] == 4 and point.get("seed") == 1 else noisy(point)

    for patience in (2, 3, 4, 5):
        folder = tmp_path / f"{patience}"
        study = Study(folder, clock, *SPACE, **settings)
        for _ in range(60):
            launcher = FakeLauncher(judged(judge), clock, slots=2)
            polls = iter(range(patience))

            def kill(polls: Any = polls) -> None:
                if next(polls, None) is None:
                    raise KeyboardInterrupt

            launcher.on_poll = kill
            try:
                done = study.drive(launcher)
                break
            except KeyboardInterrupt:
                if patience == 3:  # what was to be appended is lost
                    journal = folder / "journal.jsonl"
                    journal.write_bytes(journal.read_bytes()[:-1])
        else:
            raise AssertionError("it does not end")
        rows = done.summary.rows
        assert len({(row.params["x"], row.params.get("seed")) for row in rows}) == len(rows)
        assert done.summary.total == len(rows)
        assert all(row.state.is_over for row in rows)
        trials = told(study)
        assert all(trial.state.is_finished() for trial in trials)
        for row in rows:
            if settings.get("repeats", 1) > 1 and row.of is None and trials[row.number].values:
                seeds = range(settings["repeats"])
                mean = sum(noisy({**row.params, "seed": seed}) for seed in seeds) / len(seeds)
                assert trials[row.number].values == [pytest.approx(mean)]


@pytest.mark.parametrize("at", range(1, 60, 7))
def test_a_driver_may_be_killed_before_any_line_of_its_journal(make_study: MakeStudy, clock: Clock, at: int) -> None:
    study = make_study("x=1,2,3,4", "seed=0", sampler=DEFAULT, n_trials=3, repeats=2, final_race=2, final_race_seeds=3)
    left, real = iter(range(at)), Journal.append

    def append(self: Journal, events: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(self, events)

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Journal, "append", append)
        study.drive(FakeLauncher(judged(noisy), clock))
    done = study.drive(FakeLauncher(judged(noisy), clock))
    assert done.states() == ["completed"] * 12
    assert len(set(points(done))) == 12
    assert done.summary.total == 12
    assert sum(bool(trial.values) for trial in told(study)) == 3
    assert all(trial.state.is_finished() for trial in told(study))


def test_folders_restore_a_damaged_journal(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study(*SPACE, **RACE)
    before = study.drive(FakeLauncher(judged(noisy), clock))
    (study.folder / "journal.jsonl").unlink()
    after = study.drive(FakeLauncher(judged(noisy), clock))
    assert points(after) == points(before)
    origins = ([(row.by, row.of, row.seed) for row in drive.summary.rows] for drive in (before, after))
    assert next(origins) == next(origins)


@pytest.mark.parametrize("part", ['"by": []', '"of": "x"', '"of": 99, "seed": {"seed": 7}', '"of": 0, "seed": 3'])
def test_folder_with_invalid_content(make_study: MakeStudy, clock: Clock, part: str) -> None:
    study = make_study(*SPACE, **REPEATS)
    study.drive(FakeLauncher(judged(noisy), clock))
    (study.folder / "journal.jsonl").unlink()
    (study.trial(4).path / "trial.json").write_text(f'{{"number": 4, "params": {{"x": 1}}, {part}}}')
    after = study.drive(FakeLauncher(judged(noisy), clock))
    assert len(after.summary.rows) >= 12
    assert all(row.state.is_over for row in after.summary.rows)


def test_a_repeat_that_is_retried_opens_its_configuration(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study(*SPACE, **{**REPEATS, "n_trials": 1})
    fails = judged(lambda point: State.FAILED if point["seed"] == 1 else noisy(point))
    done = study.drive(FakeLauncher(fails, clock, slots=1))
    assert done.states() == ["completed", "failed"]
    study.record(study.settings).reopen([1])
    done = study.drive(FakeLauncher(judged(noisy), clock, slots=1))
    assert done.states() == ["completed"] * 3
    assert told(study)[0].values == [pytest.approx(sum(noisy({**done.row(0).params, "seed": s}) for s in range(3)) / 3)]


def test_status_of_repeats(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study(*SPACE, **RACE)
    study.drive(FakeLauncher(judged(noisy), clock))
    summary = read_study(study.folder, definition(total=6, parameters={"x": "1,2"}))
    assert (summary.total, summary.over(), sum(row.race for row in summary.rows)) == (15, 15, 9)
    assert "winner" in headline(summary)
    shutil.rmtree(study.folder)


# What is refused


@pytest.mark.parametrize(
    ("lines", "config", "settings", "seeds"),
    [
        (["x=1,2"], {}, {}, ([], [])),
        (["x=1,2"], {"seed": 7}, {"repeats": 2}, ([7, 8], [*range(9, 14)])),
        (["x=1,2"], {"seed": None}, {"final_race": 2, "final_race_seeds": 2}, ([], [1, 2])),
        (["x=1,2", "seed=3"], {"seed": 7}, {"repeats": 2}, ([3, 4], [*range(5, 10)])),
        (["x=1,2"], {"run": {"seed": 1}}, {"repeats": 2, "seed_key": "run.seed"}, ([1, 2], [*range(3, 8)])),
        (["x=1,2"], {}, {"repeats": 2, "seed_key": "+seed"}, ([0, 1], [*range(2, 7)])),
        (["x=1,2", "+seed=5"], {}, {"repeats": 2}, ([5, 6], [*range(7, 12)])),
        (["x=1,2"], {}, {"repeats": 2}, "this app's configuration has no 'seed'.\nType the key of your seed"),
        (["x=1,2"], {"seed": 0}, {"final_race": 2, "seed_key": "seeed"}, "has no 'seeed'"),
        (["x=1,2", "seed=0,1"], {"seed": 0}, {"repeats": 2}, "seed is swept.\nRemove one of the two"),
        (["x=1,2", "+seed=0,1"], {}, {"final_race": 2}, "seed is swept"),
        (["x=1,2"], {"seed": "abc"}, {"repeats": 2}, "seed=abc: hydra.sweeper.repeats=2 needs a whole number"),
        (["x=1,2"], {"seed": -1}, {"repeats": 2}, "seed=-1: hydra.sweeper.repeats=2 needs a whole number"),
    ],
)
def test_seeds_of_repeats(lines: list[str], config: dict[str, Any], settings: dict[str, Any], seeds: Any) -> None:
    space = parse(OverridesParser.create().parse_overrides(lines), {}, {})
    if isinstance(seeds, str):
        with pytest.raises(UserError) as refusal:
            choose_seeds(SweeperConf(**settings), space, DictConfig(config))
        assert seeds in str(refusal.value)
        assert len(str(refusal.value).splitlines()) <= 2
    else:
        chosen = choose_seeds(SweeperConf(**settings), space, DictConfig(config))
        assert ([*chosen.repeated], [*chosen.fresh]) == seeds


def test_a_race_needs_one_objective() -> None:
    with pytest.raises(ValueError, match="final_race=3: it needs one objective"):
        SweeperConf(direction=["minimize", "maximize"], final_race=3)


@pytest.mark.parametrize("pruner", ["MedianPruner", "HyperbandPruner"])
def test_a_pruner_needs_one_objective(tmp_path: Path, pruner: str) -> None:
    space = parse(OverridesParser.create().parse_overrides(["x=1,2"]), {}, {})
    for target, refused in ((pruner, True), ("NopPruner", False)):
        settings = SweeperConf(direction=["minimize"] * 2, pruner={"_target_": f"optuna.pruners.{target}"})
        if refused:
            with pytest.raises(UserError, match="a pruner needs one objective, but there are 2"):
                Choosing("s", tmp_path, settings, space, DictConfig({}))
        else:
            Choosing("s", tmp_path, settings, space, DictConfig({}))
