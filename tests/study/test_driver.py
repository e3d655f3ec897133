"""A driver in this process, over a launcher of the tests: what it does when something happens that nobody expected."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext

from sweeps import __main__ as commands
from sweeps.base.errors import ExitCode, UserError
from sweeps.base.files import Lock, holder
from sweeps.record.study import StudySnapshot
from sweeps.show.page import report
from sweeps.study.run.driver import Driver
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job
from tests.command_lines import some
from tests.study.fake_launcher import Acts, Clock, FakeLauncher, begin, by_trial, ends, trains

Run = Callable[..., StudySnapshot]


def task(cfg: Any) -> float:
    return 1.0


def returns_nothing(cfg: Any) -> None:
    print(cfg)


@pytest.fixture
def drivers() -> list[Driver]:
    """Return the drivers that `run` made."""
    return []


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivers: list[Driver]) -> Iterator[Run]:
    """Return a function that runs the study s in multirun/s, and returns its snapshot."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("x: 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write", lambda *arguments: None)  # plotly takes its time
    always = ["hydra/launcher=local", "hydra.mode=MULTIRUN", "hydra.sweeper.study_name=s"]
    with initialize_config_dir(str(tmp_path / "conf"), job_name="app", version_base="1.3"):

        def run(
            launcher: FakeLauncher,
            *overrides: str,
            sweep: str = "x=1,2,3",
            function: Callable[..., Any] = task,
            sweeper: str = "grid",
        ) -> StudySnapshot:
            words = [*always, f"hydra/sweeper={sweeper}", "hydra.sweeper.tracking=false", *overrides]
            config = compose("config", words, return_hydra_config=True)
            context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())
            drivers.append(Driver(config, context, function))
            return drivers[-1].run(launcher, [sweep])  # type: ignore[arg-type]

        yield run


def test_a_study_from_its_command_to_its_end(run: Run, clock: Clock, tmp_path: Path) -> None:
    launcher = FakeLauncher(trains(), clock)
    summary = run(launcher)
    assert [row.state for row in summary.rows] == [State.COMPLETED] * 3
    assert launcher.closed == [False]
    assert holder(tmp_path / "multirun" / "s" / "driver.lock") is None


def raises(launcher: FakeLauncher, error: BaseException, at: int = 3) -> None:
    """Raise an error in the driver's third look at its launcher."""

    def raise_(now: bool) -> None:
        if now:
            raise error

    launcher.on_poll = lambda: raise_(launcher.polls == at)


@some(
    ("error", "raised", "keep"),
    [
        (ZeroDivisionError("a bug"), ZeroDivisionError, True),
        (OSError(5, "Input/output error"), UserError, True),
        (UserError("a setup that cannot work"), UserError, True),
        (MemoryError(), MemoryError, True),
        (KeyboardInterrupt(), SystemExit, False),
        (KeyboardInterrupt(signal.SIGTERM), SystemExit, True),
        (SystemExit(3), SystemExit, True),
    ],
    4,
    ids=lambda value: repr(value)[:40],
)
def test_unexpected_error_does_not_end_running_jobs(
    run: Run, clock: Clock, error: BaseException, raised: type[BaseException], keep: bool
) -> None:
    launcher = FakeLauncher(trains(), clock, survives=True)
    raises(launcher, error)
    with pytest.raises(raised):
        run(launcher)
    assert launcher.closed == [keep]
    launcher.on_poll = lambda: None
    assert [row.state for row in run(launcher).rows] == [State.COMPLETED] * 3


@some("survives", [True, False], 2)
def test_driver_leaves_its_study_to_a_wider_command(
    run: Run, clock: Clock, capsys: pytest.CaptureFixture[str], tmp_path: Path, survives: bool
) -> None:
    locks: list[Lock] = []

    def ask() -> None:
        if launcher.polls == 3:
            locks.append(Lock(tmp_path / "multirun/s/takeover.lock"))

    launcher = FakeLauncher(trains(9), clock, survives=survives)
    launcher.on_poll = ask
    run(launcher, f"hydra.sweeper.notify=[touch,{tmp_path}/mail]")
    assert launcher.closed[0] == survives
    assert capsys.readouterr().out.splitlines()[-1] == "the next driver continues"
    assert not (tmp_path / "mail").exists()
    locks[0].release()
    launcher.on_poll = lambda: None
    assert [row.state for row in run(launcher).rows] == [State.COMPLETED] * 3


@pytest.mark.parametrize(
    ("number", "survives", "keep"),
    [
        (signal.SIGINT, True, False),
        (signal.SIGTERM, True, True),
        (signal.SIGHUP, True, True),
        (signal.SIGTERM, False, False),
    ],
)
def test_signal_ends_the_driver_with_130_and_the_resume_command(
    run: Run,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
    drivers: list[Driver],
    number: signal.Signals,
    survives: bool,
    keep: bool,
) -> None:
    launcher = FakeLauncher(trains(9), clock, survives=survives)
    launcher.on_poll = lambda: launcher.polls == 3 and os.kill(os.getpid(), number)
    run(launcher)
    assert drivers[-1].exit_code is ExitCode.INTERRUPTED
    assert launcher.closed[0] == keep
    out = capsys.readouterr().out
    assert number.name in out
    assert "hydra.sweeper.study_name=s" in out.splitlines()[-1]


@pytest.mark.parametrize("begins", [True, False])
def test_a_second_ctrl_c_ends_the_jobs_too(
    run: Run, clock: Clock, capsys: pytest.CaptureFixture[str], begins: bool
) -> None:
    def deaf(job: Job) -> Acts:
        if begins:
            begin(job)
        while True:
            yield

    launcher = FakeLauncher(deaf, clock, survives=True)
    launcher.on_poll = lambda: launcher.polls in (3, 5) and os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(SystemExit, match="130"):
        run(launcher)
    assert launcher.closed == [False]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("running trials were killed. Resume with: " if begins else "interrupted. Resume with: ")
    assert "hydra.sweeper.study_name=s" in last


def test_no_kill_is_reported_without_running_trials(run: Run, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    launcher = FakeLauncher(trains(), clock)

    def interrupted() -> None:
        raise KeyboardInterrupt

    launcher.open = interrupted  # type: ignore[method-assign]
    with pytest.raises(SystemExit, match="130"):
        run(launcher)
    out = capsys.readouterr().out
    assert "were killed" not in out and out.startswith("interrupted. Resume with: ")


def test_a_study_that_is_being_run_is_left_alone(run: Run, clock: Clock, tmp_path: Path) -> None:
    run(FakeLauncher(trains(), clock))
    lock = Lock(tmp_path / "multirun" / "s" / "driver.lock")
    launcher = FakeLauncher(trains(), clock)
    with pytest.raises(UserError, match=f"is being run by process {os.getpid()} on "):
        run(launcher)
    lock.release()
    assert launcher.closed == []
    run(launcher)


def test_two_drivers_without_locks(run: Run, clock: Clock, tmp_path: Path) -> None:
    launcher = FakeLauncher(trains(9), clock, survives=True)
    lock = tmp_path / "multirun" / "s" / "driver.lock"
    other = '{"host": "elsewhere", "pid": 1, "since": 1.0}'
    launcher.on_poll = lambda: launcher.polls == 3 and lock.write_text(other)
    with pytest.raises(UserError, match="study s is left to process 1 on elsewhere"):
        run(launcher)
    assert launcher.closed == [True]
    assert lock.read_text() == other
    for number in (0, 1):
        assert not (tmp_path / "multirun" / "s" / str(number) / "attempts" / "1" / "stop").exists()


def test_search_names_its_missing_settings_before_any_trial(run: Run, clock: Clock, tmp_path: Path) -> None:
    launcher = FakeLauncher(trains(), clock)
    with pytest.raises(UserError, match="a search needs an objective, and returns_nothing"):
        run(launcher, "hydra.sweeper.n_trials=5", sweep="x=interval(0,1)", function=returns_nothing, sweeper="optuna")
    assert launcher.submitted == []
    assert not (tmp_path / "multirun").exists()


@some("setting", ["hydra.sweeper.storage", "hydra.sweeper.tracking_uri"], 2)
def test_password_from_the_environment_is_in_no_file(
    run: Run, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    launcher = FakeLauncher(trains(), clock)
    with pytest.raises(UserError, match="Put the whole address") as caught:
        run(launcher, f"{setting}='postgresql://me:sesame@host/db'")
    assert "sesame" not in str(caught.value)
    assert (launcher.submitted, (tmp_path / "multirun").exists()) == ([], False)
    monkeypatch.setenv("DB", f"sqlite:///{tmp_path}/sesame.db")
    assert len(run(launcher, f"{setting}=${{oc.env:DB}}").rows) == 3
    written = [file.read_bytes() for file in (tmp_path / "multirun").rglob("*") if file.is_file()]
    assert not any(b"sesame" in content for content in written)
    assert any(b"oc.env:DB" in content for content in written)


@dataclass
class Limited:
    """A configuration that cannot run on this machine where its x is above `most`."""

    x: int = 1
    y: int = 1
    most: ClassVar[int] = 2
    checks: ClassVar[int] = 0

    def __post_init__(self) -> None:
        Limited.checks += 1
        if self.x > Limited.most:
            raise TooLarge(f"x={self.x} is too large here")

    def check_here(self) -> None: ...


class TooLarge(ValueError):
    infeasible = True


@pytest.fixture
def limited(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ConfigStore.instance().store("limited", Limited)
    (tmp_path / "conf" / "config.yaml").write_text("defaults: [limited, _self_]\n")
    monkeypatch.setattr(Limited, "most", 2)


SEARCH = ("hydra/sweeper/sampler=random", "hydra.sweeper.sampler.seed=1", "hydra.sweeper.n_trials=6")


def states(summary: StudySnapshot) -> list[str]:
    return [str(row.state) for row in sorted(summary.rows, key=lambda row: row.number)]


@pytest.mark.parametrize(
    ("words", "sweeper", "message"),
    [
        ((), "grid", "2 trials, all composed and checked; none was started\n2 more points are infeasible"),
        (("hydra.sweeper.n_trials=3",), "grid", "2 trials, all composed and checked; none was started\n1 more"),
        (SEARCH, "optuna", "4 trials, all composed and checked; none was started\n2 corners of the search"),
    ],
)
def test_a_preview_counts_what_cannot_run_here(
    run: Run,
    limited: None,
    clock: Clock,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    sweeper: str,
    message: str,
) -> None:
    run(FakeLauncher(trains(), clock), *words, "hydra.sweeper.preview=true", sweep="x=1,2,3,4", sweeper=sweeper)
    out = capsys.readouterr().out
    assert message in out
    assert "and would not be started. The first: x=3 is too large here\n" in out
    assert not (tmp_path / "multirun").exists()


@pytest.mark.parametrize(
    ("count", "race"),
    [
        (1, "the best configuration runs with seed=1 to 3\n"),
        (2, "the best 2 configurations run with seed=1 to 5, until a test separates them\n"),
    ],
)
def test_a_preview_announces_the_race(
    run: Run, clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, race: str
) -> None:
    (tmp_path / "conf" / "config.yaml").write_text("x: 1\nseed: 0\n")
    words = (f"hydra.sweeper.final_race={count}", "hydra.sweeper.preview=true")
    run(FakeLauncher(trains(), clock), *words, sweep="x=1,2")
    assert f"after all other trials {race}" in capsys.readouterr().out


def test_a_preview_lists_the_first_points_of_a_grid(run: Run, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("hydra.sweeper.exclude=['x=1','x>99']", "hydra.sweeper.preview=true")
    run(FakeLauncher(trains(), clock), *words, sweep="x=range(15)")
    out = capsys.readouterr().out
    assert "hydra.sweeper.exclude: 'x>99' holds for no point of the search space\n" in out
    assert "'x=1' holds" not in out
    assert "  x=0\n  x=2\n" in out
    assert "  x=10\n  and 4 further points\n" in out


def test_grid_reports_that_samplers_are_unused(run: Run, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    run(FakeLauncher(trains(), clock), "hydra.sweeper.n_trials=9", sweep="x=1,2,3")
    message = (
        "the grid has 3 points: each is tried once, not hydra.sweeper.n_trials=9; to search, add hydra/sweeper=optuna"
    )
    assert message in capsys.readouterr().out
    run(FakeLauncher(trains(), clock), "hydra.sweeper.n_trials=2", "hydra.sweeper.study_name=t", sweep="x=1,2,3")
    assert "n_trials" not in capsys.readouterr().out


@pytest.mark.long
def test_infeasible_trials_are_retried_on_request(
    run: Run, limited: None, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = FakeLauncher(trains(), clock)
    assert states(run(launcher, sweep="x=1,2,3,4")) == ["completed"] * 2 + ["infeasible"] * 2
    out = capsys.readouterr().out
    assert "2 of 4 trials are infeasible, and were not started\n" in out
    assert "Once they can run: sweepyard resume s --retry infeasible\n" in out
    extended = run(launcher, "hydra.sweeper.extend=true", sweep="x=1,2,3,4,5")
    assert states(extended) == ["completed"] * 2 + ["infeasible"] * 3

    def resume(*words: str) -> None:
        monkeypatch.setattr("sys.argv", ["sweeps", "resume", "s", *words])
        monkeypatch.setattr("os.execvp", lambda *_: None)
        commands.app(standalone_mode=False)

    with pytest.raises(UserError, match=r"(?s)--retry pruned: .*Choose among failed, .*, infeasible"):
        resume("--retry", "pruned")
    with pytest.raises(UserError, match=r"no such trials to retry. It has: 0 failed, .*, 3 infeasible"):
        resume("--retry", "failed")
    with pytest.raises(UserError, match=r"3 infeasible\nChoose among: --trials 2,3,4$"):
        resume("--trials", "0,3")
    Limited.most = 9
    assert states(run(launcher, sweep="x=1,2,3,4,5")) == states(extended)
    resume("--retry", "infeasible", "--trials", "3")
    with pytest.raises(UserError, match=r"was extended by .* has x=1,2,3,4,6"):
        run(launcher, sweep="x=1,2,3,4,6")
    assert states(run(launcher, sweep="x=1,2,3,4,5")) == states(extended)  # because a refused command records nothing
    resume("--retry", "infeasible", "--trials", "3")
    assert states(run(launcher, sweep="x=1,2,3,4,5")) == ["completed"] * 2 + ["infeasible", "completed", "infeasible"]
    resume("--retry", "infeasible")
    done = run(launcher, sweep="x=1,2,3,4,5")
    assert states(done) == ["completed"] * 5
    assert [row.params["x"] for row in sorted(done.rows, key=lambda row: row.number)] == [1, 2, 3, 4, 5]


def test_started_trial_resumes_though_infeasible_by_now(run: Run, limited: None, clock: Clock) -> None:
    launcher = FakeLauncher(trains(9), clock, slots=1)
    raises(launcher, KeyboardInterrupt(signal.SIGTERM))
    with pytest.raises(SystemExit):
        run(launcher, sweep="x=1,2")
    launcher.on_poll = lambda: None
    Limited.most = 0  # not even a corner is feasible
    assert states(run(launcher, sweep="x=1,2")) == ["completed", "infeasible"]


def test_search_without_feasible_points_fails_with_the_reason(
    run: Run, limited: None, clock: Clock, capsys: pytest.CaptureFixture[str], drivers: list[Driver]
) -> None:
    launcher, search = FakeLauncher(trains(), clock), {"sweep": "x=range(3,5)", "sweeper": "optuna"}
    with pytest.raises(UserError, match="x=3 is too large here"):
        run(launcher, *SEARCH, **search)
    search["sweep"] = "x=int(interval(1,1000000))"  # of which 1 and 2 could run
    summary = run(launcher, *SEARCH, **search)
    assert states(summary) == ["infeasible"] * 6
    assert drivers[-1].exit_code == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "no trial could run: 6 of 6 trials are infeasible, and were not started\n" in out
    assert out.count("is too large here") == 1


def test_a_folder_that_cannot_be_made(run: Run, clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "multirun").write_text("in the way")
    with pytest.raises(UserError, match=r"the study's folder .*multirun/s cannot be written: "):
        run(FakeLauncher(trains(), clock))


RETRY = "Correct the cause of the failed trials, then type: sweepyard resume s --retry failed"


def test_a_finished_study_that_is_typed_again(run: Run, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    launcher = FakeLauncher(by_trial(trains(), t1=ends(Outcome(State.FAILED, "KeyError: 'x'"))), clock)
    run(launcher)
    out = capsys.readouterr().out
    assert "\nstudy s: 3 trials: 2 completed, 1 failed\n" in out
    assert "nothing is left to do" not in out
    assert out.splitlines()[-1] == RETRY
    run(launcher)
    *_, what, more, retry = capsys.readouterr().out.splitlines()
    assert what == "nothing is left to do: every trial of study s had ended before."
    assert "hydra.sweeper.extend=true" in more
    assert retry == RETRY
    assert len(launcher.submitted) == 3


SBATCH = "sbatch: error: invalid partition specified: nowhere\nsbatch: error: Batch job submission failed"


@pytest.mark.parametrize(
    "outcome", [Outcome(State.REFUSED, SBATCH), Outcome(State.REFUSED, SBATCH, request_refused=True)]
)
def test_a_refusal_is_printed_once_and_counts_as_no_failure(
    run: Run, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    run(FakeLauncher(ends(outcome, begins=False), clock, slots=1), sweep="x=1,2,3,4")
    out = capsys.readouterr().out
    assert out.count("sbatch: error: invalid partition") == 1, out
    assert "sbatch: error: invalid partition specified: nowhere sbatch: error: Batch job" in out
    assert re.search(r"^trials? 0(, 1, 2)? refused: for the reason above$", out, re.M), out
    assert re.search(r"^study s is not finished: (trial 0 was|3 trials in a row were) refused\.$", out, re.M), out
    assert "--retry" not in out
    monkeypatch.setattr("sys.argv", ["sweeps", "list"])
    with pytest.raises(SystemExit):
        commands.main()
    listed = capsys.readouterr().out
    assert re.search(r"│ s +│ 0 of 4 +│$", listed, re.M) and "failed" not in listed


def test_error_of_several_lines_takes_one_line(run: Run, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    error = "ValueError: shapes differ\n\n  (3, 4)\n  (4, 3)" + "\nframe" * 500
    run(FakeLauncher(by_trial(trains(), t1=ends(Outcome(State.FAILED, error))), clock))
    lines = [line for line in capsys.readouterr().out.splitlines() if "shapes" in line or "frame" in line]
    assert len(lines) == 2  # when it ended, and at the end
    assert all("ValueError: shapes differ (3, 4) (4, 3) frame" in line and len(line) < 600 for line in lines)


def test_complete_study_waits_for_no_trial(
    run: Run, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[str]()
    monkeypatch.setattr(report, "write", lambda findings, trials: written.append(findings.study.done))
    run(FakeLauncher(trains(), clock, slots=1), "hydra.sweeper.objective=objective", "hydra.sweeper.target=1000")
    assert written[0].startswith("trial 0 reached target=1000")
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["sweeps", "status", "s"])
    with pytest.raises(SystemExit):
        commands.main()
    message = capsys.readouterr().out
    assert "done: trial 0 reached target=1000" in message
    assert "none can start" not in message and "Resume" not in message


def test_full_disk_shows_the_results_and_names_the_file(
    run: Run, clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = FakeLauncher(trains(), clock, slots=1)
    write = os.write
    journal = tmp_path / "multirun" / "s" / "journal.jsonl"

    def full(file: int, data: bytes) -> int:
        if not launcher.acting and (1, 1) in launcher.submitted and Path(f"/proc/self/fd/{file}").readlink() == journal:
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UserError) as caught:
        run(launcher)
    first, go_on = str(caught.value).splitlines()
    assert first == f"the study had to stop: [Errno 28] No space left on device: '{journal}'"
    assert go_on.startswith("What has ended is kept. Resume with: ")
    out = capsys.readouterr().out
    assert "study s: 3 trials: 2 queued, 1 completed" in out
    assert "│     0 │ 1 │ 100" in out.partition("study s: 3 trials: ")[2]


@some("error", [OSError(28, "No space left on device", "report.html"), ZeroDivisionError("a bug")], 2)
def test_unwritable_page_is_reported_last(
    run: Run, clock: Clock, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raise_(summary: StudySnapshot) -> None:
        raise error

    monkeypatch.setattr(report, "write", raise_)
    with pytest.raises(UserError, match=r"report\.html.*\nWhat has ended is kept"):
        run(FakeLauncher(trains(), clock))
    assert "study s: 3 trials: 3 completed" in capsys.readouterr().out


def test_study_name_with_signs_of_hydras_grammar(run: Run, clock: Clock, tmp_path: Path) -> None:
    run(FakeLauncher(trains(), clock), "hydra.sweeper.study_name='a \"b\" <c> \\'é'")
    assert (tmp_path / "multirun" / 'a "b" <c> \'é' / "study.json").exists()


@pytest.mark.parametrize(
    ("words", "sweep", "message"),
    [
        (("hydra/sweeper/sampler=cmaes",), "x=a,b", "sampler=cmaes models numbers only: it samples x at random\n"),
        (("hydra/sweeper/sampler=cmaes",), "x=1,2,3", ""),
        (
            ("hydra.sweeper.target=97", "hydra.sweeper.objective=val_accuracy", "hydra.sweeper.direction=maximize"),
            "x=1,2,3",
            "hydra.sweeper.target=97 is out of reach if val_accuracy is a fraction of 1: use 0.97\n",
        ),
    ],
)
def test_likely_mistakes_are_printed_first(
    run: Run, clock: Clock, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sweep: str, message: str
) -> None:
    preview = ("hydra.sweeper.n_trials=2", "hydra.sweeper.preview=true")
    run(FakeLauncher(trains(), clock), *preview, *words, sweep=sweep, sweeper="optuna")
    out = capsys.readouterr().out
    assert message in out
    assert bool(message) == ("at random" in out or "out of reach" in out)
    assert "\nTrials at a time: " in out


def test_each_point_of_a_grid_is_checked_once(run: Run, limited: None, clock: Clock) -> None:
    before = Limited.checks
    assert states(run(FakeLauncher(trains(), clock), sweep="x=1,2,3")) == ["completed"] * 2 + ["infeasible"]
    assert Limited.checks == before + 3


@pytest.fixture
def groups(tmp_path: Path, run: Run) -> None:
    """Make an app with a group o of adam, nadam and sgd, and the keys x and y."""
    (tmp_path / "conf" / "config.yaml").write_text("defaults: [o: adam, _self_]\nx: 1\ny: 1\n")
    (tmp_path / "conf" / "o").mkdir()
    for name in ("adam", "nadam", "sgd"):
        (tmp_path / "conf" / "o" / f"{name}.yaml").write_text(f"{name}_rate: 1\n")


@some(
    ("condition", "message"),
    [
        ("o=adm", "o=adm: o is never adm, which y would need\nDid you mean o=adam?"),
        ("o=adam,sdg", "o=adam,sdg: o is never sdg, which y would need\nDid you mean o=sgd?"),
        ("oo=adam", "oo=adam: oo is not in the configuration, and is not swept\nDid you mean o=adam?"),
        ("+x=2", "+x=2: +x is not in the configuration, and is not swept\nDid you mean x=2?"),
        ("x=3", "x=3: x is never 3, which y would need\nChoose one of: 1, 2"),
        ("seed=1", "seed=1: seed is not in the configuration, and is not swept\nUse a key of --help all"),
        ("z=9", "z=9: z is never 9, which y would need\nChoose one of: 0"),
        ("o=nadam", ""),
        ("x=2", ""),
        ("z=0", ""),
    ],
    4,
)
def test_a_condition_that_never_holds_is_refused(
    run: Run, groups: None, clock: Clock, tmp_path: Path, condition: str, message: str
) -> None:
    (tmp_path / "conf" / "config.yaml").open("a").write("z: 0\n")
    under = condition.replace("=", r"\=").replace(",", r"\,")
    words = ["+hydra.sweeper.params={x: '1,2'}", f"+hydra.sweeper.conditional_params={{{under}: {{y: '5,6'}}}}"]
    if not message:
        assert {row.params.get("y", 1) for row in run(FakeLauncher(trains(), clock), *words, sweep="o=adam,sgd").rows}
        return
    with pytest.raises(UserError) as caught:
        run(FakeLauncher(trains(), clock), *words, sweep="o=adam,sgd")
    assert str(caught.value) == f"hydra.sweeper.conditional_params has {message}"
    assert not (tmp_path / "multirun").exists()


@dataclass
class Counted:
    """Of a and b the app wants whole numbers, of b also as 5.0; of c any."""

    a: int = 1
    b: Any = 1
    c: Any = 1

    def __post_init__(self) -> None:
        if self.b != int(self.b):
            raise ValueError(f"b={self.b}: it must be a whole number")

    def check_here(self) -> None: ...


@some(
    ("typed", "advice"),
    [
        ("a=interval(5,30)", "a=int(interval(5,30))"),
        ("a=interval(0.5,0.7)", ""),
        ("a=interval(0.5,3.5)", "a=int(interval(1,3))"),
        ("a=tag(log,interval(0.5,1.5))", "a=tag(log,int(interval(1,2)))"),
        ("b=interval(5,30)", "b=int(interval(5,30))"),
        ("b=interval(-5,-3)", "b=int(interval(-5,-3))"),
        ("c=interval(5,30)", None),
    ],
    6,
)
def test_fractions_of_a_whole_number_are_refused_at_once(
    run: Run, clock: Clock, tmp_path: Path, typed: str, advice: str | None
) -> None:
    ConfigStore.instance().store("counted", Counted)
    (tmp_path / "conf" / "config.yaml").write_text("defaults: [counted, _self_]\n")
    launcher = FakeLauncher(trains(), clock)
    if advice is not None:
        with pytest.raises(UserError) as caught:
            run(launcher, *SEARCH, sweep=typed, sweeper="optuna")
        message = f"{typed} has fractions, and {typed[0]} is a whole number\nType: '{advice}'"
        assert str(caught.value) == message or not advice
        assert launcher.submitted == [] and not (tmp_path / "multirun").exists()
    if advice != "":
        assert set(states(run(launcher, *SEARCH, sweep=advice or typed, sweeper="optuna"))) == {"completed"}


REFUSED = [
    (["hydra.sweeper.storage=nonsense"], "hydra.sweeper.storage cannot be used"),
    (["hydra.sweeper.tracking=true", "hydra.sweeper.tracking_uri=http://127.0.0.1:9"], "cannot be used: .* refused"),
]


@some(("words", "message"), REFUSED, 2)
def test_a_study_that_was_refused_before_its_first_trial_leaves_no_folder(
    run: Run, clock: Clock, tmp_path: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    launcher = FakeLauncher(trains(), clock)
    with pytest.raises(UserError, match=message):
        run(launcher, *words)
    assert launcher.closed == [True] and not (tmp_path / "multirun").exists()
    (tmp_path / "multirun" / "s").mkdir(parents=True)
    (tmp_path / "multirun" / "s" / "mine").touch()
    with pytest.raises(UserError, match=message):
        run(launcher, *words, sweep="x=4,5")
    assert {file.name for file in (tmp_path / "multirun" / "s").iterdir()} <= {"mine", "driver.lock", "multirun.yaml"}
    assert states(run(launcher)) == ["completed"] * 3


def test_refused_command_leaves_a_started_study_unchanged(run: Run, clock: Clock, tmp_path: Path) -> None:
    launcher = FakeLauncher(trains(), clock)
    run(launcher)
    with pytest.raises(UserError, match="storage cannot be used"):
        run(launcher, *REFUSED[0][0])
    assert holder(tmp_path / "multirun" / "s" / "driver.lock") is None
    assert states(run(launcher)) == ["completed"] * 3
    assert len(launcher.submitted) == 3


def later(cfg: Any, trial: Any) -> None:
    """Raise an error in the middle of a study, as a search space in code may."""
    if trial.number == 2:
        raise SystemExit("boom later")
    trial.suggest_float("x", 0, 1)


def test_a_space_in_code_that_fails_later_stops_the_study_in_words(
    run: Run, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    custom = ["hydra.sweeper.n_trials=5", f"hydra.sweeper.custom_search_space={__name__}.later"]
    launcher = FakeLauncher(trains(), clock, slots=1)
    study = run(launcher, *custom, sweep="+y=1,2", sweeper="optuna")
    assert states(study) == ["completed"] * 2
    out = capsys.readouterr().out
    name = f"hydra.sweeper.custom_search_space={__name__}.later"
    assert f"study s is not finished: {name}: it raised SystemExit: boom later" in out
    assert f"\nCorrect {__name__}.later(cfg, trial)" in out
    assert "Resume with: " in out


class ItsJob:
    """The job of a driver, with a next job that waits for the end of this one."""

    is_here, goes_on = True, True

    def __init__(self) -> None:
        self.ended = 0

    def newer(self) -> str:
        return ""

    def renew(self) -> None: ...

    def end(self) -> None:
        self.ended += 1


@some(
    ("happening", "mails"),
    [
        ("nothing", ["study s is finished"]),
        ("a warning", []),
        ("a warning while results are written", []),
        ("a stop", ["study s is not finished: it was stopped by sweepyard stop."]),
        ("a bug", []),
    ],
    3,
)
def test_driver_in_a_job_ends_the_chain_or_leaves_the_study_to_the_next(
    run: Run, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happening: str, mails: list[str]
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt(signal.SIGTERM)

    launcher, job = FakeLauncher(trains(), clock, survives=True), ItsJob()
    launcher.driver_job = lambda study: job  # type: ignore[attr-defined]
    if happening == "a warning":
        launcher.on_poll = lambda: os.kill(os.getpid(), signal.SIGTERM) if launcher.polls == 3 else None
    elif happening == "a stop":
        launcher.on_poll = lambda: (tmp_path / "multirun/s/stop").touch() if launcher.polls == 3 else None
    elif happening == "a bug":
        raises(launcher, ZeroDivisionError("a bug"))
    elif happening != "nothing":
        monkeypatch.setattr(report, "write", interrupt)
    notify = f"hydra.sweeper.notify=[sh,-c,'echo \"$0\" >> {tmp_path}/mails','{{subject}}']"
    with suppress(SystemExit, ZeroDivisionError):
        run(launcher, notify)
    assert job.ended == len(mails)
    assert ((tmp_path / "mails").read_text().splitlines() if (tmp_path / "mails").exists() else []) == mails
