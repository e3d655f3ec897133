"""The files of a trial, cut off wherever a killed process may have left them."""

import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.trial import Trial
from sweeps.trial.folder import MetricsLine, Result, State, TrialFolder

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
    result = Result(State.COMPLETED, [0.5], {"loss": 0.5}, "", {"training": 1.0})
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


def test_what_is_read_while_it_is_written(tmp_path: Path) -> None:
    """One process appends and replaces, this one reads: every line whole and once, every result whole."""
    count = 3000
    code = (
        "import sys; from pathlib import Path; from sweeps.trial.folder import *\n"
        "folder = TrialFolder(Path(sys.argv[1]))\n"
        f"for step in range({count}):\n"
        "    folder.append_metrics(MetricsLine(step, 0.0, {'loss': step / 3, 'x' * (step % 500): 1.0}))\n"
        "    if step % 30 == 0: folder.write_result(Result(State.COMPLETED, [float(step)] * 500))\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parents[2])
    reader, read, offset, over = TrialFolder(tmp_path), [], 0, False
    while not over:
        over = writer.poll() is not None
        lines, offset = reader.read_metrics(offset)
        read += [line.step for line in lines]
        result = reader.read_result()
        assert result is None or (len(set(result.objective)) == 1 and len(result.objective) == 500)
    assert writer.returncode == 0
    assert read == list(range(count))
