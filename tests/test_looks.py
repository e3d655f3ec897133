"""The rates at which the files of attempts are read."""

from types import SimpleNamespace

import pytest

from sweeps.base import looks


@pytest.mark.parametrize(
    ("running", "queued", "seconds_of_running", "seconds_of_queued"),
    [
        (4, 0, 0.04, 0.0),
        (64, 936, 0.64, 20.0),
        (1000, 9000, 4.0, 20.0),  # because the end of a running trial has to be noticed within 5 s
    ],
)
def test_rate_of_looks(
    monkeypatch: pytest.MonkeyPatch, running: int, queued: int, seconds_of_running: float, seconds_of_queued: float
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(looks, "time", SimpleNamespace(monotonic=lambda: clock.now))
    attempts, rates = range(running + queued), looks.Looks()

    def seen() -> tuple[int, int]:
        due = rates.due(attempts, lambda number: number < running)
        return sum(number < running for number in due), sum(number >= running for number in due)

    assert seen() == (running, queued)
    clock.now += seconds_of_running - 0.01
    assert seen()[0] == 0
    clock.now += 0.02
    assert seen()[0] == running
    clock.now = 100.0 + seconds_of_queued + 0.01
    assert seen()[1] == queued
