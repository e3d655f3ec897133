"""Choices that never return: a signal or `sweepyard stop` ends the study in its usual order, and it resumes."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sweeps.base.errors import UserError
from sweeps.base.signals import Interrupted, interruptible
from sweeps.choose import Next
from sweeps.choose.sampler.fed_study import FedStudy
from sweeps.hydra.settings import SweeperConf
from sweeps.record.study import StudySnapshot
from tests.choose.asked import Asked, space
from tests.command_lines import SEARCH, finish, rows, some, start, sweeps, theirs, wait_until
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import Clock, FakeLauncher, trains

CODE = """
import time
from pathlib import Path
import optuna

def hang_at(count, study):
    if len(study.trials) == count and not Path("corrected").exists():
        Path("hangs").touch()
        time.sleep(10**6)

class Hanging(optuna.samplers.RandomSampler):
    def infer_relative_search_space(self, study, trial):
        hang_at(3, study)
        return super().infer_relative_search_space(study, trial)

def space(cfg, trial):
    hang_at(3, trial.study)
    trial.suggest_int("+z", 1, 3)
"""
HANGING = ["hydra/sweeper/sampler=random", "hydra.sweeper.sampler._target_=theirs.Hanging"]
PRUNER = "optuna.pruners.MedianPruner"
OWN_SPACE = ["hydra.sweeper.custom_search_space=theirs.space"]


@some(
    ("words", "stop", "reason"),
    [
        (HANGING, signal.SIGTERM, "it was interrupted (SIGTERM)"),
        (HANGING, signal.SIGINT, "it was interrupted (SIGINT)"),
        (HANGING, "stop", "it was stopped by sweepyard stop"),
        (OWN_SPACE, signal.SIGINT, "it was interrupted (SIGINT)"),
    ],
    4,
)
def test_study_of_a_choice_that_hangs_is_stopped(
    tmp_path: Path, words: list[str], stop: signal.Signals | str, reason: str
) -> None:
    (tmp_path / "theirs.py").write_text(CODE)
    line = theirs(*SEARCH, *words, "+x=interval(0,1)", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2")
    line.append("+sleep=0.2")
    extra = {"PYTHONPATH": str(tmp_path)}
    driver = start(line, tmp_path, extra)
    wait_until((tmp_path / "hangs").exists)
    if isinstance(stop, signal.Signals):
        driver.send_signal(stop)
    else:
        assert "Resume: " in sweeps(tmp_path, "stop", "s").out
    stopped = finish(driver, tmp_path)  # though the choice would take days
    assert stopped.code == 130, stopped.said
    assert f"study s is not finished: {reason}" in stopped.out
    assert stopped.out.splitlines()[-1].startswith("Resume with: ")
    assert "Traceback" not in stopped.said
    study = stopped.study()
    before = [row.params for row in rows(study)]
    assert len(before) == 2 and not (study / "2").exists()
    (tmp_path / "corrected").touch()
    resumed = finish(start(line, tmp_path, extra), tmp_path)
    assert resumed.code == 0, resumed.said
    assert [row.params for row in rows(study)][:2] == before
    assert [row.state for row in rows(study)] == ["completed"] * 4


class Signalling:
    """A chooser that receives a signal, and then may hang."""

    def __init__(self, hangs: bool) -> None:
        self._hangs = hangs

    def next(self, study: StudySnapshot) -> Next:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60 if self._hangs else 0)
        return Next(waits=True)


@pytest.mark.parametrize("hangs", [False, True])
def test_running_trials_end_after_a_choice_was_interrupted(make_study: MakeStudy, clock: Clock, hangs: bool) -> None:
    kinds = {"sampler": {"_target_": "optuna.samplers.RandomSampler"}, "pruner": {"_target_": PRUNER}}
    study = make_study("x=interval(0,1)", n_trials=2, direction="minimize", **kinds)
    study.more = [Signalling(hangs)]
    done = study.drive(FakeLauncher(trains(9), clock, slots=3))
    assert done.states() == ["cancelled"] * 2
    assert done.loop.stop.reason == "it was interrupted (SIGINT)"
    study.more = []
    assert study.drive(FakeLauncher(trains(9), clock)).states() == ["completed"] * 2


def test_pruner_reads_all_trials_after_an_interrupted_choice(tmp_path: Path) -> None:
    kinds = {"sampler": {"_target_": "optuna.samplers.RandomSampler"}, "pruner": {"_target_": PRUNER}}
    search = Asked(tmp_path, SweeperConf(direction="minimize", n_trials=9, **kinds), space("x=interval(0,1)"))
    search.run(lambda point: 1.0, most=3)
    assert search.pruner
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(FedStudy, "_end", interrupt)
        search.ask()
    search.pruner.fed.follow(search.study)
    assert [trial.state.name for trial in search.pruner.fed.study.trials] == ["COMPLETE"] * 3


def interrupt(*_: object) -> None:
    raise Interrupted


def test_reason_before_the_code_is_not_lost() -> None:
    began = time.monotonic()
    with pytest.raises(Interrupted), interruptible(lambda: "there was a signal"):
        time.sleep(60)
    assert time.monotonic() - began < 30


def test_error_of_the_reason_interrupts_but_not_that_of_a_disk() -> None:
    errors = iter([OSError("the disk is away"), UserError("the study is left to another driver")])

    def fail() -> str:
        raise next(errors)

    with pytest.raises(Interrupted) as interrupted, interruptible(fail):
        time.sleep(60)
    with pytest.raises(UserError, match="left to another"):
        interrupted.value.words()


def test_code_that_swallows_one_interruption_is_interrupted_again() -> None:
    began = time.monotonic()
    with pytest.raises(Interrupted, match="there was a signal"), interruptible(lambda: "there was a signal"):
        for _ in range(3):
            with suppress(BaseException):
                time.sleep(60)
    assert time.monotonic() - began < 30


def test_signal_of_another_process_does_not_interrupt() -> None:
    with interruptible(str):
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGURG)
            time.sleep(0.01)


def test_code_that_ends_is_not_interrupted_later() -> None:
    handler = signal.getsignal(signal.SIGURG)
    for _ in range(200):
        with interruptible(lambda: "there was a signal"):
            pass
    time.sleep(0.5)
    assert signal.getsignal(signal.SIGURG) == handler
