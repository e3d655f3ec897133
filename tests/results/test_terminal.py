"""What a study's view says: counts that add up, what is alike once, an outage when it begins and when it ends."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sweeps.errors import Outage
from sweeps.record import driver_status
from sweeps.record.driver_status import DriverStatus
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.results.findings import Findings
from sweeps.results.status import _waits, show_status
from sweeps.results.terminal import View, take_any_words, tally
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
    end = Outcome(state, error, began=None if state is State.INFEASIBLE else 1.0)
    open_ = state in (State.QUEUED, State.RUNNING)
    return TrialRecord(number, {"x": number}, state, folder / str(number), () if open_ else (end,))


def summary(*rows: TrialRecord, total: int | None = None) -> StudySnapshot:
    return StudySnapshot("s", Path("nowhere"), ("objective",), ("minimize",), list(rows), total)


@pytest.mark.parametrize(
    ("rows", "total", "text"),
    [
        ([], 0, "no trials"),
        ([], 3, "3 trials: 3 not begun"),
        ([row(0, State.COMPLETED)], 1, "1 trial: 1 completed"),
        ([row(0, State.PRUNED), row(1, State.INFEASIBLE)], None, "2 trials: 1 pruned, 1 infeasible"),
        (
            [row(i, state) for i, state in enumerate(State)],
            13,
            "13 trials: 1 queued, 1 running, 1 completed, 1 pruned, 1 infeasible, 1 failed, 1 diverged, "
            "1 out_of_memory, 1 timed_out, 1 refused, 1 lost, 1 cancelled, 1 not begun",
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


def test_what_went_wrong_in_one_way_is_told_once(view: View) -> None:
    rows = [row(i, State.FAILED, f"OSError: part {i} of the data is missing") for i in range(15)]
    rows.append(row(15, State.FAILED, "ValueError: another one"))
    study = summary(*rows)
    for one in rows:
        view.ended(one, study)
    live = said(view)
    assert live.count("data is missing") == 1
    assert "trial 14 failed as trial 0 did" in live
    view.closing(study)
    end = said(view).removeprefix(live)
    assert "trial 0 (and 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 4 more alike) failed: OSError: part 0 of" in end
    assert end.count("failed") == 2


def test_logs_are_named_where_there_are_some(view: View, tmp_path: Path) -> None:
    study = summary(row(0, State.FAILED, "its job ended", tmp_path))
    view.closing(study)
    assert "log" not in said(view)
    TrialFolder(study.rows[0].folder).new_attempt().log.write_text("words\n")
    view.closing(study)
    assert "logs: nowhere/<trial>/attempts/<n>/log" in said(view)


def test_what_is_said_steers_no_terminal_and_holds_no_password(view: View) -> None:
    view.say("a\x1b[2J\x00b\x1b]0;title\x07 c\nd postgresql://me:sesame@host/db")
    text = said(view)
    assert text.rstrip() == "ab c\nd postgresql://me:***@host/db"


def test_what_an_encoding_lacks_is_said_as_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_ = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(bytes_, "ascii"))
    take_any_words()
    View().say("ä \ud800")
    sys.stdout.flush()
    assert bytes_.getvalue() == b"\\xe4 \\ud800\n"


def test_an_outage_is_told_when_it_begins_and_when_it_ends(view: View) -> None:
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
    assert [line for line in said if line.startswith(("waiting", "MLflow"))] == [
        "waiting: 2, 2 pending: Priority",
        "waiting: 2, for a slot",
        "MLflow does not answer: refused; training goes on",
    ]
    (tmp_path / "driver_status.json").write_text(
        '{"running": 1, "full": false, "stopped": "", "notes": []}'
    )  # as it was
    assert driver_status.read(tmp_path) == DriverStatus(1, False)


def test_a_note_is_told_once_however_many_it_counts(view: View) -> None:
    for count in range(9, 0, -1):
        view.tick(summary(), [f"{count} pending: Priority"])
    if not view.console.is_terminal:
        assert said(view).splitlines() == ["9 pending: Priority"]


def test_what_waits_for_a_silent_slurm_is_not_said_to_wait_for_imports() -> None:
    away = "SLURM takes no job now: Unable to contact slurm controller"
    assert _waits(DriverStatus(0, full=True, notes=(away,)), driver=True, jobs=True) == [away]
    [why] = _waits(DriverStatus(0, full=True), driver=True, jobs=False)
    assert "being imported" in why


def test_a_study_goes_on_when_nobody_reads_what_it_says_any_more() -> None:
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
