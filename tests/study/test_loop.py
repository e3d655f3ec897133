"""What the loop decides, in milliseconds: real searches, journals and folders; attempts that end as a script says."""

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeps.choose.sampler.pruner import Pruner
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import MetricsLine
from sweeps.trial.run.sent_job import Job
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import (
    SILENT,
    Acts,
    Clock,
    FakeLauncher,
    Script,
    begin,
    by_trial,
    ends,
    result_of,
    trains,
)

COMPLETED = Outcome(State.COMPLETED, objective=[1.0], metrics={"objective": 1.0})
REFUSED = Outcome(State.REFUSED, "sbatch: error: Invalid account")
LOST = Outcome(State.LOST, "its node failed")
CANCELLED = Outcome(State.CANCELLED, "it was cancelled by its owner")
TIMED_OUT = Outcome(State.TIMED_OUT, "it reached its time limit")


# Files


@contextmanager
def disk_that_fails(fails: Callable[[Path], bool], number: int = errno.ESTALE) -> Iterator[None]:
    """Raise an OSError for each opening of such a file, as a shared disk that is away, full or broken does."""
    real = Path.open

    def opened(self: Path, *arguments: Any, **named: Any) -> Any:
        if fails(self):
            raise OSError(number, os.strerror(number), str(self))
        return real(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", opened)
        yield


@pytest.mark.parametrize("damage", ['{"step": 1, "ti{"step": 2', "\x00\x01\x02", "[]", '{"step": "x"}'])
def test_a_damaged_line_of_metrics_costs_no_more_than_itself(make_study: MakeStudy, clock: Clock, damage: str) -> None:
    def damaged(job: Job) -> Acts:
        acts = trains()(job)
        next(acts)
        with (job.folder.path / "metrics.jsonl").open("a") as file:
            file.write(damage + "\n")
        return (yield from acts)

    study = make_study()
    done = study.drive(FakeLauncher(by_trial(trains(), t1=damaged), clock))
    assert done.states() == ["completed"] * 3
    assert [study.steps(number) for number in range(3)] == [[0, 1, 2]] * 3
    assert done.out.count(f"1 damaged line in {study.trial(1).path / 'metrics.jsonl'}") == 1


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
@pytest.mark.parametrize(
    ("name", "for_s", "state"),
    [
        ("metrics.jsonl", 20, "completed"),
        ("metrics.jsonl", 9999, "completed"),  # how it ended stands in another file
        ("attempts/1/started", 9999, "completed"),
        ("attempts/1/end.json", 20, "completed"),
        ("attempts/1/end.json", 9999, "completed"),  # in its second attempt
        ("attempts/1/queued.json", 9999, "completed"),
        ("attempts/1/log", 9999, "completed"),
    ],
)
def test_a_file_that_cannot_be_read_concerns_one_trial(
    make_study: MakeStudy, clock: Clock, number: int, name: str, for_s: float, state: str
) -> None:
    study = make_study(max_gpu_hours=1.0)
    file, until = study.trial(1).path / name, clock.now + for_s
    launcher = FakeLauncher(trains(5), clock)
    with disk_that_fails(lambda path: path == file and not launcher.acting and clock.now < until, number):
        done = study.drive(launcher)
    assert done.states() == ["completed", state, "completed"]
    assert [study.steps(number) for number in range(3)] == [[0, 1, 2, 3, 4]] * 3
    assert done.row(1).objective == [result_of(1)]
    if name == "metrics.jsonl" or "end" in name:
        assert f"{os.strerror(number)}: '{file}'" in done.out


@pytest.mark.parametrize(("number", "states"), [(0, ["failed"]), (1, ["completed", "failed", "completed"])])
def test_missing_objective_stops_a_study_without_results(
    make_study: MakeStudy, clock: Clock, number: int, states: list[str]
) -> None:
    lacking = ends(Outcome(State.FAILED, "it returned nothing", missing_objective=True))
    done = make_study(n_jobs=1).drive(FakeLauncher(by_trial(trains(), **{f"t{number}": lacking}), clock))
    assert done.states() == states


def test_pruner_observes_delayed_reports(make_study: MakeStudy, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, int]] = []

    def report(self: Pruner, number: int, step: int, value: float) -> bool:
        if (number, step) == (1, 1) and clock.now < until:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        heard.append((number, step))
        return False

    until = clock.now + 20
    monkeypatch.setattr(Pruner, "report", report)
    study = make_study(pruner={"_target_": "optuna.pruners.MedianPruner"})
    assert study.drive(FakeLauncher(trains(400), clock)).states() == ["completed"] * 3
    assert {step for number, step in heard if number == 1} == set(range(400))


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00\xff", '{"state": "fine"}', '{"state": "lost", "x": 1}'])
def test_file_without_an_outcome_counts_as_lost(make_study: MakeStudy, clock: Clock, content: str) -> None:
    def damaged(job: Job) -> Acts:
        yield from trains()(job)
        if job.attempt == 1:
            (job.attempt_folder.path / "end.json").write_text(content)
        return SILENT

    study = make_study()
    done = study.drive(FakeLauncher(by_trial(trains(), t1=damaged), clock))
    assert done.states() == ["completed"] * 3
    assert [end.state for end in done.row(1).attempts] == [State.LOST, State.COMPLETED]
    file = study.trial(1).path / "attempts" / "1" / "end.json"
    assert f"trial 1 lost: {file} " in done.out
    assert [quarantined.read_text() for quarantined in file.parent.glob("end.json.damaged-*")] == [content]
    assert study.steps(1) == [0, 1, 2]


def test_trial_unreadable_at_the_start_is_left_for_the_next_command(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2,3,4")
    study.drive(FakeLauncher(ends(CANCELLED), clock))
    file = study.trial(1).path / "attempts" / "1" / "end.json"
    with disk_that_fails(lambda path: path == file, errno.EIO):
        done = study.drive(FakeLauncher(trains(), clock))
    assert done.states() == ["completed", "refused", "completed", "completed"]
    assert str(file) in done.row(1).error
    assert study.drive(FakeLauncher(trains(), clock)).states() == ["completed"] * 4


@pytest.mark.parametrize("name", [".stop", "heard"])
def test_trial_that_cannot_be_stopped_does_not_block_other_stops(
    make_study: MakeStudy, clock: Clock, name: str
) -> None:
    study = make_study("x=1,2,3", n_jobs=3)
    launcher = FakeLauncher(trains(50), clock, slots=3)
    full = study.trial(0).path / "attempts" / "1"
    with disk_that_fails(lambda path: path.parent == full and path.name.startswith(name), errno.ENOSPC):
        done = study.drive(launcher, lambda: "it was stopped" if launcher.polls == 5 else "")
    assert done.states()[1:] == ["cancelled"] * 2
    assert done.states()[0] in ("completed", "failed")


def test_a_folder_that_is_gone_when_its_trial_ends(make_study: MakeStudy, clock: Clock) -> None:
    def vanishes(job: Job) -> Acts:
        begin(job)
        yield
        if job.attempt == 1:
            shutil.rmtree(job.folder.path)
            return LOST
        return COMPLETED

    study = make_study()
    assert study.drive(FakeLauncher(by_trial(trains(), t1=vanishes), clock)).states() == ["completed"] * 3


def test_a_log_that_cannot_be_read_is_not_shown(make_study: MakeStudy, clock: Clock) -> None:
    def fails(job: Job) -> Acts:
        begin(job)
        job.attempt_folder.log.write_text('    it()\n    ^^^^\n  File "a.py", line 1\nwhat it said')
        yield
        return Outcome(State.FAILED, f"too large by {'abc'[job.number]}")

    study, launcher = make_study(), FakeLauncher(fails, clock)
    hidden = study.trial(0).attempt(1).log
    with disk_that_fails(lambda path: path == hidden and not launcher.acting, errno.EIO):
        out = study.drive(launcher).out
    assert f"trial 0 failed: too large by a   (x=1)\n    whole log: {hidden}" in out
    assert 'trial 1 failed: too large by b   (x=2)\n      File "a.py", line 1\n    what it said' in out


def test_missing_disk_is_reported_on_loss_and_return(make_study: MakeStudy, clock: Clock) -> None:
    study, launcher = make_study(), FakeLauncher(trains(40), clock)

    def away(path: Path) -> bool:
        return path.name == "metrics.jsonl" and not launcher.acting and launcher.polls in range(5, 20)

    with disk_that_fails(away):
        done = study.drive(launcher)
    assert done.states() == ["completed"] * 3
    notes = [line for line in done.lines if "retrying" in line or "read again" in line]
    assert "metrics.jsonl'; retrying" in notes[0]
    assert notes[1:] == ["the files of all trials can be read again"]


# Refused


def test_three_identical_refusals_stop_the_study_with_one_message(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(30)")
    launcher = FakeLauncher(ends(REFUSED, begins=False), clock, slots=1)
    done = study.drive(launcher)
    assert done.ended() == ["refused"] * 3
    assert done.loop.stop.reason == f"3 trials in a row were refused: {REFUSED.error}"
    assert done.out.count(REFUSED.error) == 1
    assert "started" not in done.out  # none ever was
    assert "log" not in done.out  # nor did it leave one
    done = study.drive(FakeLauncher(trains(1), clock))
    assert done.states() == ["completed"] * 30
    assert done.loop.stop.reason == ""


def refusals(*reasons: str) -> Script:
    """Return a script of trials that are refused for these reasons, by number. A trial without a reason trains."""

    def script(job: Job) -> Acts:
        if not reasons[job.number]:
            return (yield from trains(1)(job))
        yield
        return Outcome(State.REFUSED, reasons[job.number])

    return script


@pytest.mark.parametrize(
    ("reasons", "ended", "stops"),
    [
        (["a", "a", "a", "a", "a"], 3, True),
        (["a", "b", "a", "b", "a"], 5, False),
        (["a", "a", "b", "b", "a"], 5, False),
        (["a", "a", "", "a", "a"], 5, False),  # a trial began: what was wrong is mended
        (["a", "", "a", "a", "b"], 5, False),
        (["a", "b", "b", "b", "a"], 4, True),
        (["job 1: a", "job 22: a", "job 333: a", "", ""], 3, True),  # the same, but for its number
    ],
)
def test_refusals_that_stop_the_study(
    make_study: MakeStudy, clock: Clock, reasons: list[str], ended: int, stops: bool
) -> None:
    study = make_study("x=1,2,3,4,5")
    done = study.drive(FakeLauncher(refusals(*reasons), clock, slots=1))
    expected = ["refused" if reason else "completed" for reason in reasons]
    assert done.ended() == expected[:ended]
    assert bool(done.loop.stop.reason) == stops


@pytest.mark.parametrize(
    ("slots", "trained", "ended"),
    [
        (1, (), ["refused"]),
        (3, (), ["refused"] * 3),  # which were submitted together
        (1, (0,), ["completed", "refused", "refused", "refused"]),  # as three that are refused in a row
        (2, (1,), ["refused", "completed", *["refused"] * 3]),
    ],
)
def test_refused_request_stops_a_command_that_submitted_nothing_else(
    make_study: MakeStudy, clock: Clock, slots: int, trained: tuple[int, ...], ended: list[str]
) -> None:
    study = make_study("x=range(30)")
    refused = ends(replace(REFUSED, request_refused=True), begins=False)
    done = study.drive(FakeLauncher(by_trial(refused, **{f"t{n}": trains(3) for n in trained}), clock, slots=slots))
    assert done.ended() == ended
    assert done.loop.stop.reason.endswith(REFUSED.error)
    assert study.drive(FakeLauncher(trains(1), clock)).states() == ["completed"] * 30


def test_trial_without_a_folder_is_refused(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2,3")
    study.trial(1).path.write_text("in the way")
    done = study.drive(FakeLauncher(trains(), clock))
    assert done.states() == ["completed", "refused", "completed"]
    assert "its folder cannot be made: " in done.row(1).error
    assert str(study.trial(1).path) in done.row(1).error
    study.trial(1).path.unlink()
    assert study.drive(FakeLauncher(trains(), clock)).states() == ["completed"] * 3


def test_no_folder_can_be_made_at_all(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(30)")
    with disk_that_fails(lambda path: path.name.startswith(".trial.json"), errno.EROFS):
        done = study.drive(FakeLauncher(trains(), clock))
    assert done.states() == ["refused"] * 3
    assert done.loop.stop.reason.startswith("3 trials in a row were refused: its folder cannot be made: ")
    assert study.drive(FakeLauncher(trains(), clock)).states() == ["completed"] * 30


# Attempts


def limited(epochs: int, per_attempt: int, hour_s: float = 3600) -> Script:
    """Return a script of trials whose time limit allows so many epochs in each attempt."""

    def script(job: Job) -> Acts:
        trial = begin(job)
        reported = job.folder.read_metrics().values
        first = reported[-1].step if reported and job.attempt > 1 else 0
        for step in range(first + 1, first + per_attempt + 1):
            yield
            trial.report({"objective": 1.0}, step)
            if step == epochs:
                return COMPLETED
        return TIMED_OUT

    return script


@pytest.mark.parametrize(
    ("epochs", "per_attempt", "max_attempts", "max_timeouts", "attempts", "state"),
    [
        (10, 2, 3, None, 5, "completed"),  # each attempt advances: there is no end to that
        (10, 2, 1, None, 5, "completed"),
        (10, 0, 3, None, 3, "timed_out"),
        (10, 0, 1, None, 1, "timed_out"),
        (10, 2, 3, 0, 1, "timed_out"),
        (10, 2, 3, 3, 4, "timed_out"),
        (10, 2, 3, 4, 5, "completed"),
    ],
)
def test_timed_out_trial_resumes_while_attempts_advance(
    make_study: MakeStudy,
    clock: Clock,
    epochs: int,
    per_attempt: int,
    max_attempts: int,
    max_timeouts: int | None,
    attempts: int,
    state: str,
) -> None:
    study = make_study("x=1", max_attempts=max_attempts)
    launcher = FakeLauncher(limited(epochs, per_attempt), clock)
    launcher.max_timeouts = max_timeouts
    done = study.drive(launcher)
    assert (done.states(), len(done.row(0).attempts)) == ([state], attempts)
    if state == "timed_out":
        assert done.row(0).error.startswith(f"{TIMED_OUT.error}; given up after {attempts} attempt")
        assert "hydra.launcher.timeout_min" in done.row(0).error
        assert "hydra.sweeper.max_attempts" in done.row(0).error


@pytest.mark.parametrize("outcome", [LOST, Outcome(State.LOST), Outcome(State.TIMED_OUT)])
def test_trial_lost_each_time_is_abandoned_with_a_message(
    make_study: MakeStudy, clock: Clock, outcome: Outcome
) -> None:
    launcher = FakeLauncher(by_trial(trains(), t0=ends(outcome)), clock)
    done = make_study("x=1,2").drive(launcher)
    assert done.states() == [str(outcome.state), "completed"]
    assert launcher.submitted.count((0, 3)) == 1
    assert launcher.submitted.count((0, 4)) == 0
    error = done.row(0).error
    assert "given up after 3 attempts. " in error
    assert len(error.partition(";")[0]) > 3
    assert f"trial 0 {outcome.state}: {error}" in done.out


@pytest.mark.parametrize(
    ("outcome", "changes", "goes_on"),
    [
        (LOST, {}, False),
        (LOST, {"max_attempts": 10}, True),
        (TIMED_OUT, {"max_attempts": 10}, True),
        (Outcome(State.FAILED, "too large"), {"max_attempts": 10}, False),
        (Outcome(State.DIVERGED, "loss is nan"), {"max_attempts": 10}, False),
        (Outcome(State.OUT_OF_MEMORY, "too much"), {"max_attempts": 10}, False),
    ],
)
def test_abandoned_trial_resumes_when_more_is_allowed(
    make_study: MakeStudy, clock: Clock, outcome: Outcome, changes: dict[str, Any], goes_on: bool
) -> None:
    study = make_study("x=1,2")
    assert study.drive(FakeLauncher(by_trial(trains(), t0=ends(outcome)), clock)).states()[0] == outcome.state
    launcher = FakeLauncher(trains(), clock)
    done = study.drive(launcher, **changes)
    assert done.states() == ["completed" if goes_on else str(outcome.state), "completed"]
    assert ("trials 0 were given up and resume now" in done.out) == goes_on
    if goes_on:
        assert done.row(0).objective == [result_of(0)]
        assert study.drive(launcher).states() == ["completed"] * 2


@pytest.mark.parametrize(("timeout_min", "goes_on"), [(10.0, False), (9.5, False), (10.5, True), (None, True)])
def test_abandoned_trial_resumes_with_more_time(
    make_study: MakeStudy, clock: Clock, timeout_min: float | None, goes_on: bool
) -> None:
    def ten_minutes(job: Job) -> Acts:
        begin(job)
        yield
        clock.now += 600
        return TIMED_OUT

    study = make_study("x=1")
    study.timeout_min = 10.0
    assert study.drive(FakeLauncher(ten_minutes, clock)).states() == ["timed_out"]
    study.timeout_min = timeout_min
    done = study.drive(FakeLauncher(trains(), clock))
    assert done.states() == ["completed" if goes_on else "timed_out"]


def test_a_trial_cancelled_by_its_owner_is_open_for_the_next_command_alone(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study()
    launcher = FakeLauncher(by_trial(trains(), t1=ends(CANCELLED)), clock)
    done = study.drive(launcher)
    assert done.states() == ["completed", "cancelled", "completed"]
    assert [attempt for number, attempt in launcher.submitted if number == 1] == [1]
    assert done.row(1).error == CANCELLED.error
    second = FakeLauncher(trains(), clock)
    assert study.drive(second).states() == ["completed"] * 3
    assert second.submitted == [(1, 2)]


def test_bad_node_is_avoided_from_its_failure_on_and_by_the_next_driver(make_study: MakeStudy, clock: Clock) -> None:
    study, failed = make_study(), Outcome(State.LOST, "its node failed", node="n7", node_failed=True)
    launcher = FakeLauncher(by_trial(trains(), t1=ends(failed, CANCELLED)), clock)
    bad = {"n7": "failed while it had a trial"}
    assert study.drive(launcher).states() == ["completed", "cancelled", "completed"]
    assert launcher.avoided == [{}, bad]
    second = FakeLauncher(trains(), clock)
    study.drive(second)
    assert second.avoided == [bad]


@pytest.mark.parametrize("outcome", [Outcome(State.FAILED, "too large"), Outcome(State.DIVERGED, "loss is nan")])
def test_final_outcome_never_changes(make_study: MakeStudy, clock: Clock, outcome: Outcome) -> None:
    study = make_study()
    done = study.drive(FakeLauncher(by_trial(trains(), t1=ends(outcome)), clock))
    assert done.states() == ["completed", str(outcome.state), "completed"]
    second = FakeLauncher(trains(), clock)
    assert study.drive(second).states() == done.states()
    assert second.submitted == []


def test_trial_lost_while_its_study_stops_resumes_later(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(4)")
    launcher = FakeLauncher(ends(LOST), clock)
    done = study.drive(launcher, lambda: "it was stopped" if launcher.polls == 1 else "")
    assert done.ended() == ["cancelled"] * 2
    assert study.drive(FakeLauncher(trains(), clock)).states() == ["completed"] * 4


def test_a_trial_that_only_waits_has_not_started(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(4)")
    launcher = FakeLauncher(trains(9), clock, queue=2)
    launcher.on_poll = lambda: killed(launcher.polls == 4)
    with pytest.raises(Killed):
        study.drive(launcher)
    assert study.last.states()[:4] == ["running"] * 2 + ["queued"] * 2
    assert [line.split()[1] for line in study.last.lines if "started" in line] == ["0", "1"]


# The objective


@pytest.mark.parametrize("reports", [True, False])
def test_a_misspelt_objective_stops_the_study_at_its_first_trial(
    make_study: MakeStudy, clock: Clock, reports: bool
) -> None:
    study = make_study("x=range(20)", objective="val_acc", direction="maximize")
    launcher = FakeLauncher(trains(epochs=3 if reports else 0, metric="val_accuracy"), clock, slots=1)
    done = study.drive(launcher)
    assert done.ended() == ["failed"]
    assert "hydra.sweeper.objective=val_accuracy" in done.loop.stop.reason
    assert study.steps(0) == ([0] if reports else [])


def returns_nothing(job: Job) -> Acts:
    begin(job)
    yield
    from sweeps.trial.run.process import outcome_of_return

    job.attempt_folder.close(outcome_of_return(None, job.objective, None))
    return SILENT


def test_a_grid_needs_no_objective(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study()
    done = study.drive(FakeLauncher(returns_nothing, clock))
    assert done.states() == ["completed"] * 3
    assert (done.summary.best(), done.summary.bad()) == (None, [])
    assert study.drive(FakeLauncher(returns_nothing, clock)).states() == ["completed"] * 3


def test_search_without_an_objective_stops_after_its_first_trial(make_study: MakeStudy, clock: Clock) -> None:
    sampler = {"_target_": "optuna.samplers.RandomSampler", "seed": 1}
    study = make_study("x=interval(0,1)", sampler=sampler, n_trials=20)
    done = study.drive(FakeLauncher(returns_nothing, clock, slots=1))
    assert done.states() == ["failed"]
    assert "returned nothing" in done.loop.stop.reason


def test_a_pruner_ends_hopeless_trials(make_study: MakeStudy, clock: Clock) -> None:
    pruner = {"_target_": "optuna.pruners.MedianPruner", "n_startup_trials": 1, "n_warmup_steps": 1}
    study = make_study("x=1,2", pruner=pruner)
    done = study.drive(FakeLauncher(trains(6), clock, slots=1))
    assert done.states() == ["completed", "pruned"]
    assert 2 <= len(study.steps(1)) < 6


def test_each_report_of_a_grid_is_judged_also_by_the_next_driver(make_study: MakeStudy, clock: Clock) -> None:
    pruner = {"_target_": "optuna.pruners.ThresholdPruner", "upper": 50.0}
    study = make_study("x=1,2", pruner=pruner)
    launcher = FakeLauncher(trains(400), clock, survives=True)
    launcher.on_poll = lambda: killed(launcher.polls == 1)
    with pytest.raises(Killed):
        study.drive(launcher)
    launcher.on_poll = lambda: None
    for _ in range(9):
        launcher.act()
    assert study.drive(launcher).states() == ["pruned"] * 2


# Stopping


@pytest.mark.parametrize("survives", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_leave_jobs_running(
    make_study: MakeStudy, clock: Clock, number: signal.Signals, survives: bool
) -> None:
    study, handler = make_study("x=range(6)"), signal.getsignal(number)
    diary: list[tuple[int, int]] = []
    launcher = FakeLauncher(trains(5, diary=diary), clock, queue=1, survives=survives)
    launcher.on_poll = lambda: launcher.polls == 4 and os.kill(os.getpid(), number)
    done = study.drive(launcher)
    assert done.loop.interrupted
    assert number.name in done.loop.stop.reason
    continues = survives and number is not signal.SIGINT
    assert done.loop.detach == continues
    heard = [study.trial(n).attempt(1).stop_requested() for n in (0, 1)]
    assert heard == ([None, None] if continues else [State.CANCELLED] * 2)
    assert done.states()[:3] == (["running", "running", "queued"] if continues else ["cancelled"] * 3)
    reason = f"it was queued when the study stopped: interrupted ({number.name})"
    assert done.row(2).error == ("" if continues else reason)
    assert signal.getsignal(number) == handler

    launcher.on_poll = lambda: None
    done = study.drive(launcher)
    assert done.states() == ["completed"] * 6
    assert sorted(diary) == [(trial, epoch) for trial in range(6) for epoch in range(5)]
    assert [n for n, attempt in launcher.submitted if attempt == 2] == ([] if continues else [0, 1, 2])


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_second_ctrl_c_ends_the_driver_at_once(make_study: MakeStudy, clock: Clock, first: signal.Signals) -> None:
    launcher = FakeLauncher(ends(*[LOST] * 9), clock)
    launcher.script = deaf
    sent = {3: first, 5: signal.SIGINT}
    launcher.on_poll = lambda: launcher.polls in sent and os.kill(os.getpid(), sent[launcher.polls])
    with pytest.raises(KeyboardInterrupt):
        make_study().drive(launcher)
    assert launcher.polls == 5


def deaf(job: Job) -> Acts:
    """Train without a call of should_stop()."""
    begin(job)
    while True:
        yield


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_second_request_of_another_kind_is_queued(make_study: MakeStudy, clock: Clock, number: signal.Signals) -> None:
    launcher = FakeLauncher(trains(9), clock)
    sent = {3: signal.SIGINT, 4: number}
    launcher.on_poll = lambda: launcher.polls in sent and os.kill(os.getpid(), sent[launcher.polls])
    assert make_study().drive(launcher).states()[:2] == ["cancelled"] * 2


@pytest.mark.parametrize("keep", [False, True])
def test_keep_on_interrupt(make_study: MakeStudy, clock: Clock, keep: bool) -> None:
    launcher = FakeLauncher(trains(9), clock, survives=True)
    launcher.keep_on_interrupt = keep
    launcher.on_poll = lambda: launcher.polls == 3 and os.kill(os.getpid(), signal.SIGINT)
    done = make_study().drive(launcher)
    assert done.states()[:2] == (["running"] if keep else ["cancelled"]) * 2


def test_python_m_sweeps_stop(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(6)")
    launcher = FakeLauncher(trains(9), clock, queue=2)
    done = study.drive(launcher, lambda: "it was stopped" if launcher.polls > 3 else "")
    assert done.ended() == ["cancelled"] * 4
    assert done.loop.stop.reason == "it was stopped"
    assert study.trial(2).attempt(1).began() is None
    assert study.drive(FakeLauncher(trains(9), clock)).states() == ["completed"] * 6


# Drivers, one after the other


@pytest.mark.parametrize("survives", [False, True])
def test_next_driver_adopts_running_jobs_and_resumes_the_rest(
    make_study: MakeStudy, clock: Clock, survives: bool
) -> None:
    study = make_study("x=range(5)")
    diary: list[tuple[int, int]] = []
    launcher = FakeLauncher(trains(4, diary=diary), clock, queue=1, survives=survives)
    launcher.on_poll = lambda: killed(launcher.polls == 3)
    with pytest.raises(Killed):
        study.drive(launcher)
    launcher.on_poll = lambda: None
    for _ in range(2 * survives):  # nobody looks meanwhile
        launcher.act()
    done = study.drive(launcher)
    assert done.states() == ["completed"] * 5
    assert sorted(diary) == [(trial, epoch) for trial in range(5) for epoch in range(4)]
    assert [study.steps(number) for number in range(5)] == [[0, 1, 2, 3]] * 5
    second = [number for number, attempt in launcher.submitted if attempt == 2]
    assert second == ([] if survives else [0, 1, 2])
    assert f"trial 1 {'still runs   x=1' if survives else 'resumed from '}" in done.out
    if not survives:
        assert study.trial(0).ends()[0].error == "it ended with its driver"


def test_refused_trials_resume_with_the_next_driver(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(2)")
    refused = ends(Outcome(State.REFUSED, "no space left"), begins=False)
    launcher = FakeLauncher(refused, clock, survives=True)
    launcher.on_poll = lambda: killed(launcher.polls == 1)
    with pytest.raises(Killed):
        study.drive(launcher)
    launcher.on_poll, before = (lambda: None), list(launcher.submitted)
    done = study.drive(launcher)
    assert done.states() == ["refused"] * 2  # once more, and no third time
    assert launcher.submitted == [*before, (0, 2), (1, 2)]
    assert "trial 0 refused: no space left; retried in a new attempt" in done.lines
    launcher.script = trains()
    assert study.drive(launcher).states() == ["completed"] * 2


@pytest.mark.parametrize(("was_stopped", "state"), [(True, "completed"), (False, "cancelled")])
def test_trials_that_an_earlier_driver_stopped_resume_with_the_next(
    make_study: MakeStudy, clock: Clock, was_stopped: bool, state: str
) -> None:
    study = make_study("x=range(2)")
    cancelled = ends(Outcome(State.CANCELLED, "it was cancelled with scancel"), begins=False)
    launcher = FakeLauncher(cancelled, clock, survives=True)
    launcher.on_poll = lambda: killed(launcher.polls == 1)
    with pytest.raises(Killed):
        study.drive(launcher)
    for number in range(2 * was_stopped):
        study.trial(number).attempt(1).request_stop(State.CANCELLED)
    script = launcher.script
    launcher.on_poll, launcher.script = (lambda: None), lambda job: (trains() if job.attempt > 1 else script)(job)
    assert study.drive(launcher).states() == [state] * 2


def test_an_adopted_attempt_ended_at_its_last_file(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1")
    launcher = FakeLauncher(ends(Outcome(State.FAILED, "its node failed")), clock, survives=True)
    launcher.on_poll = lambda: killed(launcher.polls == 2)
    with pytest.raises(Killed):
        study.drive(launcher)
    attempt = study.trial(0).attempt(1)
    for file in (attempt.path, *attempt.path.iterdir(), *attempt.trial.path.glob("*metrics.jsonl")):
        os.utime(file, ((attempt.began() or 0) + 5,) * 2)
    launcher.on_poll = lambda: None
    clock.now += 7200
    assert study.drive(launcher).states() == ["failed"]
    assert study.trial(0).ends()[0].duration_s == 5


class Killed(BaseException):
    """As kill -9: nothing is written any more."""


def killed(now: bool) -> None:
    if now:
        raise Killed


@pytest.mark.parametrize("instant", range(1, 24))
def test_driver_killed_at_any_poll_keeps_every_trial(make_study: MakeStudy, clock: Clock, instant: int) -> None:
    study, diary = make_study("x=range(4)"), []
    launcher = FakeLauncher(trains(4, diary=diary), clock)
    left = iter(range(1, 1000))
    launcher.on_poll = lambda: killed(next(left) % instant == 0)
    for _ in range(40):
        try:
            done = study.drive(launcher)
            break
        except Killed:
            continue
    else:
        assert instant == 1  # it never gets to anything
        return
    assert done.states() == ["completed"] * 4
    assert sorted(diary) == [(trial, epoch) for trial in range(4) for epoch in range(4)]


def test_detached_driver_leaves_when_the_queue_is_full(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(6)")
    launcher = FakeLauncher(trains(), clock, queue=2, survives=True)
    launcher.detach = True
    assert study.drive(launcher).states() == ["queued"] * 5
    assert len(launcher.submitted) == 4
    for _ in range(20):
        launcher.act()
    assert study.drive(launcher).states()[:4] == ["completed"] * 4
    launcher.detach = False
    assert study.drive(launcher).states() == ["completed"] * 6
    assert [attempt for _, attempt in launcher.submitted] == [1] * 6


# Limits


@pytest.mark.parametrize(("n_jobs", "most"), [(None, 4), (1, 1), (3, 3), (9, 4)])
def test_trials_at_a_time(make_study: MakeStudy, clock: Clock, n_jobs: int | None, most: int) -> None:
    launcher = FakeLauncher(trains(), clock, slots=4)
    assert make_study("x=range(9)", n_jobs=n_jobs).drive(launcher).states() == ["completed"] * 9
    assert launcher.most == most


@pytest.mark.parametrize(("rate", "ended"), [(None, 6), (1.0, 6), (0.5, 4), (0.0, 1)])
def test_failures_beyond_the_rate_stop_the_study(
    make_study: MakeStudy, clock: Clock, rate: float | None, ended: int
) -> None:
    launcher = FakeLauncher(ends(Outcome(State.FAILED, "too large")), clock, slots=1)
    done = make_study("x=range(6)", max_failure_rate=rate).drive(launcher)
    assert done.ended() == ["failed"] * ended
    assert ("max_failure_rate" in done.loop.stop.reason) == (ended < 6)


def test_a_budget_of_gpu_hours(make_study: MakeStudy, clock: Clock) -> None:
    def an_hour(job: Job) -> Acts:
        begin(job)
        for _ in range(6):
            yield
            clock.now += 600
        return COMPLETED

    study = make_study("x=range(6)", max_gpu_hours=3.5, budget_overrun=True)
    study.gpus = 2
    done = study.drive(FakeLauncher(an_hour, clock, slots=1))
    assert done.ended() == ["completed"] * 2
    assert done.loop.stop.reason == "the budget of max_gpu_hours=3.5 is spent"
    assert sum(end.gpu_hours for row in done.summary.rows for end in row.attempts) == pytest.approx(4, rel=0.01)


def test_exhausted_budget_cancels_queued_trials(make_study: MakeStudy, clock: Clock) -> None:
    launcher = FakeLauncher(ends(Outcome(State.FAILED, "too large")), clock, slots=1, queue=10, survives=True)
    done = make_study("x=range(6)", max_failure_rate=0.3).drive(launcher)
    assert len(launcher.submitted) == 6
    assert done.ended().count("failed") < 6
    assert "max_failure_rate" in done.loop.stop.reason


def test_a_config_that_is_not_valid_fails_its_trial_alone(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2,3")
    study.refused = {1}
    done = study.drive(FakeLauncher(trains(), clock))
    assert done.states() == ["completed", "failed", "completed"]
    assert done.row(1).error == "trial 1 makes no sense"


def test_infeasible_points_have_one_message_per_reason(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2,3,4")
    study.infeasible = lambda row: row.number in (1, 3)
    done = study.drive(FakeLauncher(trains(), clock))
    assert done.states() == ["completed", "infeasible", "completed", "infeasible"]
    assert [row.infeasible for row in done.summary.rows] == [False, True, False, True]
    assert [line for line in done.lines if "trial 1" in line or "trial 3" in line] == [
        "trial 1 (x=2) is infeasible, and was not started: x=2 is too large"
    ]
    assert study.drive(FakeLauncher(trains(), clock)).states() == done.states()


def test_pruned_trial_is_not_infeasible(make_study: MakeStudy, clock: Clock) -> None:
    pruner = {"_target_": "optuna.pruners.PercentilePruner", "percentile": 1.0, "n_startup_trials": 1}
    done = make_study("x=1,2,3", pruner=pruner).drive(FakeLauncher(trains(), clock, slots=1))
    assert "pruned" in done.states()
    assert not any(row.infeasible for row in done.summary.rows)


def test_many_infeasible_trials_delay_no_other(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(60)")
    study.infeasible = lambda row: row.number > 0
    launcher, counts, began = FakeLauncher(trains(5), clock, slots=2), [], clock.now
    launcher.on_poll = lambda: counts.append(len(study.last.summary.rows))
    done = study.drive(launcher)
    assert done.states() == ["completed", *["infeasible"] * 59]
    assert counts[:20] == [*range(2, 22)]
    assert clock.now - began < 1


def test_signal_between_infeasible_points_is_received(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=range(60)")
    study.infeasible = lambda row: row.number > 0

    def takes_its_time(job: Job) -> Acts:
        begin(job)
        yield from [None] * 9
        return CANCELLED

    launcher, began = FakeLauncher(takes_its_time, clock), clock.now
    launcher.on_poll = lambda: launcher.polls == 3 and os.kill(os.getpid(), signal.SIGINT)
    done = study.drive(launcher)
    assert done.loop.interrupted
    assert done.states() == ["cancelled", *["infeasible"] * 3]
    assert clock.now - began >= 0.25  # there is time again, while the one that runs ends


def test_reports_of_a_running_trial_reach_the_snapshot(make_study: MakeStudy, clock: Clock) -> None:
    values: list[float] = []
    study = make_study("x=1")

    def look() -> None:
        if study.last.summary.rows and (metrics := study.last.row(0).metrics):
            values.append(metrics["objective"])

    launcher = FakeLauncher(trains(), clock)
    launcher.on_poll = look
    study.drive(launcher)
    assert values == [102.0, 101.0, 100.0]


def test_observed_steps_are_not_observed_again(
    make_study: MakeStudy, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:

    def lost_once(job: Job) -> Acts:
        acts = trains()(job)
        yield next(acts)
        return LOST if job.attempt == 1 else (yield from acts)

    heard: list[int] = []
    real = Pruner.report
    monkeypatch.setattr(Pruner, "report", lambda self, *arguments: heard.append(arguments[1]) or real(self, *arguments))
    pruner = {"_target_": "optuna.pruners.MedianPruner", "n_startup_trials": 9}
    study = make_study("x=1", pruner=pruner)
    done = study.drive(FakeLauncher(lost_once, clock))
    assert done.states() == ["completed"]
    assert heard == [0, 1, 2]


def test_folders_belong_to_trials(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1,2")
    done = study.drive(FakeLauncher(trains(), clock))
    assert [row.folder for row in done.summary.rows] == [study.folder / "0", study.folder / "1"]
    line = MetricsLine(2, TrialFolder(study.folder / "1").read_metrics().values[2].time, {"objective": 101, "loss": 1})
    assert study.trial(1).read_metrics().values[2] == line


def test_page_is_updated_while_trials_run_and_errors_are_reported(make_study: MakeStudy, clock: Clock) -> None:
    class Page:
        problem = ""

        def __init__(self) -> None:
            self.seen: list[int] = []

        def tick(self) -> None:
            self.seen.append(len(study.last.loop.running))
            self.problem = "report.html cannot be written now: the disk is full"

    def look() -> str:
        study.last.watchers.page = page  # type: ignore[assignment]
        return ""

    study, page = make_study(), Page()
    done = study.drive(FakeLauncher(trains(), clock), look)
    assert done.states() == ["completed"] * 3
    assert max(page.seen) == 2 and len(page.seen) > 5
    assert done.out.count("the disk is full") == 1
