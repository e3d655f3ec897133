"""Why a driver ends before its study does: a function of what it observes."""

from signal import SIGINT, SIGTERM
from typing import Any

import pytest

from sweeps.base.files import Holder
from sweeps.study.run.interruption import Interruption, Signs, judge

OTHER = Holder("elsewhere", 7, 0.0)
CONFLICT = {"is_conflict": True}
LEFT = {"leaves_trials": True}


@pytest.mark.parametrize(
    ("signs", "reason", "kind"),
    [
        ({}, "", {}),
        ({"signal": SIGINT}, "it was interrupted (SIGINT)", {}),
        ({"signal": SIGTERM}, "it was interrupted (SIGTERM)", LEFT),
        ({"has_stop_file": True}, "it was stopped by sweepyard stop", {}),
        ({"wider_command": OTHER}, f"it is left to {OTHER}", {**LEFT, "has_successor": True}),
        ({"newer_job": "12"}, "left to its newer driver, SLURM job 12", CONFLICT),
        ({"lock_holder": OTHER}, f"left to {OTHER}, which runs it too: locks have no effect there", CONFLICT),
        ({"signal": SIGINT, "wider_command": OTHER, "has_stop_file": True}, "it was interrupted (SIGINT)", {}),
        ({"signal": SIGTERM, "newer_job": "12"}, "left to its newer driver, SLURM job 12", CONFLICT),
    ],
)
def test_reasons(signs: dict[str, Any], reason: str, kind: dict[str, bool]) -> None:
    assert judge(Signs(**signs)) == (Interruption(reason, **kind) if reason else None)
