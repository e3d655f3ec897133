"""The files of a trial, cut at every place where a killed process may stop, or damaged."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeps.base.files import CorruptFile, holder
from sweeps.record.trial_config import config_folders, read_overrides, read_values
from sweeps.trial import Trial
from sweeps.trial.checkpoints import put_checkpoint
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Request, State
from sweeps.trial.machine.usage import Usage, measure
from sweeps.trial.metrics import SYSTEM_METRICS, MetricsLine
from sweeps.trial.metrics_reader import MetricsReader

LINES = [MetricsLine(step, 1.5 * step, {"loss": 1 / (step + 1)}) for step in range(3)]
END = Outcome(State.COMPLETED, objective=[0.5], metrics={"loss": 0.5}, seconds={"training": 1.0})


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    folder = TrialFolder(tmp_path)
    for line in LINES:
        folder.append_metrics(line)
    return folder


def test_pipes_in_place_of_files_do_not_hang(tmp_path: Path) -> None:
    attempt = TrialFolder(tmp_path).new_attempt()
    (tmp_path / ".hydra").mkdir()
    files = [attempt.path / name for name in ("started", "stop", "alive")]
    files += [tmp_path / ".hydra" / name for name in ("config.yaml", "overrides.yaml")]
    for file in files:
        os.mkfifo(file)
    assert attempt.began() == pytest.approx(time.time(), abs=60)
    assert attempt.stop_requested() is State.CANCELLED
    assert holder(attempt.path / "alive") is None
    assert (read_values(tmp_path), read_overrides(tmp_path), config_folders(tmp_path)) == ({}, [], [])


def test_metrics_cut_off_at_every_byte(folder: TrialFolder) -> None:
    file = folder.path / "metrics.jsonl"
    whole = file.read_bytes()
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\n")
        lines = folder.read_metrics()
        assert (lines.values, lines.damaged) == (LINES[:complete], 0)
        assert folder.read_metrics(lines.offset).values == []
        # An attempt that resumes at this line reports every step once.
        trial = Trial(folder, 1)
        for line in LINES:
            trial.report(line.metrics, line.step)
        assert [line.step for line in folder.read_metrics().values] == [0, 1, 2]
        assert folder.read_metrics().damaged == (whole[:cut][-1:] not in (b"\n", b""))


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        "{}",
        '{"step": "x", "time": 1, "metrics": {}}',
        '{"step": 1, "time": null, "metrics": {}}',
        '{"step": 1, "time": NaN, "metrics": {}}',
        '{"step": 1, "time": 1e300, "metrics": {}}',
        '{"step": 9223372036854775808, "time": 1, "metrics": {}}',
        '{"step": 1, "time": 1, "metrics": []}',
        '{"step": 1, "time": 1, "metrics": {"loss": "high"}}',
        '{"step": 1, "time": 1, "metr{"step": 1, "time": 1, "metrics": {}}',
    ],
)
def test_a_line_that_is_none_is_counted_and_passed_over(folder: TrialFolder, line: str) -> None:
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(f"{line}\n")
    folder.append_metrics(MetricsLine(3, 4.5, {"loss": 0.1}))
    lines = folder.read_metrics()
    assert ([line.step for line in lines.values], lines.damaged) == ([0, 1, 2, 3], 1)


def test_end_is_written_whole_or_not_at_all(folder: TrialFolder) -> None:
    attempt = folder.new_attempt(queued_at=1.0)
    assert (attempt.end(), attempt.is_over, folder.ends()) == (None, False, [])
    end = attempt.close(END)
    assert attempt.end() == end
    assert attempt.is_over
    whole = (attempt.path / "end.json").read_bytes()
    for cut in range(len(whole)):
        # A process that was killed during a write leaves a file of another name.
        (attempt.path / ".end.json.123.123").write_bytes(whole[:cut])
        assert attempt.end() == end
    for cut in range(len(whole)):
        (attempt.path / "end.json").write_bytes(whole[:cut])
        with pytest.raises(CorruptFile, match=r"attempts/1/end.json cannot be read"):
            attempt.end()


def test_first_outcome_is_final(folder: TrialFolder) -> None:
    attempt = folder.new_attempt()
    first = attempt.close(END)
    assert attempt.close(Outcome(State.LOST, "its node failed")) == first
    assert folder.ends() == [first]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"state": "fine"}',
        '{"state": "lost", "colour": 1}',
        '{"state": "lost", "ended": "late"}',
        '{"state": "lost", "metrics": 3}',
        '{"state": "completed", "objective": 3}',
    ],
)
def test_file_without_an_outcome_is_named(folder: TrialFolder, content: str) -> None:
    attempt = folder.new_attempt()
    file = attempt.path / "end.json"
    file.write_text(content)
    with pytest.raises(CorruptFile, match=str(file)):
        attempt.end()
    (end,) = folder.ends()
    assert (end.state, str(file) in end.error) == (State.LOST, True)
    closed = attempt.close(END)
    assert (closed.state, str(file) in closed.error) == (State.LOST, True)
    assert attempt.end() == closed
    assert [file.read_text() for file in attempt.path.glob("end.json.damaged-*")] == [content]


@pytest.mark.parametrize(
    "end",
    [
        Outcome(State.COMPLETED),
        END,
        Outcome(State.FAILED, "ä\nb", missing_objective=True),
        Outcome(State.LOST, "its node failed", [], {}, {"queued": 2.5}, 1.0, 2.0, 3.0, 4, 0.5, advanced=True),
        Outcome(State.DIVERGED, "loss is nan", metrics={"loss": float("inf")}),
    ],
)
def test_outcome_is_read_as_written(end: Outcome) -> None:
    assert Outcome.from_json(json.loads(json.dumps(end.as_json()))) == end


@pytest.mark.parametrize(
    ("error", "shown"),
    [("a file \udcff", "a file \\udcff"), ("x" * 100_000, "x" * 3000 + " ... (the rest is in its log)")],
    ids=["half a pair", "long"],
)
def test_any_error_can_be_printed(error: str, shown: str) -> None:
    assert Outcome.from_json(json.loads(json.dumps(Outcome(State.FAILED, error).as_json()))).error == shown


def test_end_has_the_duration_of_the_attempt(folder: TrialFolder) -> None:
    attempt = folder.new_attempt(queued_at=10.0, request=Request(2, timeout_min=30), idle_slot_s=0.5)
    attempt.begin(14.0)
    folder.append_metrics(MetricsLine(0, 12.0, {"system/gpu_0_power_usage_watts": 9999.0}), SYSTEM_METRICS)
    folder.append_metrics(MetricsLine(1, 20.0, {"system/gpu_0_power_usage_watts": 100.0}), SYSTEM_METRICS)
    end = attempt.close(Outcome(State.LOST, "its node failed"), ended=24.0)
    assert end.seconds == {"idle_slot": 0.5, "queued": 4.0, "training": 10.0}
    assert (end.queued_at, end.started_at, end.ended_at, end.gpus, end.timeout_min) == (10.0, 14.0, 24.0, 2, 30)
    assert end.energy_kwh == pytest.approx(600 / 3.6e6)
    assert end.gpu_hours == pytest.approx(20 / 3600)


@pytest.mark.parametrize("state", State)
def test_every_end_that_is_no_result_has_words(folder: TrialFolder, state: State) -> None:
    end = folder.new_attempt().close(Outcome(state))
    assert end.error == ("" if state in (State.COMPLETED, State.PRUNED, State.PAUSED) else "unknown reason")


def test_an_attempt_that_never_began_only_waited(folder: TrialFolder) -> None:
    end = folder.new_attempt(queued_at=10.0, request=Request(2)).close(
        Outcome(State.CANCELLED, "it was cancelled"), ended=24.0
    )
    assert end.seconds == {"idle_slot": 0.0, "queued": 14.0}
    assert (end.started_at, end.gpu_hours, end.energy_kwh, end.advanced) == (None, 0.0, None, False)


@pytest.mark.parametrize("name", ["queued.json", "started"])
@pytest.mark.parametrize("content", ["", "{", "nan?", "\x00"])
def test_notes_that_are_damaged_keep_no_attempt_from_ending(folder: TrialFolder, name: str, content: str) -> None:
    attempt = folder.new_attempt(queued_at=10.0)
    attempt.begin(14.0)
    (attempt.path / name).write_text(content)
    end = attempt.close(END)
    assert (end.state, end.objective) == (State.COMPLETED, [0.5])
    assert end.started_at is not None


@pytest.mark.parametrize(
    ("reported", "saved", "advanced"),
    [([], None, False), ([5.0], None, False), ([5.0, 15.0], None, True), ([], 5.0, False), ([], 15.0, True)],
)
def test_whether_an_attempt_advanced(
    tmp_path: Path, reported: list[float], saved: float | None, advanced: bool
) -> None:
    folder = TrialFolder(tmp_path)
    attempt = folder.new_attempt(queued_at=1.0)
    attempt.begin(10.0)
    for step, when in enumerate(reported):
        folder.append_metrics(MetricsLine(step, when, {}))
    if saved:
        folder.checkpoint.mkdir()
        (folder.checkpoint / "state").touch()
        os.utime(folder.checkpoint / "state", (saved, saved))
    assert attempt.close(Outcome(State.TIMED_OUT, "time"), ended=20.0).advanced is advanced


def test_a_checkpoint_that_was_being_written_is_none(folder: TrialFolder) -> None:
    folder.checkpoint.mkdir()
    half = folder.checkpoint / "writing.npz"
    half.touch()
    assert folder.checkpoints() == []
    for step in (7, 8):
        folder.append_metrics(MetricsLine(step, time.time(), {"loss": 1.0}))
        put_checkpoint(half)
        assert folder.checkpointed_step() == step  # also where both take less than a file system's tick
        half.touch()
    folder.append_metrics(MetricsLine(9, time.time(), {"loss": 1.0}))
    assert folder.checkpointed_step() == 8


def test_a_new_attempt_starts_clean(folder: TrialFolder) -> None:
    first = folder.new_attempt()
    first.request_stop(State.CANCELLED)
    first.append_stop_answer(State.CANCELLED)
    first.begin(1.0)
    first.close(Outcome(State.CANCELLED, "it was cancelled"))
    second = folder.new_attempt()
    assert (second.number, folder.newest(), first.successor) == (2, second, second.path)
    assert (second.end(), second.began(), second.stop_requested(), second.stop_reason()) == (None,) * 4
    assert folder.attempts() == [first, second]


def test_attempts_are_counted_as_numbers(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path)
    for _ in range(11):
        folder.new_attempt()
    (tmp_path / "attempts" / "4x").mkdir()
    (tmp_path / "attempts" / "notes").write_text("")
    assert [attempt.number for attempt in folder.attempts()] == list(range(1, 12))


@pytest.mark.parametrize(
    ("content", "expected"),
    [("pruned", State.PRUNED), ("cancelled", State.CANCELLED), ("", State.CANCELLED), ("\x00?", State.CANCELLED)],
)
def test_damaged_stop_request_is_a_stop_request(folder: TrialFolder, content: str, expected: State) -> None:
    attempt = folder.new_attempt()
    assert attempt.stop_requested() is None
    (attempt.path / "stop").write_text(content)
    assert attempt.stop_requested() is expected


def test_unreadable_stop_request_is_a_stop_request(folder: TrialFolder) -> None:
    attempt = folder.new_attempt()
    (attempt.path / "stop").symlink_to("stop")
    assert attempt.stop_requested() is State.CANCELLED
    (attempt.path / "stop_by").mkdir()  # because only persons who prune a trial leave this file
    assert (attempt.stop_requested(), attempt.stopped_by()) == (State.PRUNED, None)


def test_colleague_with_a_strict_umask_leaves_readable_requests(folder: TrialFolder) -> None:
    umask = os.umask(0o077)
    try:
        attempt = folder.new_attempt()
        attempt.request_stop(State.PRUNED, by="bob")
    finally:
        os.umask(umask)
    assert [(attempt.path / name).stat().st_mode & 0o777 for name in ("stop", "stop_by")] == [0o644] * 2


@pytest.mark.parametrize("at", ["1e30", "-1", "NaN", "1e400", '"noon"', "null", "[]", "1" + 400 * "0"])
def test_times_that_no_calendar_has_are_unknown(folder: TrialFolder, at: str) -> None:
    attempt = folder.new_attempt()
    (attempt.path / "stop_by").write_text(f'{{"by": "bob", "at": {at}}}')
    (attempt.path / "started").write_text(at)
    assert attempt.stopped_by() == ("bob", 0.0)
    assert attempt.began() == pytest.approx(time.time(), abs=60)


def test_clock_that_was_set_back_makes_no_negative_duration(folder: TrialFolder) -> None:
    attempt = folder.new_attempt()
    attempt.begin(time.time() + 7200)
    end = attempt.close(Outcome(State.LOST, "its node failed"))
    assert min(end.seconds.values()) >= 0 and end.duration_s >= 0


def test_deleted_folder_is_created_again_for_the_outcome(tmp_path: Path) -> None:
    attempt = TrialFolder(tmp_path / "gone").attempt(1)
    assert attempt.close(Outcome(State.LOST, "its node failed")).state is State.LOST
    assert attempt.is_over


@pytest.mark.parametrize(
    "state, over, bad",
    [
        (State.QUEUED, False, False),
        (State.RUNNING, False, False),
        (State.CANCELLED, False, False),
        (State.REFUSED, False, True),
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


@pytest.mark.parametrize(
    ("watts", "expected"), [([], None), ([{}], None), ([{0: 100.0}, {0: 300.0}], 4000), ([{0: 100.0, 1: 50.0}], 1500)]
)
def test_energy_is_power_by_time(tmp_path: Path, watts: list[dict[int, float]], expected: float | None) -> None:
    folder = TrialFolder(tmp_path)
    before = {"system/gpu_0_power_usage_watts": 9999.0}
    folder.append_metrics(MetricsLine(0, 50.0, before), SYSTEM_METRICS)
    for step, sample in enumerate(watts):  # each sample represents the previous ten seconds
        named = {f"system/gpu_{gpu}_power_usage_watts": value for gpu, value in sample.items()}
        metrics = {"system/memory_usage_megabytes": 5.0, **named}
        folder.append_metrics(MetricsLine(step, 110.0 + 10 * step, metrics), SYSTEM_METRICS)
    assert measure(folder.usage(), since=100.0).energy_kwh == (
        None if expected is None else pytest.approx(expected / 3.6e6)
    )


def test_use_of_gpus_is_a_mean_over_samples_and_gpus(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path)
    for at, first, second in ((50.0, 99.0, 99.0), (110.0, 80.0, 40.0), (120.0, 60.0, 20.0)):
        uses = {f"system/gpu_{gpu}_utilization_percentage": use for gpu, use in enumerate((first, second))}
        folder.append_metrics(MetricsLine(0, at, {"system/cpu_utilization_percentage": 7.0, **uses}), SYSTEM_METRICS)
    assert measure(folder.usage(), since=100.0) == Usage(None, 50.0, {"cores": 0.07, "busy_gpus": 2})


def test_file_is_read_while_being_written(tmp_path: Path) -> None:
    """Read while another process appends: every line whole and once, every end whole."""
    count = 1500
    code = (
        "import sys; from pathlib import Path\n"
        "from sweeps.trial.folder import *\n"
        "folder = TrialFolder(Path(sys.argv[1]))\n"
        f"for step in range({count}):\n"
        "    folder.append_metrics(MetricsLine(step, 0.0, {'loss': step / 3, 'x' * (step % 500): 1.0}))\n"
        "    if step % 30 == 0: folder.new_attempt().close(Outcome(State.COMPLETED, objective=[float(step)] * 500))\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parents[2])
    reader, read, offset, over = TrialFolder(tmp_path), [], 0, False
    ends: dict[int, Any] = {}
    while not over:
        over = writer.poll() is not None
        lines = reader.read_metrics(offset)
        offset, read = lines.offset, read + [line.step for line in lines.values]
        assert lines.damaged == 0
        newest = reader.newest()
        if newest and (end := newest.end()):
            assert (len(set(end.objective)), len(end.objective)) == (1, 500)
            ends[newest.number] = replace(end, ended_at=0.0)
    assert writer.returncode == 0
    assert read == list(range(count))
    assert ends


def test_events_stay_until_they_are_handled(folder: TrialFolder) -> None:
    reader = MetricsReader(folder)
    assert reader.unread().values == reader.unread().values == LINES
    assert reader.mark_read(reader.unread())
    assert reader.unread().values == []
    folder.append_metrics(LINES[0])
    assert reader.unread().values == LINES[:1]
    (folder.path / "metrics.jsonl").write_bytes(b"")  # a new attempt begins without a checkpoint
    folder.append_metrics(LINES[1])
    lines = reader.unread()
    assert (lines.values, reader.mark_read(lines), reader.unread().values) == ([LINES[1]], False, [])
