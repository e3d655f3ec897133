"""Tests of the cost of trials, from the outcomes of attempts."""

from pathlib import Path

import pytest

from sweeps.analysis import costs
from sweeps.record.study import TrialRecord
from sweeps.trial.job import Outcome, State

KILLED = Outcome(
    State.LOST,
    seconds={"queued": 10.0, "training": 20.0},
    queued_at=0.0,
    started_at=10.0,
    ended_at=30.0,
    gpus=2,
    energy_kwh=0.5,
)
NEVER_STARTED = Outcome(State.CANCELLED, seconds={"queued": 7.0}, queued_at=0.0, started_at=None, ended_at=7.0, gpus=2)
PHASES = {"queued": 1.0, "starting": 1.0, "training": 8.0, "idle_slot": 0.5}
WHOLE = Outcome(State.COMPLETED, seconds=PHASES, queued_at=30.0, started_at=31.0, ended_at=40.0, gpus=1)


@pytest.mark.parametrize(
    ("attempts", "seconds", "gpu_seconds", "energy_kwh"),
    [
        ([], {}, 0, None),
        ([NEVER_STARTED], {"queued": 7}, 0, None),
        ([KILLED], {"queued": 10, "training": 20}, 40, 0.5),
        ([WHOLE], {"queued": 1, "starting": 1, "training": 8, "idle_slot": 0.5}, 9, None),
        ([NEVER_STARTED, KILLED, WHOLE], {"queued": 18, "starting": 1, "training": 28, "idle_slot": 0.5}, 49, 0.5),
    ],
)
def test_trial_cost_is_the_sum_of_attempts(
    attempts: list[Outcome], seconds: dict[str, float], gpu_seconds: float, energy_kwh: float | None
) -> None:
    row = TrialRecord(0, {}, State.COMPLETED, Path("0"), attempts=tuple(attempts), tracking_s=0.25)
    cost = costs.of_trial(row)
    assert cost.pop("gpu_hours", 0) == pytest.approx(gpu_seconds / 3600)
    assert cost.pop("energy_kwh", None) == energy_kwh
    assert cost == {"seconds/tracking": 0.25, **{f"seconds/{phase}": value for phase, value in seconds.items()}}


def test_study_cost_is_summed_by_outcome() -> None:
    states = [State.COMPLETED, State.PRUNED, State.INFEASIBLE, State.DIVERGED, State.LOST, State.CANCELLED]
    rows = [TrialRecord(i, {}, state, Path(str(i)), attempts=(KILLED,)) for i, state in enumerate(states)]
    by_kind = costs.of_study(rows)
    assert {kind: cost["trials"] for kind, cost in by_kind.items()} == {
        "completed": 1,
        "pruned": 2,
        "failed": 2,
        "unfinished": 1,
        "all": 6,
    }
    assert by_kind["failed"]["gpu_hours"] == pytest.approx(80 / 3600)
    assert by_kind["all"]["energy_kwh"] == 3.0


def test_study_without_trials_has_no_cost() -> None:
    assert costs.of_study([]) == {}
    assert costs.tail_s([]) == 0.0


def test_idle_slot_time_at_the_end_is_measured() -> None:
    spans = [(0.0, 10.0), (0.0, 4.0), (4.0, 6.0), (6.0, 7.0)]  # two slots; a slot is idle from 7 to 10
    ends = [Outcome(State.COMPLETED, queued_at=0.0, started_at=started, ended_at=ended) for started, ended in spans]
    rows = [TrialRecord(i, {}, State.COMPLETED, Path(str(i)), attempts=(end,)) for i, end in enumerate(ends)]
    assert costs.tail_s(rows) == 3.0
