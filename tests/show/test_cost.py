"""Tests of the cost estimate of trials; test_local.py and slurm/test_request.py test the requested resources."""

from pathlib import Path

import pytest

from sweeps.analysis.costs import real_time_s
from sweeps.record.study import TrialRecord
from sweeps.show.terminal.lines import cost
from sweeps.trial.job import Outcome, Request, State


@pytest.mark.parametrize(
    ("ran", "seconds"), [([], 0), ([(1, 10), (5, 20)], 19), ([(1, 10), (2, 3), (3600, 3610)], 19), ([(9, 7)], 0)]
)
def test_real_time_has_no_pauses(ran: list[tuple[float, float]], seconds: float) -> None:
    attempts = tuple(Outcome(State.LOST, started_at=start, ended_at=end) for start, end in ran)
    assert real_time_s([TrialRecord(0, {}, State.LOST, Path(), attempts)]) == seconds


def test_cost_is_estimated_from_the_timeout() -> None:
    requests = [Request(2, timeout_min=30), Request(0, timeout_min=60)]
    assert cost(requests).startswith("At most 1.5 trial-hours and 1 GPU-hours")
    assert "has no limit" in cost([Request()])
