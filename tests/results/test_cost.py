"""What trials would cost. What each asks for is a launcher's to say: test_local.py, slurm/test_request.py."""

from sweeps.results.terminal import cost
from sweeps.trial.job import Request


def test_the_cost_at_the_timeout() -> None:
    requests = [Request(2, timeout_min=30), Request(0, timeout_min=60)]
    assert cost(requests).startswith("At most 1.5 trial-hours and 1 GPU-hours")
    assert "has no limit" in cost([Request()])
