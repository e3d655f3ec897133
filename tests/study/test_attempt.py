"""Whether a trial goes on after an attempt that was lost or timed out."""

import pytest

from sweeps.study.attempt import may_go_on
from sweeps.trial.folder import AttemptEnd, State

LOST, TIMED_OUT, CANCELLED = State.LOST, State.TIMED_OUT, State.CANCELLED


@pytest.mark.parametrize(
    ("states", "max_attempts", "max_num_timeout", "expected"),
    [
        ([LOST], 3, None, True),
        ([LOST, TIMED_OUT], 3, None, True),
        ([LOST, TIMED_OUT, LOST], 3, None, False),
        ([LOST], 1, None, False),
        ([CANCELLED, CANCELLED, CANCELLED, LOST], 3, None, True),  # whoever stopped the study lost nothing
        ([TIMED_OUT], 3, 0, False),
        ([TIMED_OUT], 3, 1, True),
        ([TIMED_OUT] * 5, 3, 5, True),
        ([TIMED_OUT] * 6, 3, 5, False),
        ([TIMED_OUT, LOST, LOST, LOST], 3, 5, False),
    ],
)
def test_how_often_a_trial_goes_on(
    states: list[State], max_attempts: int, max_num_timeout: int | None, expected: bool
) -> None:
    ends = [AttemptEnd(state, 0.0, 0.0, 1.0) for state in states]
    assert may_go_on(ends, max_attempts, max_num_timeout) is expected
