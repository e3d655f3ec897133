"""Tests of a study's journal: damage, killed drivers, full disks, reopened trials, and readers."""

import json
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, read_lines
from sweeps.hydra.followed import resolved
from sweeps.record.definition import Definition
from sweeps.record.journal import Journal
from sweeps.record.study import Added, TrialRecord
from sweeps.study.folder.reading import read_study
from sweeps.trial.job import Outcome, State
from tests.study.conftest import MakeStudy
from tests.study.fake_launcher import Clock, Drive, FakeLauncher, Study, by_trial, ends, result_of, trains
from tests.study.test_loop import disk_that_fails

DONE = ["completed"] * 3


def test_short_names_have_the_last_parts_of_keys() -> None:
    trial = TrialRecord(0, {"+optimizer.momentum": 0.9, "lr": 0.1}, State.QUEUED, Path())
    assert trial.short_name == "momentum=0.9 lr=0.1"
    both = replace(trial, params={"a.x": 1, "b.x": 2})
    assert both.short_name == both.name == "a.x=1 b.x=2"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_pipe_or_folder_in_place_of_the_journal_is_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "journal.jsonl")
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(CorruptFile, match="it is not a regular file"):
        journal.read(lambda event: None)
    assert not journal.quarantine().is_file()
    journal.append([{"op": "started", "version": 1}])
    assert len(read_lines(journal.path).values) == 1


def definition(**changes: object) -> Definition:
    parts = {"name": "s", "command": ["python", "app.py"], "working_folder": "/", "objective": ["objective"]}
    rest = {"directions": ["minimize"], "parameters": {}, "n_trials": "None", "search": {}, "config": {}}
    return Definition(**{**parts, **rest, "total": 3, **changes})  # type: ignore[arg-type]


@pytest.fixture
def study(make_study: MakeStudy, clock: Clock) -> Study:
    """Return a study with three completed trials."""
    study = make_study()
    assert study.drive(FakeLauncher(trains(), clock)).states() == DONE
    return study


@pytest.fixture
def resume(study: Study, clock: Clock) -> Callable[[], tuple[Drive, FakeLauncher]]:
    """Return a function that runs the next driver of the study."""

    def run_driver() -> tuple[Drive, FakeLauncher]:
        launcher = FakeLauncher(trains(), clock)
        return study.drive(launcher), launcher

    return run_driver


Resume = Callable[[], tuple[Drive, FakeLauncher]]


def journal_of(study: Study) -> Path:
    return study.folder / "journal.jsonl"


def numbers(journal: Path) -> list[int]:
    return [json.loads(line)["line"] for line in journal.read_text().splitlines()]


def check_study(study: Study, done: Drive) -> None:
    """Check that all trials are completed with their objectives, and that journal lines are numbered consecutively."""
    assert done.states() == DONE
    assert [done.row(number).objective for number in range(3)] == [[result_of(n)] for n in range(3)]
    assert [done.row(number).params for number in range(3)] == [{"x": n} for n in (1, 2, 3)]
    assert numbers(journal_of(study)) == list(range(len(numbers(journal_of(study)))))


def test_journal_lines_have_consecutive_numbers(study: Study, resume: Resume) -> None:
    before = numbers(journal_of(study))
    assert before == list(range(len(before)))
    assert len(before) == 1 + 3 + 3
    check_study(study, resume()[0])


def test_corrupt_line_is_repaired_from_the_folders(study: Study, resume: Resume) -> None:
    original = journal_of(study).read_bytes()
    lines = original.splitlines(keepends=True)
    chance = random.Random(1)
    for number in range(len(lines)):
        noise = chance.choice([b"\xff\x00", b"{}\n", b"\r\r\x0c", b"[[[[", b'{"line": 7}\n', b""])
        line = noise and lines[number][:9] + noise + lines[number][20:]
        journal_of(study).write_bytes(b"".join([*lines[:number], line, *lines[number + 1 :]]))
        damaged = journal_of(study).read_bytes()
        done, launcher = resume()
        check_study(study, done)
        assert launcher.submitted == []  # nothing was trained again
        if number < len(lines) - 1:
            assert f"{journal_of(study)} cannot be read: line {number + 1} is damaged" in done.out
        quarantined = list(study.folder.glob("journal.jsonl.damaged-*"))
        assert [file.read_bytes() for file in quarantined] == ([damaged] if quarantined else [])
        for file in quarantined:
            assert file.name in done.out
            file.unlink()


def test_foreign_journal_is_quarantined(study: Study, resume: Resume) -> None:
    journal_of(study).write_text('{"op_code": 99, "worker_id": "x", "study_id": 0}\n')
    check_study(study, resume()[0])
    assert len(list(study.folder.glob("journal.jsonl.damaged-*"))) == 1


@pytest.mark.parametrize("cut", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_cut_journal_is_repaired_from_the_folders(study: Study, resume: Resume, cut: float) -> None:
    journal = journal_of(study)
    os.truncate(journal, int(cut * journal.stat().st_size))
    count = journal.read_bytes().rpartition(b"\n")[0].count(b'"op":"queued"')
    done, launcher = resume()
    check_study(study, done)
    assert launcher.submitted == []
    if count < 3:
        assert f"{journal} lacks {3 - count} trials" in done.out


def test_missing_doubled_or_foreign_journal_is_repaired(study: Study, resume: Resume) -> None:
    journal = journal_of(study)
    original = journal.read_bytes()
    for content in (b"", original + original, b"\x89PNG\r\n\x1a\n" + original, b"\x00" * 5000, b"{}\n", b"null\n"):
        journal.write_bytes(content)
        done, launcher = resume()
        check_study(study, done)
        assert launcher.submitted == []
        assert str(journal) in done.out
    journal.unlink()
    check_study(study, resume()[0])


def test_incomplete_last_line_is_dropped_silently(study: Study, resume: Resume) -> None:
    journal = journal_of(study)
    before = journal.read_bytes()
    with journal.open("ab") as file:
        file.write(b'{"op_code": 6, "worker')
    done, _ = resume()
    check_study(study, done)
    assert "journal" not in done.out
    assert not list(study.folder.glob("*damaged*"))
    assert journal.read_bytes().startswith(before)


def test_trial_without_records_keeps_the_number(study: Study, resume: Resume) -> None:
    journal_of(study).write_bytes(b"")
    (study.trial(1).path / "trial.json").write_text("\x00")
    done, launcher = resume()
    assert done.states() == ["completed", "failed", "completed", "completed"]
    assert "its trial.json cannot be read" in done.row(1).error
    assert launcher.submitted == [(3, 1)]  # a new trial of the same point
    assert done.row(3).params == {"x": 2}
    assert done.summary.total == 4  # nothing is open, and nothing is missing
    assert resume()[0].states() == done.states()


def test_replicates_without_records_are_restored_from_their_overrides(make_study: MakeStudy, clock: Clock) -> None:
    sampler = {"_target_": "optuna.samplers.RandomSampler", "seed": 0}
    study = make_study("x=range(1,9)", "seed=4", sampler=sampler, n_trials=2, repeats=2)
    before = study.drive(FakeLauncher(trains(), clock))
    journal_of(study).write_bytes(b"")
    for trial in before.summary.rows:
        overrides = study.trial(trial.number).path / ".hydra" / "overrides.yaml"
        overrides.parent.mkdir()
        overrides.write_text("".join(f"- {key}={value}\n" for key, value in trial.params.items()))
        (study.trial(trial.number).path / "trial.json").unlink()
    done = study.drive(launcher := FakeLauncher(trains(), clock))
    assert launcher.submitted == []
    assert [(trial.params, trial.by, trial.of, trial.seed, trial.state) for trial in done.summary.rows] == [
        (trial.params, trial.by, trial.of, trial.seed, trial.state) for trial in before.summary.rows
    ]


def test_trial_does_not_resume_in_a_folder_made_for_other_params(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study()
    cancelled = by_trial(trains(), t1=ends(Outcome(State.CANCELLED, "scancel")))
    assert study.drive(FakeLauncher(cancelled, clock)).states() == ["completed", "cancelled", "completed"]
    study.trial(1).write_trial({"number": 1, "params": {"x": 9}})
    done = study.drive(launcher := FakeLauncher(trains(), clock))
    assert done.states() == ["completed", "refused", "completed"] and launcher.submitted == []
    assert done.row(1).error == f"{study.trial(1).path} was made for x=9. Move or remove it"
    shutil.rmtree(study.trial(1).path)
    assert study.drive(launcher).states() == DONE


def test_infeasible_trial_is_restored_from_the_folder(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study()
    study.infeasible = lambda row: row.params["x"] == 2
    expected = ["completed", "infeasible", "completed"]
    assert study.drive(FakeLauncher(trains(), clock)).states() == expected
    journal_of(study).write_bytes(b"")
    done = study.drive(FakeLauncher(trains(), clock))
    assert done.states() == expected
    assert (done.row(1).params, done.row(1).infeasible) == ({"x": 2}, True)
    journal_of(study).write_bytes(b"")
    study.infeasible = lambda row: False
    assert study.drive(FakeLauncher(trains(), clock)).states() == DONE


@pytest.mark.parametrize("number", [10**9, -1])
def test_invalid_number_in_trial_json_is_ignored(study: Study, resume: Resume, number: int) -> None:
    journal_of(study).write_bytes(b"")
    (study.trial(2).path / "trial.json").write_text(json.dumps({"number": number, "params": {"x": 3}}))
    check_study(study, resume()[0])


def test_trial_without_folder_and_journal_runs_again(study: Study, resume: Resume) -> None:
    journal_of(study).write_bytes(b"")
    shutil.rmtree(study.trial(2).path)
    done, launcher = resume()
    check_study(study, done)
    assert launcher.submitted == [(2, 1)]


def test_unreachable_disk_does_not_quarantine_the_journal(study: Study, resume: Resume) -> None:
    before = journal_of(study).read_bytes()
    with disk_that_fails(lambda path: path == journal_of(study)), pytest.raises(OSError, match="Stale"):
        resume()
    assert journal_of(study).read_bytes() == before
    assert not list(study.folder.glob("*damaged*"))


# Killed drivers, full disks


def forked(act: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(1)
    return pid


@pytest.mark.long
def test_driver_killed_while_writing_leaves_a_usable_journal(make_study: MakeStudy, clock: Clock) -> None:
    chance, study = random.Random(1), make_study("x=range(400)")
    for _ in range(12):
        pid = forked(lambda: study.drive(FakeLauncher(trains(1), clock)))
        time.sleep(chance.uniform(0.05, 0.25))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    line_numbers = numbers(journal_of(study))
    assert line_numbers == list(range(len(line_numbers)))
    assert not list(study.folder.glob("*damaged*"))
    record = study.record(study.settings)
    assert (len(record.trials) > 5, record.repairs) == (True, "")
    assert [trial.params["x"] for trial in record.trials] == list(range(len(record.trials)))


def test_full_disk_leaves_the_journal_unchanged(study: Study) -> None:
    record = study.record(study.settings)
    before = journal_of(study).read_bytes()

    def fill_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20,) * 2)
        try:
            record.add(Added("1.json", {"x": 1}, outside=False))
        except OSError:
            os._exit(0)

    assert os.waitpid(forked(fill_disk), 0)[1] == 0
    assert journal_of(study).read_bytes() == before


# Reopened trials and extended grids


def test_only_reopened_trials_run_again(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study()
    failed = Outcome(State.FAILED, "too large")
    assert study.drive(FakeLauncher(ends(failed), clock)).states() == ["failed"] * 3
    study.record(study.settings).reopen([0, 2])
    assert numbers(journal_of(study)) == list(range(len(numbers(journal_of(study)))))
    launcher = FakeLauncher(trains(), clock)
    done = study.drive(launcher)
    assert done.states() == ["completed", "failed", "completed"]
    assert launcher.submitted == [(0, 2), (2, 2)]
    assert [(row.forgiven, len(row.attempts)) for row in done.summary.rows if row.number != 1] == [(1, 2)] * 2
    assert [end.state for end in done.row(0).attempts] == [State.FAILED, State.COMPLETED]


def test_reopened_trial_has_all_retries_again(make_study: MakeStudy, clock: Clock) -> None:
    study = make_study("x=1")
    lost = Outcome(State.LOST, "its node failed")
    assert len(study.drive(FakeLauncher(ends(lost), clock)).row(0).attempts) == 3
    study.record(study.settings).reopen([0])
    done = study.drive(FakeLauncher(ends(lost), clock))
    assert (done.states(), len(done.row(0).attempts)) == (["lost"], 6)
    assert study.drive(FakeLauncher(ends(lost), clock)).states() == ["lost"]


def test_interrupted_reopening_changes_all_trials_or_none(study: Study, resume: Resume) -> None:
    before = journal_of(study).read_bytes()
    for count in range(2):
        left = iter(range(count))

        def interrupted_sync(file: int, left: Iterator[int] = left, sync: Callable[[int], None] = os.fsync) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            sync(file)

        record = study.record(study.settings)
        with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(os, "fsync", interrupted_sync)
            record.reopen([0, 1, 2])
    done, launcher = resume()
    assert (done.states(), launcher.submitted) == (DONE, [(0, 2), (1, 2), (2, 2)])
    assert journal_of(study).read_bytes().startswith(before)


def test_extended_grid_runs_only_the_new_values(make_study: MakeStudy, clock: Clock) -> None:
    few = make_study("x=1,2", "opt=adam,sgd")
    few.drive(FakeLauncher(trains(1), clock))
    many = make_study("x=1,2,8", "opt=adam,sgd,lion")
    launcher = FakeLauncher(trains(1), clock)
    done = many.drive(launcher, extend=True)
    assert done.states() == ["completed"] * 9
    assert [number for number, _ in launcher.submitted] == [4, 5, 6, 7, 8]
    assert len({json.dumps(row.params) for row in done.summary.rows}) == 9


def test_grid_with_damaged_journal_is_extended(make_study: MakeStudy, clock: Clock) -> None:
    few = make_study("x=1,2", "opt=adam,sgd")
    few.drive(FakeLauncher(trains(1), clock))
    journal = journal_of(few)
    journal.write_bytes(journal.read_bytes()[:-200] + b"noise\n")
    done = make_study("x=1,2,8", "opt=adam,sgd").drive(FakeLauncher(trains(1), clock), extend=True)
    assert done.states() == ["completed"] * 6


# Readers other than the driver


def test_summary_equals_the_record_of_the_driver(study: Study) -> None:
    summary = read_study(study.folder, definition())
    assert [(row.number, row.state, row.objective) for row in summary.rows] == [
        (number, State.COMPLETED, [result_of(number)]) for number in range(3)
    ]
    assert (summary.total, summary.objective, summary.directions) == (3, ("objective",), ("minimize",))


@pytest.mark.parametrize("content", [b"", b"\x00\n", b"{}\n", b"null\n", b'{"op_code":0,"line":0}\n'])
def test_corrupt_journal_is_reported_and_not_changed(study: Study, content: bytes) -> None:
    journal_of(study).write_bytes(content)
    with pytest.raises(UserError, match=r"study \S+: ") as caught:
        read_study(study.folder, definition())
    assert str(journal_of(study)) in str(caught.value)
    assert "Repair it with: python app.py hydra.sweeper.study_name=s" in str(caught.value)
    assert journal_of(study).read_bytes() == content


# Storage addresses and added points


def test_storage_address_resolves_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", "postgresql://me:sesame@host/db")
    assert resolved("${oc.env:DB}") == "postgresql://me:sesame@host/db"
    assert resolved("sqlite:///studies.db") == "sqlite:///studies.db"
    with pytest.raises(UserError, match="NO_SUCH"):
        resolved("${oc.env:NO_SUCH}")


def test_outside_point_is_inside_the_extended_space(make_study: MakeStudy, clock: Clock) -> None:
    few = make_study("x=1,2")
    few.added = lambda: iter([({"x": 8}, "1.json")]) if not few.last.summary.added else iter(())
    done = few.drive(FakeLauncher(trains(1), clock))
    assert (done.summary.total, len(done.summary.rows)) == (3, 3)
    launcher = FakeLauncher(trains(1), clock)
    done = make_study("x=1,2,8").drive(launcher, extend=True)
    assert (done.summary.total, launcher.submitted) == (3, [])
    done = make_study("x=1,2,8,9").drive(launcher, extend=True)
    assert (done.summary.total, launcher.submitted) == (4, [(3, 1)])
