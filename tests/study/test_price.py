"""The price of a study from measured durations."""

from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.hydra.settings import SweeperConf
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.study.plan import price
from sweeps.trial.job import Outcome, Request, State


def trial(number: int, gpus: int, hours: float, state: State = State.COMPLETED) -> TrialRecord:
    end = Outcome(state, started_at=1.0, ended_at=1.0 + 3600 * hours, gpus=gpus)
    return TrialRecord(number, {}, State.QUEUED, Path("s", str(number))).with_end(end)


@pytest.mark.parametrize(
    ("requests", "shown"),
    [
        ([Request(2)] * 8, "About 8 GPU-hours left, for 4 trials: measured in 3 completed trials of mine"),
        ([Request(0, cores=4)] * 5, "About 2 CPU core-hours left, for 1 trial: measured"),
        ([Request(1)], ""),  # because no trial had one GPU
    ],
)
def test_price_is_measured_by_the_number_of_gpus(
    monkeypatch: pytest.MonkeyPatch, requests: list[Request], shown: str
) -> None:
    rows = [trial(0, 2, 0.5), trial(1, 2, 1.5), trial(2, 0, 0.5), trial(3, 2, 9.0, State.FAILED)]
    study = StudySnapshot("mine", Path("s"), ("y",), ("minimize",), rows)
    monkeypatch.setattr(price, "_read", lambda folder: [study])
    assert price.measured_price(requests, SweeperConf(), Path("s")).startswith(shown)
    monkeypatch.setattr(price, "_read", lambda folder: [replace(study, rows=[])])
    assert price.measured_price(requests, SweeperConf(), Path("s")) == ""


def test_new_study_has_no_price(tmp_path: Path) -> None:
    assert price.measured_price([Request()], SweeperConf(), tmp_path / "none") == ""
