"""Tests of a study's terminal output: counts, equal failures, outages, and the reasons of queued trials."""

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sweeps.base.errors import Outage
from sweeps.record import driver_status
from sweeps.record.driver_status import DriverStatus
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.show.findings import Findings
from sweeps.show.terminal.lines import View, escape_unencodable, tally
from sweeps.show.terminal.status import show_status
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State


@pytest.fixture(params=[False, True], ids=["a file", "a terminal"])
def view(request: pytest.FixtureRequest) -> View:
    view = View()
    view.console = view.live.console = Console(file=io.StringIO(), force_terminal=request.param, highlight=False)
    return view


def output(view: View) -> str:
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
            "13 trials: 1 queued, 1 running, 1 completed, 1 pruned, 1 paused, 1 infeasible, 1 failed, 1 diverged, "
            "1 out_of_memory, 1 timed_out, 1 refused, 1 lost, 1 cancelled",
        ),
    ],
)
def test_tally_counts_trials_by_state(rows: list[TrialRecord], total: int | None, text: str) -> None:
    assert tally(summary(*rows, total=total)) == text


def test_live_view_counts_infeasible_trials_as_pruned(view: View) -> None:
    study = summary(row(0, State.PRUNED), row(1, State.INFEASIBLE), row(2, State.FAILED), total=3)
    with view.live:
        view.tick(study, [])
    assert ("2 pruned" in output(view), "1 failed" in output(view)) == (view.console.is_terminal,) * 2


@pytest.mark.parametrize("width", [80, 200])
def test_numbers_are_not_wrapped(width: int) -> None:
    view = View()
    view.console = Console(file=io.StringIO(), width=width)
    point = {"model.hidden": [256, 128], "optimizer.learning_rate": 0.0142478, "batch_size": 64, "seed": 1}
    ends = [Outcome(State.COMPLETED, objective=[0.00963778 + number, 0.102515]) for number in range(2)]
    done = [TrialRecord(i, point, State.COMPLETED, Path("nowhere"), (end,)) for i, end in enumerate(ends)]
    study = StudySnapshot("s", Path("nowhere"), ("val_accuracy", "epoch_time"), ("minimize", "minimize"), done)
    view.closing(study)
    assert "best of 2 completed trials\n" in output(view)
    assert all(len(line) <= width for line in output(view).splitlines())
    (line,) = (line for line in output(view).splitlines() if "1.01 " in line)
    assert {"1", "[256,", "0.0142478", "64", "0.1025"} <= set(line.replace("│", " ").split())
    assert ("│" in line) == (width == 200)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.393939, 0.151515], ["0.3939", "0.1515"]),
        ([0.393939, 0.393941], ["0.393939", "0.393941"]),
        ([0.39391, 0.39394], ["0.39391", "0.39394"]),
        ([0.5, 0.5], ["0.5", "0.5"]),
        ([12345.678, 1.0], ["12346", "1"]),
    ],
)
def test_results_have_as_many_digits_as_distinguish_them(values: list[float], shown: list[str]) -> None:
    ends = [Outcome(State.COMPLETED, objective=[value]) for value in values]
    done = [TrialRecord(i, {}, State.COMPLETED, Path("nowhere"), (end,)) for i, end in enumerate(ends)]
    findings = Findings(StudySnapshot("s", Path("nowhere"), ("loss",), ("minimize",), done))
    assert [row[1] for row in findings.table(done)[1:]] == shown


def test_lines_of_a_file_are_not_wrapped() -> None:
    assert View().console.width > 80  # because stdout is no terminal under pytest


def test_equal_failures_are_printed_once(view: View) -> None:
    rows = [row(i, State.FAILED, f"OSError: part {i} of the data is missing") for i in range(15)]
    rows.append(row(15, State.FAILED, "ValueError: another one"))
    study = summary(*rows)
    for trial in rows:
        view.ended(trial, study)
    live = output(view)
    assert live.count("data is missing") == 1
    assert "trial 14 failed for the same reason as trial 0" in live
    view.closing(study)
    end = output(view).removeprefix(live)
    assert "trials 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 5 more failed: OSError: part 0 of" in end
    assert end.count("failed") == 2


def test_path_of_existing_logs_is_printed(view: View, tmp_path: Path) -> None:
    study = summary(row(0, State.FAILED, "its job ended", tmp_path))
    view.closing(study)
    assert "log" not in output(view)
    TrialFolder(study.rows[0].folder).new_attempt().log.write_text("words\n")
    view.closing(study)
    assert "logs: nowhere/<trial>/attempts/<n>/log" in output(view)


def test_printed_texts_have_no_control_characters_and_passwords(view: View) -> None:
    view.say("a\x1b[2J\x00b\x1b]0;title\x07 c\nd postgresql://me:sesame@host/db")
    text = output(view)
    assert text.rstrip() == "ab c\nd postgresql://me:***@host/db"


def test_unencodable_characters_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_ = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(bytes_, "ascii"))
    escape_unencodable()
    View().say("ä \ud800")
    sys.stdout.flush()
    assert bytes_.getvalue() == b"\\xe4 \\ud800\n"


def test_outage_is_reported_at_start_and_end(view: View) -> None:
    def outage(why: str) -> Outage:
        return Outage(f"MLflow does not answer: {why}", "MLflow answers again")

    for notes in ([outage("refused")], [outage("timeout 1")], [outage("timeout 2")], [], [], [outage("refused")], []):
        view.tick(summary(), notes)
    lines = [line for line in output(view).splitlines() if "MLflow" in line and "timeout" not in line]
    messages = [line for line in lines if "\x1b" not in line]
    assert messages == ["MLflow does not answer: refused", "MLflow answers again"] * 2


def test_status_shows_an_outage_apart_from_queued_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outage = Outage("MLflow does not answer: refused; training goes on", "MLflow answers again")
    DriverStatus(1, True, notes=("2 pending: Priority",), troubles=(str(outage),)).write(tmp_path)
    study = StudySnapshot("s", tmp_path, ("objective",), ("minimize",), [row(0, State.RUNNING, folder=tmp_path)], 3)
    show_status(study, "process 1", "", "", "")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "study s: 0 of 3 trials have ended (2 queued, 1 running)",
        "driver: process 1",
        "slots: 1 in use, none free",
        "2 queued: 2 pending: Priority; all slots are in use",
        "MLflow does not answer: refused; training goes on",
    ]
    (tmp_path / "driver_status.json").write_text(
        '{"running": 1, "full": false, "stopped": "", "notes": []}'
    )  # as the former version wrote the file
    assert driver_status.read(tmp_path) == DriverStatus(1, False)


def test_note_is_printed_once_for_all_trials(view: View) -> None:
    for count in range(9, 0, -1):
        view.tick(summary(), [f"{count} pending: Priority"])
    if not view.console.is_terminal:
        assert output(view).splitlines() == ["9 pending: Priority"]


@pytest.mark.parametrize(
    ("status", "driver", "reason"),
    [
        (DriverStatus(1, True), "process 1", "3 queued: all slots are in use"),
        (DriverStatus(1, False), "process 1", "3 queued: the next trial is being prepared"),
        (DriverStatus(1, True, "max_hours=1 is spent"), "process 1", "3 queued; none can start: max_hours=1 is spent"),
        (None, "process 1", "3 queued: the driver is starting"),
        (
            DriverStatus(0, True, notes=("SLURM accepts no jobs now",)),
            "process 1",
            "3 queued: SLURM accepts no jobs now",
        ),
        (DriverStatus(0, True), "process 1", "3 queued: importing the modules that all trials share"),
        (None, "", "3 queued; none can start: no driver runs the study"),
        (
            DriverStatus(0, False, "interrupted"),
            "",
            "3 queued; none can start: no driver runs the study; the last driver",
        ),
    ],
)
def test_status_explains_queued_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: DriverStatus | None, driver: str, reason: str
) -> None:
    """Show a trial that has not started as queued, even if the driver has not chosen the trial."""
    if status:
        status.write(tmp_path)
    study = StudySnapshot("s", tmp_path, ("y",), ("minimize",), [row(0, State.COMPLETED), row(1, State.QUEUED)], 4)
    show_status(study, driver, "", "", "")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "study s: 1 of 4 trials have ended (3 queued, 1 completed)"
    assert [line for line in lines[1:] if "queued" in line] == [line for line in lines[1:] if line.startswith(reason)]
    assert any(line.startswith(reason) for line in lines)


def test_status_without_a_total_shows_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_status(StudySnapshot("s", tmp_path, ("y",), ("minimize",), [row(0, State.COMPLETED)]), "", "", "", "")
    assert "study s: 1 of an unknown number of trials have ended (1 completed)" in capsys.readouterr().out


def test_started_trials_are_printed_in_numerical_order(monkeypatch: pytest.MonkeyPatch) -> None:
    view, now = View(), 0.0
    view.console = Console(file=io.StringIO())
    monkeypatch.setattr("time.monotonic", lambda: now)
    rows = [row(i, State.QUEUED) for i in range(4)]
    study = replace(summary(*rows), rows=rows, under_way={0, 1, 2, 3})

    def start(number: int) -> None:
        rows[number] = row(number, State.RUNNING)
        view.started(rows[number], "started", study)

    start(1)
    assert output(view) == ""
    start(0)
    assert output(view).splitlines() == ["trial 0 started   x=0", "trial 1 started   x=1"]
    start(3)
    now = 5.0
    view.tick(study, [])
    assert "trial 3" not in output(view)
    now = 11.0  # because trial 2 is still queued
    view.tick(study, [])
    assert output(view).splitlines()[-1] == "trial 3 started   x=3"
    start(2)
    assert output(view).splitlines()[-1] == "trial 2 started   x=2"


def test_closing_counts_the_trials_on_the_front(view: View) -> None:
    ends = [Outcome(State.COMPLETED, objective=[x, 1 - x]) for x in (0.0, 0.5, 1.0)]
    trials = [TrialRecord(i, {"x": i}, State.COMPLETED, Path("nowhere"), (end,)) for i, end in enumerate(ends)]
    view.closing(StudySnapshot("s", Path("nowhere"), ("y", "z"), ("minimize", "minimize"), trials))
    assert "\nPareto front: 3 trials\n" in output(view)


def test_study_continues_after_the_output_is_closed() -> None:
    """Close the output, as `| head` does, and `| tee log` at Ctrl-C."""
    code = (
        "from sweeps.show.terminal.lines import View; v = View(); [v.say('x' * 9999) for _ in range(99)]; print('end')"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_long_values_are_shortened() -> None:
    long = TrialRecord(
        0, {"path": "/a" * 2000, "x": 1}, State.COMPLETED, Path("0"), (Outcome(State.COMPLETED, objective=[1.0]),)
    )
    (_, cells) = Findings(summary(long)).table([long])
    assert [len(cell) for cell in cells] == [1, 100, 1, 1] and cells[1].startswith("/a/a") and "…" in cells[1]
    assert len(long.name) < 120 and long.name.endswith(" x=1")
