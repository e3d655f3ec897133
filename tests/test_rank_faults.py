"""Trainings on two ranks that are killed, stopped, hung or broken, and resume to the same metrics."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.base.files import holder
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from tests import command_lines as lines
from tests.command_lines import SWEEP, end, processes, rows, steps, wait_until
from tests.warm import Running

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")

EPOCHS = 40
TWO = ["ranks=2", "model=cnn", "model.filters=[4]", "model.hidden=[8]", f"epochs={EPOCHS}", "dataset.subset=600"]
TWO += ["trainer.checkpoint_interval_s=0", "tracking=none", "model.dropout=0.2", "dataset.augment=light"]
CLOCKS = {"epoch_time", "images_per_second", "time_to_best", "time_to_stable"}


def start(folder: Path, name: str, *arguments: str) -> Running:
    return lines.start([SWEEP, "-m", *TWO, *arguments, f"hydra.sweeper.study_name={name}"], folder)


def trial(folder: Path, name: str) -> TrialFolder:
    return TrialFolder(folder / "multirun" / name / "0")


def pid_of(trial: TrialFolder, rank: int) -> int:
    """Return the process id of a rank of the newest attempt."""
    newest = trial.newest()
    assert newest is not None
    rank_holder = holder(newest.path / f"alive{rank or ''}")
    assert rank_holder
    return rank_holder.pid


def result(folder: Path, name: str) -> dict[str, float]:
    outcome = end(folder / "multirun" / name / "0")
    assert outcome.state is State.COMPLETED, outcome
    return {name: value for name, value in outcome.metrics.items() if name not in CLOCKS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("ranks")
    yield folder
    wait_until(lambda: not processes(folder))


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> dict[str, float]:
    done = lines.finish(start(folder, "whole"), folder, 120)
    assert done.code == 0, done.said
    return result(folder, "whole")


FAULTS = [
    (1, signal.SIGKILL, "rank 1: its process was killed from outside"),
    (0, signal.SIGKILL, "rank 0: its process was killed from outside"),
    (1, signal.SIGSTOP, "rank 0: "),
    (0, signal.SIGSTOP, "rank 1: "),
]
"""The rank of each attempt that gets a signal, the signal, and the first words of the attempt's error."""


@pytest.mark.long
def test_lost_rank_ends_the_attempt_and_the_trial_resumes(folder: Path, uninterrupted: dict[str, float]) -> None:
    driver = start(folder, "faults", "hydra.sweeper.max_attempts=5")
    own = trial(folder, "faults")
    for number, (rank, signal_number, _) in enumerate(FAULTS, start=1):
        attempt, before = own.attempt(number), len(steps(own.path))
        wait_until(lambda before=before: len(steps(own.path)) >= before + 3, timeout_s=180)  # type: ignore[misc]
        os.kill(pid_of(own, rank), signal_number)
        wait_until(lambda attempt=attempt: attempt.is_over, timeout_s=60)  # type: ignore[misc] # rank_timeout_s is 120
    done = lines.finish(driver, folder, 120)
    assert done.code == 0, done.said
    for number, (_, _, words) in enumerate(FAULTS, start=1):
        lost = end(own.path, number)
        assert lost.state is State.LOST, lost
        assert lost.error.startswith(words), lost
    assert len(own.attempts()) == len(FAULTS) + 1
    assert steps(own.path) == list(range(1, EPOCHS + 1))
    assert result(folder, "faults") == uninterrupted


@pytest.mark.long
def test_killed_driver_ends_the_ranks_and_the_study_resumes(folder: Path, uninterrupted: dict[str, float]) -> None:
    driver = start(folder, "driver")
    own = trial(folder, "driver")
    wait_until(lambda: len(steps(own.path)) >= EPOCHS // 2, timeout_s=180)
    pids = [pid_of(own, rank) for rank in (0, 1)]
    driver.kill()
    driver.communicate()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    done = lines.finish(start(folder, "driver"), folder, 120)
    assert done.code == 0, done.said
    assert result(folder, "driver") == uninterrupted


@pytest.mark.long
def test_hanging_rank_is_awaited_for_the_configured_time(folder: Path) -> None:
    hangs = ["model._target_=tests.trainers.hanging.cnn_that_hangs", "hydra.launcher.rank_timeout_s=3"]
    driver = start(folder, "hangs", *hangs, "hydra.sweeper.max_attempts=1")
    done = lines.finish(driver, folder)
    assert done.code == 1, done.said
    (row,) = rows(folder / "multirun" / "hangs")
    assert row.state is State.LOST
    assert re.match(r"rank \d: one of 2 ranks hangs: none took a step after step \d+ for longer than", row.error)


@pytest.mark.long
def test_error_of_one_rank_fails_the_trial(folder: Path) -> None:
    done = lines.finish(start(folder, "breaks", "model._target_=tests.trainers.hanging.cnn_that_breaks"), folder)
    assert done.code == 1, done.said
    (row,) = rows(folder / "multirun" / "breaks")
    assert (row.state, len(row.attempts)) == (State.FAILED, 1)
    assert "rank 1: " in row.error
    assert "this rank's data are broken" in row.error


@pytest.mark.long
def test_reports_within_epochs_equal_those_of_one_process(folder: Path) -> None:
    words = ["ranks=1,2", "model.hidden=[8]", "epochs=2", "dataset.subset=600", "tracking=none"]
    words += ["trainer.report_every_steps=5", "trainer.validate_every_steps=10", "hydra.sweeper.study_name=reports"]
    done = lines.run([SWEEP, "-m", *words], folder)
    assert done.code == 0, done.said
    alone, ranks = (TrialFolder(folder / "multirun" / "reports" / str(i)).read_metrics().values for i in range(2))
    assert [line.step for line in alone] == [
        5,
        10,
        15,
        16,
        21,
        26,
        31,
        32,
    ]  # 500 examples: 15 batches of 32, and one of 20
    assert [line.step for line in ranks] == [line.step for line in alone]
    for ours, theirs in zip(ranks, alone, strict=True):
        names = ours.metrics.keys() - CLOCKS
        assert names == theirs.metrics.keys() - CLOCKS
        assert ("val_loss" in names) == (ours.step in (10, 16, 26, 32))
        assert {name: ours.metrics[name] for name in names} == pytest.approx(
            {name: theirs.metrics[name] for name in names}, rel=1e-4
        )
