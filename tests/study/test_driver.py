"""A driver in this process, over a launcher of the tests: what it does when something happens that nobody expected."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext

from sweeps.errors import UserError
from sweeps.files import Lock, holder
from sweeps.results import report
from sweeps.results.summary import Summary
from sweeps.study.driver import Driver
from sweeps.trial.job import State
from tests.study.fake_launcher import Clock, FakeLauncher, ends, trains

Run = Callable[..., Summary]


def task(cfg: Any) -> float:
    return 1.0


def returns_nothing(cfg: Any) -> None:
    print(cfg)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """(launcher, overrides, sweep) -> the summary of the study s, whose folder is multirun/s."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("x: 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write", lambda summary: None)  # plotly takes its time
    always = ["hydra/launcher=local", "hydra.mode=MULTIRUN", "hydra.sweeper.study_name=s"]
    with initialize_config_dir(str(tmp_path / "conf"), job_name="app", version_base="1.3"):

        def run(
            launcher: FakeLauncher,
            *overrides: str,
            sweep: str = "x=1,2,3",
            function: Callable[..., Any] = task,
            sweeper: str = "grid",
        ) -> Summary:
            words = [*always, f"hydra/sweeper={sweeper}", "hydra.sweeper.tracking=false", *overrides]
            config = compose("config", words, return_hydra_config=True)
            context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())
            return Driver(config, context, function).run(launcher, [sweep])  # type: ignore[arg-type]

        yield run


def test_a_study_from_its_command_to_its_end(run: Run, clock: Clock, tmp_path: Path) -> None:
    launcher = FakeLauncher(trains(), clock)
    summary = run(launcher)
    assert [row.state for row in summary.rows] == [State.COMPLETED] * 3
    assert launcher.closed == [False]
    assert holder(tmp_path / "multirun" / "s" / "driver.lock") is None


def raises(launcher: FakeLauncher, error: BaseException, at: int = 3) -> None:
    """Let something happen in the driver's third look at its launcher."""

    def raise_(now: bool) -> None:
        if now:
            raise error

    launcher.on_poll = lambda: raise_(launcher.polls == at)


@pytest.mark.parametrize(
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
    ids=lambda value: repr(value)[:40],
)
def test_what_it_did_not_expect_never_ends_what_runs_elsewhere(
    run: Run, clock: Clock, error: BaseException, raised: type[BaseException], keep: bool
) -> None:
    launcher = FakeLauncher(trains(), clock, survives=True)
    raises(launcher, error)
    with pytest.raises(raised):
        run(launcher)
    assert launcher.closed == [keep]
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
def test_a_signal_ends_it_with_130_and_the_line_that_goes_on(
    run: Run, clock: Clock, capsys: pytest.CaptureFixture[str], number: signal.Signals, survives: bool, keep: bool
) -> None:
    launcher = FakeLauncher(trains(9), clock, survives=survives)
    launcher.on_poll = lambda: launcher.polls == 3 and os.kill(os.getpid(), number)
    with pytest.raises(SystemExit, match="130"):
        run(launcher)
    assert launcher.closed[0] == keep
    out = capsys.readouterr().out
    assert number.name in out
    assert "hydra.sweeper.study_name=s" in out.splitlines()[-1]


def test_a_second_ctrl_c_ends_the_jobs_too(run: Run, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    launcher = FakeLauncher(ends(), clock, survives=True)
    launcher.script = lambda job: (print("deaf") for _ in iter(int, 1))  # type: ignore[assignment, return-value]
    launcher.on_poll = lambda: launcher.polls in (3, 5) and os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(SystemExit, match="130"):
        run(launcher)
    assert launcher.closed == [False]
    assert "hydra.sweeper.study_name=s" in capsys.readouterr().out.splitlines()[-1]


def test_a_study_that_is_being_run_is_left_alone(run: Run, clock: Clock, tmp_path: Path) -> None:
    run(FakeLauncher(trains(), clock))
    lock = Lock(tmp_path / "multirun" / "s" / "driver.lock")
    launcher = FakeLauncher(trains(), clock)
    with pytest.raises(UserError, match=f"is being run by process {os.getpid()} on "):
        run(launcher)
    lock.release()
    assert launcher.closed == []
    run(launcher)


def test_two_drivers_that_no_lock_tells_apart(run: Run, clock: Clock, tmp_path: Path) -> None:
    """The later one goes on, and this one leaves its jobs to it."""
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


def test_a_search_says_what_it_needs_before_it_starts_a_trial(run: Run, clock: Clock, tmp_path: Path) -> None:
    launcher = FakeLauncher(trains(), clock)
    with pytest.raises(UserError, match="a search needs an objective, and returns_nothing"):
        run(launcher, "hydra.sweeper.n_trials=5", sweep="x=interval(0,1)", function=returns_nothing, sweeper="optuna")
    assert launcher.submitted == []
    assert not (tmp_path / "multirun").exists()


@pytest.mark.parametrize("setting", ["hydra.sweeper.storage", "hydra.sweeper.tracking_uri"])
def test_a_password_is_refused_and_from_the_environment_it_is_in_no_file(
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


def test_a_folder_that_cannot_be_made(run: Run, clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "multirun").write_text("in the way")
    with pytest.raises(UserError, match=r"the study's folder .*multirun/s cannot be written: "):
        run(FakeLauncher(trains(), clock))
