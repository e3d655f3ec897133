"""The exit code of a sweep, as docs/reference/exit_codes.md lists it."""

import re

import pytest

from sweeps.base.errors import ExitCode, UserError
from sweeps.study.run.driver import Driver
from sweeps.trial.job import Outcome, State
from tests.command_lines import ROOT, some
from tests.study.fake_launcher import Clock, FakeLauncher, Script, by_trial, ends, trains
from tests.study.test_driver import Run, drivers, raises, run  # noqa: F401

FAILS = ends(Outcome(State.FAILED, "it fails"))
CANCELLED = ends(Outcome(State.CANCELLED, "scancel"))


@some(
    ("end_of_trial_1", "overrides", "code"),
    [
        (trains(), (), ExitCode.FINISHED),
        (trains(), ("hydra.sweeper.target=1000",), ExitCode.FINISHED),
        (FAILS, (), ExitCode.FAILED),
        (FAILS, ("hydra.sweeper.max_failure_rate=0.5",), ExitCode.FINISHED),
        (CANCELLED, (), ExitCode.NOT_FINISHED),
        (trains(), ("hydra.sweeper.max_hours=1e-9",), ExitCode.NOT_FINISHED),
    ],
    4,
)
def test_exit_code_of_a_sweep(
    run: Run,  # noqa: F811
    drivers: list[Driver],  # noqa: F811
    clock: Clock,
    end_of_trial_1: Script,
    overrides: tuple[str, ...],
    code: ExitCode,
) -> None:
    run(FakeLauncher(by_trial(trains(), t1=end_of_trial_1), clock), *overrides)
    assert drivers[-1].exit_code is code


@pytest.mark.parametrize(("slots", "code"), [(3, ExitCode.FINISHED), (2, ExitCode.NOT_FINISHED)])
def test_exit_code_of_a_detached_sweep(
    run: Run,  # noqa: F811
    drivers: list[Driver],  # noqa: F811
    clock: Clock,
    slots: int,
    code: ExitCode,
) -> None:
    launcher = FakeLauncher(trains(), clock, slots=slots, survives=True)
    launcher.detach = True
    run(launcher)
    assert drivers[-1].exit_code is code


def test_refusal_of_a_detached_submission_is_not_finished(
    run: Run,  # noqa: F811
    drivers: list[Driver],  # noqa: F811
    clock: Clock,
) -> None:
    launcher = FakeLauncher(by_trial(trains(), t1=ends(Outcome(State.REFUSED, "invalid partition"))), clock)
    launcher.detach = True
    run(launcher)
    assert drivers[-1].exit_code is ExitCode.NOT_FINISHED


def test_error_after_the_start_leaves_a_study_that_has_begun(
    run: Run,  # noqa: F811
    drivers: list[Driver],  # noqa: F811
    clock: Clock,
) -> None:
    launcher = FakeLauncher(trains(9), clock)
    raises(launcher, OSError(28, "No space left on device"))
    with pytest.raises(UserError):
        run(launcher)
    assert drivers[-1].has_begun


def test_documentation_lists_every_exit_code() -> None:
    table = (ROOT / "docs" / "reference" / "exit_codes.md").read_text()
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)] == [*ExitCode]
