"""The clock of times in files, which nobody can set, and the check of times where they are read."""

import time

import pytest

from sweeps.trial import times


def test_clock_is_not_set_with_the_system_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = times.now()
    assert before == pytest.approx(time.time(), abs=60)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= times.now() - before < 60


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 2**37, 10**400, "9" * 400, "x", None, [], {}])
def test_values_that_are_no_times(value: object) -> None:
    assert not times.is_time(value)
    assert times.parse_time(value) == 0.0


def test_time_of_a_name_in_nanoseconds() -> None:
    assert times.parse_time("1700000000500000000", per_second=1e9) == pytest.approx(1700000000.5)
