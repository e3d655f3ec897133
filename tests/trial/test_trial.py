"""A task function's use of its trial, and a trial of several processes."""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from sweeps.trial import Diverged, MissingObjective, RankLost, Trial, current_trial
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Objective, State, World
from tests.command_lines import some

NAMED = Objective(("val_accuracy",), named=True)


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    folder = TrialFolder(tmp_path / "0")
    folder.new_attempt()
    return folder


def lines(folder: TrialFolder) -> list[tuple[int, dict[str, float]]]:
    return [(line.step, line.metrics) for line in folder.read_metrics().values]


def test_reported_values_are_written_and_shown(folder: TrialFolder, capsys: pytest.CaptureFixture[str]) -> None:
    trial = Trial(folder, 1)
    trial.report({"loss": np.float32(0.5), "accuracy": 1}, step=0)
    trial.report({"loss": 0.25}, step=np.arange(2)[1])
    assert lines(folder) == [(0, {"loss": 0.5, "accuracy": 1.0}), (1, {"loss": 0.25})]
    assert capsys.readouterr().out == "step 0  loss=0.5  accuracy=1\nstep 1  loss=0.25\n"
    assert (trial.folder, trial.checkpoint_folder) == (folder.path, folder.path / "checkpoint")


@pytest.mark.parametrize(
    ("metrics", "objective", "error", "words"),
    [
        ({"loss": "low"}, Objective(), TypeError, "the metric 'loss' is a str ('low'); a metric is one number"),
        ({"loss": [0.5]}, Objective(), TypeError, "the metric 'loss' is a list ([0.5])"),
        ({"loss": {"a": 1}}, Objective(), TypeError, "the metric 'loss' is a dict"),
        ({"loss": None}, Objective(), TypeError, "the metric 'loss' is a NoneType"),
        ({"loss": np.zeros(3)}, Objective(), TypeError, "the metric 'loss' is a ndarray of shape (3,)"),
        ({"val_acc": 1}, NAMED, MissingObjective, "hydra.sweeper.objective=val_acc"),
        ({"loss": 1, "acc": 1}, NAMED, MissingObjective, "no 'val_accuracy', which is the objective"),
        ({}, NAMED, MissingObjective, "reported nothing"),
        ({"val_accuracy": float("nan")}, NAMED, Diverged, "val_accuracy is nan at step 7"),
        ({"objective": float("inf")}, Objective(), Diverged, "objective is inf at step 7"),
    ],
)
def test_invalid_reports_are_refused(
    folder: TrialFolder, metrics: Any, objective: Objective, error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        Trial(folder, 1, objective).report(metrics, step=7)
    assert words in str(caught.value)


def test_partial_metrics_may_lack_the_objective(folder: TrialFolder) -> None:
    trial = Trial(folder, 1, NAMED)
    trial.report({"loss": 1.0}, step=1, partial=True)
    with pytest.raises(Diverged):
        trial.report({"val_accuracy": float("nan")}, step=2, partial=True)
    assert [step for step, _ in lines(folder)] == [1, 2]


@pytest.mark.parametrize("step", ["a", 1.5, None])
def test_a_step_is_a_whole_number(folder: TrialFolder, step: Any) -> None:
    with pytest.raises(TypeError, match="a step is a whole number"):
        Trial(folder, 1).report({"loss": 1.0}, step)
    assert lines(folder) == []


@pytest.mark.parametrize("metrics", [{"loss": float("nan")}, {"loss": 1.0}, {}])
def test_an_objective_without_a_name_need_not_be_reported(folder: TrialFolder, metrics: Any) -> None:
    Trial(folder, 1).report(metrics, step=0)
    assert len(lines(folder)) == 1


def test_steps_of_an_earlier_attempt_are_recorded_once(folder: TrialFolder) -> None:
    Trial(folder, 1).report({"loss": 1.0}, 0)
    Trial(folder, 1).report({"loss": 0.5}, 1)
    second = Trial(folder, folder.new_attempt().number)
    for step in (1, 2, 2, 3):  # within an attempt, a step may be reported in parts
        second.report({"loss": 9.0}, step)
    assert [step for step, _ in lines(folder)] == [0, 1, 2, 2, 3]
    assert lines(folder)[1] == (1, {"loss": 0.5})


@pytest.mark.parametrize("reason", [State.PRUNED, State.CANCELLED])
def test_stop_is_received_once_and_for_all(folder: TrialFolder, reason: State) -> None:
    attempt, trial = folder.attempt(1), Trial(folder, 1)
    assert (trial.should_stop(), attempt.stop_reason()) == (False, None)
    attempt.request_stop(reason)
    assert (trial.should_stop(), attempt.stop_reason()) == (True, reason)
    (attempt.path / "stop").unlink()
    assert trial.should_stop()


def test_a_stop_concerns_its_attempt_alone(folder: TrialFolder) -> None:
    folder.attempt(1).request_stop(State.CANCELLED)
    assert not Trial(folder, folder.new_attempt().number).should_stop()


# Several trials in one process


@pytest.fixture
def of_hydra() -> Iterator[Callable[[Path], None]]:
    """Yield a function (folder) that sets the trial in the folder as Hydra's job."""
    before = HydraConfig.instance().cfg

    def be(folder: Path, objective: str | None = None) -> None:
        node = {"runtime": {"output_dir": str(folder)}, "sweeper": {"objective": objective}}
        HydraConfig.instance().cfg = OmegaConf.create({"hydra": node})  # type: ignore[assignment]

    yield be
    HydraConfig.instance().cfg = before


def test_two_trials_in_a_process_share_no_state(tmp_path: Path, of_hydra: Callable[..., None]) -> None:
    folders = [TrialFolder(tmp_path / str(number)) for number in range(2)]
    for folder in folders:
        folder.new_attempt()
    folders[0].attempt(1).request_stop(State.PRUNED)
    heard = []
    for step in range(2):
        for number, folder in enumerate(folders):
            of_hydra(folder.path)
            trial = current_trial()
            assert trial is current_trial()
            trial.report({"loss": number}, step)
            heard.append(trial.should_stop())
    assert heard == [True, False, True, False]
    assert [lines(folder) for folder in folders] == [
        [(step, {"loss": number}) for step in range(2)] for number in range(2)
    ]


def test_a_new_attempt_in_the_same_process_is_another_trial(tmp_path: Path, of_hydra: Callable[..., None]) -> None:
    folder = TrialFolder(tmp_path)
    folder.new_attempt().request_stop(State.CANCELLED)
    of_hydra(tmp_path)
    first = current_trial()
    assert first.should_stop()
    folder.new_attempt()
    assert current_trial() is not first
    assert not current_trial().should_stop()


def test_trial_knows_the_objective_of_its_study(tmp_path: Path, of_hydra: Callable[..., None]) -> None:
    of_hydra(tmp_path, "val_accuracy")
    with pytest.raises(MissingObjective):
        current_trial().report({"loss": 1.0}, 0)


# One trial of several processes (ranks)


def in_ranks(folder: TrialFolder, size: int, train: Callable[[Trial], int]) -> list[int]:
    """Return the exit codes, at most 255, of the `size` processes of one attempt."""
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            code = 255
            try:
                code = train(Trial(folder, 1, world=World(rank, size, rank)))
            finally:
                os._exit(code)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


@some("seed", range(4), 4)
def test_all_ranks_receive_a_stop_at_the_same_call(folder: TrialFolder, seed: int) -> None:
    chance = random.Random(seed)
    paces = [0.02, *(chance.uniform(0, 0.01) for _ in range(3))]  # the chief must not be through before rank 2 begins

    def train(trial: Trial) -> int:
        for step in range(200):
            time.sleep(paces[trial.world.rank])
            trial.report({"loss": trial.world.rank}, step)
            if trial.world.rank == 2 and step == 10:
                folder.attempt(1).request_stop(State.PRUNED)
            if trial.should_stop():
                return step
        return 254

    heard = in_ranks(folder, 4, train)
    assert len(set(heard)) == 1, heard
    assert 9 <= heard[0] < 200
    assert lines(folder) == [(step, {"loss": 0.0}) for step in range(heard[0] + 1)]  # from a single writer
    assert folder.attempt(1).stop_reason() is State.PRUNED


def test_ranks_without_a_stop_train_to_the_end(folder: TrialFolder) -> None:
    def train(trial: Trial) -> int:
        return sum(not trial.should_stop() for _ in range(20))

    assert in_ranks(folder, 3, train) == [20] * 3


def test_rank_that_asks_more_often_is_an_error(folder: TrialFolder) -> None:
    chief, other = (Trial(folder, 1, world=World(rank, 2, timeout_s=0.1)) for rank in range(2))
    chief.should_stop()
    assert not other.should_stop()
    with pytest.raises(RankLost, match=r"the chief did not make call 2 of should_stop\(\) within rank_timeout_s=0.1"):
        other.should_stop()


def test_a_chief_alone_leaves_no_answers(folder: TrialFolder) -> None:
    Trial(folder, 1).should_stop()
    assert not (folder.attempt(1).path / "heard").exists()
