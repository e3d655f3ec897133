"""The files of a trial, cut off wherever a killed process may have left them."""

from pathlib import Path

import pytest

from sweeps.trial import Trial
from sweeps.trial_folder import MetricsLine, Result, State, TrialFolder

LINES = [MetricsLine(step, 1.5 * step, {"loss": 1 / (step + 1)}) for step in range(3)]


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    folder = TrialFolder(tmp_path)
    for line in LINES:
        folder.append_metrics(line)
    return folder


def test_metrics_cut_off_at_every_byte(folder: TrialFolder) -> None:
    file = folder.path / "metrics.jsonl"
    whole = file.read_bytes()
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\n")
        lines, offset = folder.read_metrics()
        assert lines == LINES[:complete]
        assert folder.read_metrics(offset) == ([], offset)
        # An attempt that goes on from there reports every step once.
        trial = Trial(folder.path)
        for line in LINES:
            trial.report(line.metrics, line.step)
        assert [line.step for line in folder.read_metrics()[0]] == [0, 1, 2]


def test_a_result_is_there_whole_or_not_at_all(folder: TrialFolder) -> None:
    assert folder.read_result() is None
    result = Result(State.COMPLETED, [0.5], {"loss": 0.5}, "", {"running": 1.0})
    folder.write_result(result)
    assert folder.read_result() == result
    whole = (folder.path / "result.json").read_bytes()
    for cut in range(len(whole)):  # a process killed while it wrote leaves a file of another name
        (folder.path / ".result.json.123").write_bytes(whole[:cut])
        assert folder.read_result() == result


def test_a_new_attempt_starts_clean(folder: TrialFolder) -> None:
    folder.new_attempt()
    folder.request_stop(State.CANCELLED)
    folder.write_result(Result(State.CANCELLED))
    second = folder.new_attempt()
    assert second.name == "2"
    assert (folder.read_result(), folder.stop_requested()) == (None, None)
    assert (folder.path / "attempts" / "1" / "result.json").exists()


@pytest.mark.parametrize(
    "state, over, bad",
    [
        (State.QUEUED, False, False),
        (State.RUNNING, False, False),
        (State.CANCELLED, False, False),
        (State.COMPLETED, True, False),
        (State.PRUNED, True, False),
        (State.FAILED, True, True),
        (State.DIVERGED, True, True),
        (State.OUT_OF_MEMORY, True, True),
        (State.TIMED_OUT, True, True),
        (State.LOST, True, True),
    ],
)
def test_states(state: State, over: bool, bad: bool) -> None:
    assert (state.is_over, state.is_bad) == (over, bad)
