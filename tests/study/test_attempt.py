"""Whether a trial goes on after an attempt that was lost or timed out, and what is said when it does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.record.study import TrialRecord
from sweeps.study.run.attempt import give_up_reason, may_be_reopened, may_resume
from sweeps.trial.job import Outcome, State

LOST = Outcome(State.LOST, "its node failed", started_at=1.0, ended_at=601.0)
TIMED_OUT = Outcome(State.TIMED_OUT, "it reached its time limit", started_at=1.0, ended_at=601.0, timeout_min=10)
ADVANCED = replace(TIMED_OUT, advanced=True)
CANCELLED = Outcome(State.CANCELLED, "it ended with its driver")
FAILED = Outcome(State.FAILED, "RuntimeError: too large")


@pytest.mark.parametrize(
    ("ends", "max_attempts", "max_timeouts", "expected"),
    [
        ([LOST], 3, None, True),
        ([LOST, LOST], 3, None, True),
        ([LOST, LOST, LOST], 3, None, False),
        ([LOST], 1, None, False),
        ([LOST, TIMED_OUT], 3, None, True),
        ([LOST, TIMED_OUT, LOST], 3, None, False),
        ([CANCELLED, CANCELLED, CANCELLED, LOST], 3, None, True),  # whoever stopped the study lost nothing
        # A time limit is no loss as long as attempts advance.
        ([ADVANCED] * 50, 3, None, True),
        ([ADVANCED] * 50, 1, None, True),
        ([ADVANCED] * 9 + [TIMED_OUT], 3, None, True),
        ([ADVANCED, TIMED_OUT, ADVANCED, TIMED_OUT, ADVANCED, TIMED_OUT], 3, None, False),
        ([ADVANCED, LOST, ADVANCED, LOST, ADVANCED], 3, None, True),
        ([ADVANCED, LOST, ADVANCED, LOST, ADVANCED, LOST], 3, None, False),
        # Or somebody said how many there may be.
        ([TIMED_OUT], 3, 0, False),
        ([ADVANCED], 3, 0, False),
        ([TIMED_OUT], 3, 1, True),
        ([TIMED_OUT] * 5, 3, 5, True),
        ([TIMED_OUT] * 6, 3, 5, False),
        ([ADVANCED] * 6, 3, 5, False),
        ([TIMED_OUT, LOST, LOST, LOST], 3, 5, False),
    ],
)
def test_number_of_automatic_retries(
    ends: list[Outcome], max_attempts: int, max_timeouts: int | None, expected: bool
) -> None:
    assert may_resume(ends, max_attempts, max_timeouts) is expected


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ([LOST], "its node failed; given up after 1 attempt. Raise hydra.sweeper.max_attempts"),
        ([LOST, CANCELLED, LOST], "its node failed; given up after 2 attempts. Raise hydra.sweeper.max"),
        ([TIMED_OUT] * 3, "it reached its time limit; given up after 3 attempts. Raise hydra.launcher.timeout_min or"),
    ],
)
def test_abandoned_trial_has_the_reason(ends: list[Outcome], words: str) -> None:
    assert give_up_reason(ends).startswith(words)


@pytest.mark.parametrize(
    ("ends", "timeout_min", "max_attempts", "max_timeouts", "expected"),
    [
        ([LOST] * 3, 10, 3, None, False),
        ([LOST] * 3, 10, 4, None, True),
        ([LOST] * 3, 60, 3, None, False),  # time would not have helped
        ([TIMED_OUT] * 3, 10, 3, None, False),
        ([TIMED_OUT] * 3, 10.02, 3, None, True),
        ([TIMED_OUT] * 3, 9, 3, None, False),
        ([TIMED_OUT] * 3, None, 3, None, True),
        ([TIMED_OUT] * 3, 10, 4, None, True),
        ([TIMED_OUT] * 2, 10, 3, 1, False),
        ([TIMED_OUT] * 2, 10, 3, 2, True),
        ([FAILED], 60, 9, None, False),
        ([LOST, FAILED], 60, 9, None, False),
        ([], 60, 9, None, False),
    ],
)
def test_abandoned_configuration_resumes_when_more_is_allowed(
    ends: list[Outcome], timeout_min: float | None, max_attempts: int, max_timeouts: int | None, expected: bool
) -> None:
    state = ends[-1].state if ends else State.LOST
    row = TrialRecord(0, {}, state, Path("0"), ends)
    assert may_be_reopened(row, timeout_min, max_attempts, max_timeouts) is expected


def test_attempts_before_a_retry_no_longer_count() -> None:
    row = TrialRecord(0, {}, State.LOST, Path("0"), [LOST] * 4, forgiven=3)
    assert may_be_reopened(row, 10, 2, None)
    assert not may_be_reopened(row, 10, 1, None)
