"""Tests of the cost estimate of trials; test_local.py and slurm/test_request.py test the requested resources."""

from sweeps.show.terminal.lines import cost
from sweeps.trial.job import Request


def test_cost_is_estimated_from_the_timeout() -> None:
    requests = [Request(2, timeout_min=30), Request(0, timeout_min=60)]
    assert cost(requests).startswith("At most 1.5 trial-hours and 1 GPU-hours")
    assert "has no limit" in cost([Request()])
