"""The chooser that CONTRIBUTING.md shows runs a study, and is as short as that page says."""

import inspect
import re
from typing import Any

from sweeps.choose import Chooser
from sweeps.record.study import TrialRecord
from sweeps.trial.job import Point
from tests.command_lines import ROOT
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import Clock, FakeLauncher, Study, trains

PAGE = (ROOT / "CONTRIBUTING.md").read_text().partition("## How a study works")[2].partition("\n## ")[0]
STARTS: list[Point] = [{"x": 1, "o": "a"}, {"x": 2, "o": "b"}]


DOCSTRING = (inspect.getdoc(Chooser) or "").partition("::\n")[2]


def chooser_of(block: str, name: str) -> Chooser:
    """Return the chooser whose class is in a block of Python."""
    names: dict[str, Any] = {}
    exec(inspect.cleandoc(block), names)  # noqa: S102 - our own page
    chooser: Chooser = names[name]()
    return chooser


def drive(study: Study, launcher: FakeLauncher) -> list[TrialRecord]:
    """Return the trials after one driver, which asks the example last."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    study.more = [chooser_of(block, "Crossover")]
    return [*study.drive(launcher).summary.rows]


def test_the_example_crosses_the_two_best_trials(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study(
        "x=1,2,3", "o=a,b,c", n_trials=2, start=STARTS, sampler={"_target_": "optuna.samplers.TPESampler"}
    )
    launcher = FakeLauncher(trains(), clock)
    trials = drive(study, launcher)
    assert [trial.params for trial in trials] == [*STARTS, {"x": 2, "o": "a"}, {"x": 1, "o": "b"}]
    assert all(trial.result for trial in trials)
    begun = [*launcher.submitted]
    assert drive(study, launcher) == trials  # by the record alone, another driver has nothing to do
    assert launcher.submitted == begun


def test_the_example_of_the_protocol_tries_each_rate(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("lr=0.5,0.01")
    study.more = [chooser_of(DOCSTRING, "EachRate")]
    trials = study.drive(FakeLauncher(trains(), clock)).summary.rows
    assert [trial.params["lr"] for trial in trials] == [0.5, 0.01, 0.1, 0.001]


def test_the_page_is_short() -> None:
    assert PAGE.count("\n") <= 60
    example = PAGE.partition("class ")[2].partition("```")[0]
    assert example.count("\n") <= 12
