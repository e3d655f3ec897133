"""Trials that a person ends or adds: what is refused, and what the search makes of them; real journals and files."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeps.analysis import configurations
from sweeps.base.errors import UserError
from sweeps.choose import manual
from sweeps.choose.repeats import Seeds
from sweeps.record.definition import Definition
from sweeps.record.study import Added, StudySnapshot, TrialRecord
from sweeps.space.grammar import space_of
from sweeps.trial.job import Outcome, Point, State
from sweeps.trial.run.sent_job import Job
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import Acts, Clock, Drive, FakeLauncher, Script, Study, begin, by_trial, ends, trains

TPE = {"sampler": {"_target_": "optuna.samplers.TPESampler", "seed": 0, "n_startup_trials": 3}}


def definition(*parameters: str, custom: str = "None") -> Definition:
    swept, search = dict.fromkeys(parameters, ""), {"custom_search_space": custom}
    return Definition("s", ["python", "a.py"], "", ["objective"], ["minimize"], swept, "", search, {}, 2)


def summary(folder: Path, *rows: TrialRecord) -> StudySnapshot:
    return StudySnapshot("s", folder, ("objective",), ("minimize",), [*rows])


KEYS = ("lr", "batch_size", "+m.act", "beta under o=a", "beta under o=b")


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("lr=0.003 batch_size=48", {"lr": 0.003, "batch_size": 48}),
        ("  batch_size=48   beta=1e-3", {"batch_size": 48, "beta": 0.001}),
        ("m.act=relu lr=1", {"+m.act": "relu", "lr": 1}),
        ("+m.act=[1,2] lr='a b'", {"+m.act": "[1,2]", "lr": "a b"}),
        ("lr=true batch_size=null", {"lr": True, "batch_size": None}),
    ],
)
def test_point_is_printed_as_typed(tmp_path: Path, text: str, point: Point) -> None:
    space = space_of(dict.fromkeys(point, "1,2"))
    (file,) = manual.add_points(definition(*KEYS), space, summary(tmp_path), [text])
    assert json.loads(file.read_text())["params"] == point
    assert manual.list_requests(tmp_path) == [file]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are no values.\nType a value for each of: lr, batch_size, m.act, beta"),
        ("epochs=3", "study s does not sweep epochs.\nType a value for each of: lr"),
        ("lr=0.1 ld=0.1", "does not sweep ld"),
        ("lr=0.1", "'lr=0.1' cannot be added without batch_size.\nType a value for each of: lr, batch_size$"),
        ("lr=2 batch_size=1", "'lr=2 batch_size=1' was added already"),
        ("lr=3 batch_size=1", "'lr=3 batch_size=1' was added already"),
        ("{lr: 0.1; beta 2},", "cannot be read.\nType: sweepyard resume .* --add 'lr=0.1 beta=2'$"),
        ("lr='", "cannot be read.\nType key=value for each of: lr, batch_size, m.act, beta$"),
        ("lr=0.1,0.2", "lr=0.1,0.2: type a single value, as in lr=1"),
        ("lr=interval(0.1,1)", "type a single value"),
        ("~lr", "type a single value"),
        ("lr=0.1 batch_size=2 +lr=0.2", "lr has two values. Remove one"),
        ("lr=0.5 batch_size=2", "'lr=0.5 batch_size=2' is trial 7 already, which is failed"),
    ],
)
def test_invalid_points_are_refused(tmp_path: Path, text: str, message: str) -> None:
    tried = TrialRecord(7, {"lr": 0.5, "batch_size": 2.0}, State.FAILED, tmp_path / "7")
    space = space_of({"lr": "1,2", "batch_size": "1,2"})
    with pytest.raises(UserError, match=message) as error:
        added = [Added("1.json", {"lr": 3, "batch_size": 1}, outside=True)]
        study = replace(summary(tmp_path, tried), added=added)
        manual.add_points(definition(*KEYS), space, study, ["lr=2 batch_size=1", text])
    assert len(str(error.value).splitlines()) <= 2
    assert not manual.list_requests(tmp_path)


def test_a_space_in_code_takes_no_points(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the search space of study s is code"):
        manual.add_points(definition("lr", custom="a.b"), space_of({}), summary(tmp_path), ["lr=1"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"params": {"x": 1}, "by": "bob"}', "cannot be added without o.\nType a value for each of: x, o"),
        ('{"params": {"x": 1, "o": "a", "z": 3}, "by": "bob"}', "z does not exist with these values.\nRemove z"),
        ("{", "cannot be read"),
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"x": 1}', "needs the keys params and by"),
    ],
)
def test_a_file_that_holds_no_point(tmp_path: Path, content: str, message: str) -> None:
    (file := tmp_path / "1.json").write_text(content)
    with pytest.raises(UserError, match=message):
        manual.read_request(file, Study(tmp_path / "s", Clock(), "x=1,2", "o=a,b").space, Seeds())


def test_driver_answers_each_request(tmp_path: Path) -> None:
    assert manual.wait_for_driver(tmp_path / "1.json", 1)
    (tmp_path / "2.json").touch()
    assert not manual.wait_for_driver(tmp_path / "2.json", 0)
    manual.refuse_file(tmp_path / "2.json", UserError("no"))
    with pytest.raises(UserError, match="no"):
        manual.wait_for_driver(tmp_path / "2.json", 1)
    assert not list(tmp_path.iterdir())


Adds = Callable[[], Iterable[tuple[Point, str]]]


def adding(*points: Point, after: Callable[[], bool] = lambda: True) -> Adds:
    left = [(point, f"{i}.json") for i, point in enumerate(points)]

    def added() -> Iterable[tuple[Point, str]]:
        while left and after():
            yield left.pop(0)

    return added


def drive(study: Study, launcher: FakeLauncher, added: Adds) -> Drive:
    """Drive a study while a person adds trials."""
    study.added = added
    try:
        return study.drive(launcher)
    finally:
        study.added = tuple


def returns_x(job: Job) -> Acts:
    trial = begin(job)
    yield
    point = json.loads((job.folder.path / "trial.json").read_text())["params"]
    trial.report({"objective": float(point["x"])}, 0)
    return Outcome(State.COMPLETED, objective=[float(point["x"])], metrics={"objective": float(point["x"])})


FINITE: dict[str, tuple[str, dict[str, Any], int]] = {
    "grid": ("x=1,2,3", {}, 3),
    "part of a grid": ("x=1,2,3,4,5", {"n_trials": 3}, 3),
    "search": ("x=1,2,3,4,5,6", {**TPE, "n_trials": 4}, 4),
    "search that exhausts its space": ("x=1,2,3", {**TPE, "n_trials": 9}, 3),
    "search over an interval": ("x=interval(0.5,4)", {**TPE, "n_trials": 5}, 5),
}


@pytest.mark.parametrize("running", [True, False], ids=["while it runs", "when it is over"])
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
@pytest.mark.parametrize("name", FINITE)
def test_a_trial_is_added_to_a_study(
    make_study: MakeStudy, clock: Clock, name: str, inside: bool, running: bool
) -> None:
    values, settings, count = FINITE[name]
    study = make_study(values, **settings)
    launcher = FakeLauncher(returns_x, clock, slots=1)
    if not running:
        study.drive(launcher)
        launcher = FakeLauncher(returns_x, clock, slots=1)
    left: list[float] = []

    def added() -> Iterable[tuple[Point, str]]:
        if not left and (launcher.polls > 1 or not running):
            tried = {row.params["x"] for row in study.last.summary.rows}
            left.append(next((x for x in (1, 2, 3, 2.5) if x not in tried), 4) if inside else 48)
            yield {"x": left[0]}, "1.json"

    done = drive(study, launcher, added)
    (row,) = [row for row in done.summary.rows if row.by_hand]
    assert (row.params, row.objective) == ({"x": left[0]}, [left[0]])
    within = study.space.contains({"x": left[0]}) and name in ("grid", "search that exhausts its space")
    expected = count if running and within else count + 1
    assert done.states() == ["completed"] * expected
    assert len({row.params["x"] for row in done.summary.rows}) == expected
    resumed = study.drive(nothing := FakeLauncher(returns_x, clock, slots=1))
    assert not nothing.submitted  # what was added is remembered
    assert len(resumed.summary.rows) == expected
    assert resumed.row(row.number).params == {"x": left[0]}
    assert done.summary.total == resumed.summary.total == expected


def test_complete_study_runs_added_trials(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2,3,4", target=1)
    assert study.drive(FakeLauncher(returns_x, clock, slots=1)).states().count("completed") == 1
    done = drive(study, launcher := FakeLauncher(returns_x, clock, slots=1), adding({"x": 9}))
    assert len(launcher.submitted) == 1
    assert [row.params for row in done.summary.rows if row.objective] == [{"x": 1}, {"x": 9}]


def test_added_trials_run_before_the_race(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2", "seed=0", target=1, final_race=1, final_race_seeds=2)
    launcher = FakeLauncher(returns_x, clock, slots=1, queue=1)
    done = drive(study, launcher, adding({"x": 9}, after=lambda: launcher.polls > 0))
    assert [row.objective for row in done.summary.rows if row.by_hand] == [[9.0]]
    assert any(row.race for row in done.summary.rows)


def test_added_trial_stays_queued(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2,3,4", target=1)
    study.drive(FakeLauncher(returns_x, clock, slots=1))
    launcher = FakeLauncher(returns_x, clock, slots=0, queue=5, survives=True)
    launcher.on_poll = lambda: setattr(launcher, "slots", int(launcher.polls > 20))
    done = drive(study, launcher, adding({"x": 9}))
    assert [row.objective for row in done.summary.rows if row.by_hand] == [[9.0]]


def test_killed_driver_keeps_added_trials(make_study: MakeStudy, clock: Clock) -> None:
    def killed() -> str:
        raise KeyboardInterrupt

    study = make_study("x=1,2,3")
    with pytest.raises(KeyboardInterrupt):
        study_killed = FakeLauncher(trains(9), clock, slots=1)
        study_killed.on_poll = killed
        drive(study, study_killed, adding({"x": 48}, {"x": 3}))
    done = study.drive(FakeLauncher(returns_x, clock, slots=1))
    assert sorted(row.params["x"] for row in done.summary.rows) == [1, 2, 3, 48]
    assert [row.params["x"] for row in done.summary.rows if row.by_hand] == [48, 3]
    (study.folder / "journal.jsonl").write_bytes((study.folder / "journal.jsonl").read_bytes()[:300] + b"\n???\n")
    mended = study.drive(FakeLauncher(returns_x, clock, slots=1))
    assert sorted(row.params["x"] for row in mended.summary.rows) == [1, 2, 3, 48]
    assert mended.states() == ["completed"] * 4


RUNNING: Script = trains(1000)


@pytest.mark.parametrize("script", [RUNNING, ends(Outcome(State.FAILED, "no"))], ids=["runs", "is over"])
def test_one_trial_is_ended(make_study: MakeStudy, clock: Clock, script: Script) -> None:
    messages: list[str] = []

    def look() -> str:
        if launcher.polls == 5:
            try:
                messages.extend(manual.end_trials(study.last.summary, [1]))
            except UserError as error:
                messages.append(str(error))
        return "it was stopped" if launcher.polls == 20 else ""

    study = make_study("x=1,2")
    launcher = FakeLauncher(script, clock, slots=2)
    done = study.drive(launcher, look)
    if script is RUNNING:
        assert messages == ["trial 1 ends at its next report and counts as pruned"]
        assert done.states() == ["cancelled", "pruned"]
    with pytest.raises(UserError, match=r"--trial 9: study s has no trial 9\.\nIt has 0 to 1"):
        manual.end_trials(done.summary, [9])
    with pytest.raises(UserError, match=r"--trial 0: trial 0 (has ended|does not run) \((cancelled|failed)\)"):
        manual.end_trials(done.summary, [0])


@pytest.mark.parametrize("repeats", [1, 2])
def test_added_trial_outside_the_space_may_win_the_race(make_study: MakeStudy, clock: Clock, repeats: int) -> None:
    study = make_study("x=4,5,6,7", "seed=0", **TPE, n_trials=3, final_race=2, final_race_seeds=3, repeats=repeats)
    study.drive(FakeLauncher(returns_x, clock, slots=1))
    done = drive(study, FakeLauncher(returns_x, clock, slots=1), adding({"x": 1}))
    (added,) = [row for row in done.summary.rows if row.by_hand]
    raced = [row for row in done.summary.rows if row.race and row.of == added.number]
    fresh = range(repeats, repeats + 3)
    assert [(row.params, row.objective) for row in raced] == [({"x": 1, "seed": seed}, [1.0]) for seed in fresh]
    best = configurations.best(done.summary)
    assert best and best.params == {"x": 1}
    (study.folder / "journal.jsonl").unlink()  # what the folders tell is enough
    resumed = drive(study, nothing := FakeLauncher(returns_x, clock, slots=1), adding())
    assert not nothing.submitted
    shown = {row.number: (row.params, row.of, row.race, row.objective) for row in resumed.summary.rows}
    assert shown == {row.number: (row.params, row.of, row.race, row.objective) for row in done.summary.rows}
    assert resumed.summary.total == done.summary.total == len(shown)


@pytest.mark.parametrize("settings", [{**TPE, "n_trials": 2}, {}], ids=["search", "grid"])
@pytest.mark.parametrize("x", [3, 48], ids=["inside", "outside"])
def test_added_trial_is_a_configuration_if_seeds_repeat(
    make_study: MakeStudy, clock: Clock, settings: dict[str, Any], x: int
) -> None:
    study = make_study("x=1,2,3,4,5" if settings else "x=1,2,3", "seed=7", **settings, repeats=3)
    done = drive(study, FakeLauncher(returns_x, clock, slots=2), adding({"x": x}))
    assert sorted(row.params["seed"] for row in done.summary.rows if row.params["x"] == x) == [7, 8, 9]
    assert done.summary.total == len(done.summary.rows)
    assert {str(row.state) for row in done.summary.rows} == {"completed"}
    resumed = study.drive(nothing := FakeLauncher(returns_x, clock, slots=2))
    assert not nothing.submitted
    assert resumed.summary.total == done.summary.total


def test_end_of_a_search_is_printed_after_earlier_starts(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2,3,4", target=1)
    done = study.drive(FakeLauncher(by_trial(trains(9), t0=returns_x), clock, slots=2))
    end = next(i for i, line in enumerate(done.lines) if line.startswith("Search finished"))
    assert not any("started" in line for line in done.lines[end:])
