"""What a study's view says: counts that add up, what is alike once, an outage when it begins and when it ends."""

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sweeps.errors import Outage
from sweeps.record import driver_status
from sweeps.record.driver_status import DriverStatus
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.results.findings import Findings
from sweeps.results.status import _explain_wait, show_status
from sweeps.results.terminal import View, escape_unencodable, tally
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State


@pytest.fixture(params=[False, True], ids=["a file", "a terminal"])
def view(request: pytest.FixtureRequest) -> View:
    view = View()
    view.console = view.live.console = Console(file=io.StringIO(), force_terminal=request.param, highlight=False)
    return view


def said(view: View) -> str:
    assert isinstance(view.console.file, io.StringIO)
    return view.console.file.getvalue()


def row(number: int, state: State, error: str = "", folder: Path = Path("nowhere")) -> TrialRecord:
    end = Outcome(state, error, started_at=None if state is State.INFEASIBLE else 1.0)
    open_ = state in (State.QUEUED, State.RUNNING)
    return TrialRecord(number, {"x": number}, state, folder / str(number), () if open_ else (end,))


def summary(*rows: TrialRecord, total: int | None = None) -> StudySnapshot:
    return StudySnapshot("s", Path("nowhere"), ("objective",), ("minimize",), list(rows), total)


@pytest.mark.parametrize(
    ("rows", "total", "text"),
    [
        ([], 0, "no trials"),
        ([], 3, "3 trials: 3 queued"),
        ([row(0, State.COMPLETED)], 1, "1 trial: 1 completed"),
        ([row(0, State.PRUNED), row(1, State.INFEASIBLE)], None, "2 trials: 1 pruned, 1 infeasible"),
        (
            [row(i, state) for i, state in enumerate(State)],
            13,
            "13 trials: 2 queued, 1 running, 1 completed, 1 pruned, 1 infeasible, 1 failed, 1 diverged, "
            "1 out_of_memory, 1 timed_out, 1 refused, 1 lost, 1 cancelled",
        ),
    ],
)
def test_the_counts_add_up(rows: list[TrialRecord], total: int | None, text: str) -> None:
    assert tally(summary(*rows, total=total)) == text


def test_the_live_view_counts_what_is_infeasible_as_pruned(view: View) -> None:
    study = summary(row(0, State.PRUNED), row(1, State.INFEASIBLE), row(2, State.FAILED), total=3)
    with view.live:
        view.tick(study, [])
    assert ("2 pruned" in said(view), "1 failed" in said(view)) == (view.console.is_terminal,) * 2


@pytest.mark.parametrize("width", [80, 200])
def test_no_number_is_cut_in_two(width: int) -> None:
    view = View()
    view.console = Console(file=io.StringIO(), width=width)
    point = {"model.hidden": [256, 128], "optimizer.learning_rate": 0.0142478, "batch_size": 64, "seed": 1}
    ends = [Outcome(State.COMPLETED, objective=[0.00963778 + number, 0.102515]) for number in range(2)]
    done = [TrialRecord(i, point, State.COMPLETED, Path("nowhere"), (end,)) for i, end in enumerate(ends)]
    study = StudySnapshot("s", Path("nowhere"), ("val_accuracy", "epoch_time"), ("minimize", "minimize"), done)
    view.closing(study)
    assert "best of 2 completed trials\n" in said(view)
    assert all(len(line) <= width for line in said(view).splitlines())
    (line,) = (line for line in said(view).splitlines() if "1.00964" in line)
    assert {"1", "[256,", "0.0142478", "64", "0.102515"} <= set(line.replace("│", " ").split())
    assert ("│" in line) == (width == 200)


def test_lines_of_a_file_are_as_long_as_they_need_to_be() -> None:
    assert View().console.width > 80  # under pytest stdout is no terminal


def test_equal_failures_are_printed_once(view: View) -> None:
    rows = [row(i, State.FAILED, f"OSError: part {i} of the data is missing") for i in range(15)]
    rows.append(row(15, State.FAILED, "ValueError: another one"))
    study = summary(*rows)
    for one in rows:
        view.ended(one, study)
    live = said(view)
    assert live.count("data is missing") == 1
    assert "trial 14 failed for the same reason as trial 0" in live
    view.closing(study)
    end = said(view).removeprefix(live)
    assert "trials 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 5 more failed: OSError: part 0 of" in end
    assert end.count("failed") == 2


def test_logs_are_named_where_there_are_some(view: View, tmp_path: Path) -> None:
    study = summary(row(0, State.FAILED, "its job ended", tmp_path))
    view.closing(study)
    assert "log" not in said(view)
    TrialFolder(study.rows[0].folder).new_attempt().log.write_text("words\n")
    view.closing(study)
    assert "logs: nowhere/<trial>/attempts/<n>/log" in said(view)


def test_printed_texts_have_no_control_characters_and_passwords(view: View) -> None:
    view.say("a\x1b[2J\x00b\x1b]0;title\x07 c\nd postgresql://me:sesame@host/db")
    text = said(view)
    assert text.rstrip() == "ab c\nd postgresql://me:***@host/db"


def test_unencodable_characters_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_ = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(bytes_, "ascii"))
    escape_unencodable()
    View().say("ä \ud800")
    sys.stdout.flush()
    assert bytes_.getvalue() == b"\\xe4 \\ud800\n"


def test_outage_is_reported_at_its_start_and_end(view: View) -> None:
    def away(why: str) -> Outage:
        return Outage(f"MLflow does not answer: {why}", "MLflow answers again")

    for notes in ([away("refused")], [away("timeout 1")], [away("timeout 2")], [], [], [away("refused")], []):
        view.tick(summary(), notes)
    lines = [line for line in said(view).splitlines() if "MLflow" in line and "timeout" not in line]
    told = [line for line in lines if "\x1b" not in line]
    assert told == ["MLflow does not answer: refused", "MLflow answers again"] * 2


def test_what_is_away_keeps_no_trial_waiting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = Outage("MLflow does not answer: refused; training goes on", "MLflow answers again")
    DriverStatus(1, True, notes=("2 pending: Priority",), troubles=(str(away),)).write(tmp_path)
    study = StudySnapshot("s", tmp_path, ("objective",), ("minimize",), [row(0, State.RUNNING, folder=tmp_path)], 3)
    show_status(study, "process 1", "", "")
    said = capsys.readouterr().out.splitlines()
    assert said[:5] == [
        "study s: 0 of 3 trials have ended (2 queued, 1 running)",
        "driver: process 1",
        "slots: 1 in use, none free",
        "2 queued: 2 pending: Priority; all slots are in use",
        "MLflow does not answer: refused; training goes on",
    ]
    (tmp_path / "driver_status.json").write_text(
        '{"running": 1, "full": false, "stopped": "", "notes": []}'
    )  # as it was
    assert driver_status.read(tmp_path) == DriverStatus(1, False)


def test_note_is_printed_once_for_all_trials(view: View) -> None:
    for count in range(9, 0, -1):
        view.tick(summary(), [f"{count} pending: Priority"])
    if not view.console.is_terminal:
        assert said(view).splitlines() == ["9 pending: Priority"]


def test_trials_waiting_for_slurm_are_not_reported_as_importing() -> None:
    away = "SLURM accepts no jobs now: Unable to contact slurm controller"
    assert _explain_wait(DriverStatus(0, full=True, notes=(away,)), driver=True, jobs=True) == f": {away}"
    assert "importing" in _explain_wait(DriverStatus(0, full=True), driver=True, jobs=False)


@pytest.mark.parametrize(
    ("status", "driver", "reason"),
    [
        (DriverStatus(1, True), "process 1", "3 queued: all slots are in use"),
        (DriverStatus(1, False), "process 1", "3 queued: the next trial is being prepared"),
        (DriverStatus(1, True, "max_hours=1 is spent"), "process 1", "3 queued; none can start: max_hours=1 is spent"),
        (None, "process 1", "3 queued: the driver is starting"),
        (None, "", "3 queued; none can start: no driver runs the study"),
        (
            DriverStatus(0, False, "interrupted"),
            "",
            "3 queued; none can start: no driver runs the study; the last driver",
        ),
    ],
)
def test_the_reason_why_queued_trials_do_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: DriverStatus | None, driver: str, reason: str
) -> None:
    """One word for trials that have not started, whether or not the driver has chosen them."""
    if status:
        status.write(tmp_path)
    study = StudySnapshot("s", tmp_path, ("y",), ("minimize",), [row(0, State.COMPLETED), row(1, State.QUEUED)], 4)
    show_status(study, driver, "", "")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "study s: 1 of 4 trials have ended (3 queued, 1 completed)"
    assert [line for line in lines[1:] if "queued" in line] == [line for line in lines[1:] if line.startswith(reason)]
    assert any(line.startswith(reason) for line in lines)


def test_a_total_may_be_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_status(StudySnapshot("s", tmp_path, ("y",), ("minimize",), [row(0, State.COMPLETED)]), "", "", "")
    assert "study s: 1 of an unknown number of trials have ended (1 completed)" in capsys.readouterr().out


def test_trials_start_in_the_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    view, now = View(), 0.0
    view.console = Console(file=io.StringIO())
    monkeypatch.setattr("time.monotonic", lambda: now)
    rows = [row(i, State.QUEUED) for i in range(4)]
    study = replace(summary(*rows), rows=rows, under_way={0, 1, 2, 3})

    def start(number: int) -> None:
        rows[number] = row(number, State.RUNNING)
        view.started(rows[number], study)

    start(1)
    assert said(view) == ""
    start(0)
    assert said(view).splitlines() == ["trial 0 started   x=0", "trial 1 started   x=1"]
    start(3)
    now = 5.0
    view.tick(study, [])
    assert "trial 3" not in said(view)
    now = 11.0  # trial 2 waits in a queue
    view.tick(study, [])
    assert said(view).splitlines()[-1] == "trial 3 started   x=3"
    start(2)
    assert said(view).splitlines()[-1] == "trial 2 started   x=2"


def test_several_objectives_end_with_the_number_of_trials_on_the_front(view: View) -> None:
    ends = [Outcome(State.COMPLETED, objective=[x, 1 - x]) for x in (0.0, 0.5, 1.0)]
    trials = [TrialRecord(i, {"x": i}, State.COMPLETED, Path("nowhere"), (end,)) for i, end in enumerate(ends)]
    view.closing(StudySnapshot("s", Path("nowhere"), ("y", "z"), ("minimize", "minimize"), trials))
    assert "\nPareto front: 3 trials\n" in said(view)


def test_study_continues_after_its_output_is_closed() -> None:
    """As of `| head`, or of `| tee log` at Ctrl-C."""
    code = "from sweeps.results.terminal import View; v = View(); [v.say('x' * 9999) for _ in range(99)]; print('end')"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_value_of_any_length_leaves_room_for_the_others() -> None:
    long = TrialRecord(
        0, {"path": "/a" * 2000, "x": 1}, State.COMPLETED, Path("0"), (Outcome(State.COMPLETED, objective=[1.0]),)
    )
    (_, cells) = Findings(summary(long)).table([long])
    assert [len(cell) for cell in cells] == [1, 100, 1, 1] and cells[1].startswith("/a/a") and "…" in cells[1]
    assert len(long.name) < 120 and long.name.endswith(" x=1")
