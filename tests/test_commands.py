"""The commands of sweepyard on ended, running and damaged studies, and after typing mistakes."""

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sweeps import __main__ as commands
from sweeps.base.files import Lock
from sweeps.commands import read
from sweeps.record.writer import Record
from sweeps.trial.job import Outcome, State
from tests import command_lines as lines
from tests.command_lines import GRID, Done, processes, rows, run_all, some, steps, sweeps, theirs, wait_until


@pytest.mark.parametrize(
    ("words", "letters", "names"),
    [
        (["status"], "", ["mine", "more"]),
        (["resume"], "mo", ["more"]),
        (["compare", "more"], "mi", ["mine"]),
        (["ui", "--root", "theirs"], "", ["other"]),
        (["stop", "--root", "nowhere"], "", []),
        (["status", "--root", "odd"], "my", [r"my\ study", r"my\$\(date\)"]),
    ],
)
def test_shell_completes_names_of_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], letters: str, names: list[str]
) -> None:
    odd = ("odd/my study", "odd/my$(date)", "odd/my\n2", "odd/my\x1b[2J")
    for name in ("multirun/mine", "multirun/more", "theirs/other", *odd):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "study.json").touch()
    monkeypatch.chdir(tmp_path)
    typed = {"COMP_WORDS": " ".join(["sweepyard", *words, letters]), "COMP_CWORD": str(len(words) + 1)}
    shell = {"_SWEEPYARD_COMPLETE": "complete_bash", **typed}
    done = CliRunner().invoke(commands.app, [], prog_name="sweepyard", env=shell)
    assert sorted(filter(None, done.output.splitlines())) == names


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides, folder", [([], "multirun/s"), (["hydra.sweep.dir=theirs/t"], "theirs/t")], ids=["here", "theirs"]
)
def test_commands_find_an_ended_study(tmp_path: Path, overrides: list[str], folder: str) -> None:
    done = lines.run(theirs(*GRID, *overrides, "+x=1,2"), tmp_path)
    assert done.code == 0, done.said
    study, root = tmp_path / folder, ["--root", str(Path(folder).parent)]
    (study / "report.html").unlink()
    arguments = {
        "list": ["list"],
        "status": ["status", study.name],
        "report": ["report", study.name],
        "stop": ["stop", study.name],
        "other": ["status", "other"],
    }
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda words: sweeps(tmp_path, *words, *root).said, arguments.values())
        outputs = dict(zip(arguments, answers, strict=True))
    assert "2 of 2" in outputs["list"]
    assert "2 of 2 trials have ended (2 completed)" in outputs["status"]
    assert "trials.csv" in outputs["report"]
    assert (study / "report.html").exists()
    assert "is not running: 2 of 2 trials have ended\n" in outputs["stop"]
    assert f"Studies: {study.name}" in outputs["other"]
    assert json.loads((study / "study.json").read_text())["total"] == 2
    assert "study_name=s" in sweeps(tmp_path, "resume", study.name, *root).said


def test_running_study_is_shown_and_stopped(tmp_path: Path) -> None:
    driver = lines.start(theirs(*GRID, "+x=1,2,3,4,5", "+epochs=100000"), tmp_path)
    study = tmp_path / "multirun" / "s"
    wait_until(lambda: all(len(steps(study / number)) > 2 for number in "01"))
    shown = sweeps(tmp_path, "status", "s").out
    assert "0 of 5 trials have ended (3 queued, 2 running)" in shown
    assert f"driver: process {driver.pid} on" in shown
    assert "slots: 2 in use, none free\n3 queued: all slots are in use\n" in shown
    assert re.search(r"^trial 1 running   x=2   step \d+   objective=2   \d s ago$", shown, re.M)
    assert "Resume" not in shown
    assert f"process {driver.pid} on" in sweeps(tmp_path, "list").out
    stopped = sweeps(tmp_path, "stop", "s")
    assert stopped.code == 0, stopped.said
    assert stopped.out.splitlines()[-1] == "stopped. Resume: sweepyard resume s"
    done = lines.finish(driver, tmp_path)
    assert done.code == 130, done.said
    assert "is not finished: it was stopped by sweepyard stop" in done.out
    shown = sweeps(tmp_path, "status", "s").out
    assert "0 of 5 trials have ended (3 queued, 2 cancelled); cancelled trials resume with the study" in shown
    assert (
        "3 queued, 2 cancelled; none can start: no driver runs the study; the last driver stopped: it was stopped by"
        in shown
    )
    assert "not finished. Resume: " in shown
    assert not processes(tmp_path)


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three studies: a completed study, a study with two failed trials, and a killed study."""
    folder = tmp_path_factory.mktemp("studies")
    good = theirs(*GRID, "+x=1,2", name="good")
    failed = theirs(*GRID, "+how=fine,raises,exits", name="failed")
    for done in (lines.run(good, folder), lines.run(failed, folder)):
        assert "Traceback" not in done.err
    driver = lines.start(theirs(*GRID, "+x=1,2,3", "+epochs=100000", name="killed"), folder)
    wait_until(lambda: all(steps(folder / "multirun" / "killed" / number) for number in "01"))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    wait_until(lambda: not processes(folder))
    return folder


Answer = Callable[..., tuple[int, str]]


@pytest.fixture
def answer(
    studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Answer:
    """Return a function that runs a command on a copy of the studies, and returns the exit code and the output."""
    shutil.copytree(studies / "multirun", tmp_path / "multirun")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr("os.execvp", lambda *_: sys.exit(0))

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["sweeps", *words])
        with pytest.raises(SystemExit) as exit_:
            commands.main()
        out, err = capsys.readouterr()
        return int(exit_.value.code or 0), out + err

    return run


def test_trials_of_a_killed_driver_are_queued(answer: Answer) -> None:
    code, output = answer("status", "killed")
    assert code == 0
    assert "0 of 3 trials have ended (3 queued)\ntrials 0, 1 had begun, and resume with the study\n" in output
    assert "driver: none" in output
    assert "not finished. Resume: " in output


WRONG = [
    (["stop"], "stop: the name of a study is missing.\nStudies: killed, failed, good"),
    (["prune", "good", "--trial", "two"], "--trial two: it must be a whole number.\nType, for example: --trial 2"),
    (["ui", "good", "--port=a"], "--port a: it must be a whole number.\nType, for example: --port 5000"),
    (["list", "good"], " list takes no such word.\nType: sweepyard status good"),
    (["status", "good", "failed"], "failed: sweepyard status takes no such word.\nSee: "),
    (["exclude", "good", "x", ">", "1", "--root", "."], "sweepyard exclude good 'x > 1' --root ."),
    (["prune", "good", "0"], "prune: --trial is missing.\nType: sweepyard prune good --trial 0"),
    (["prune", "good", "--trial", "0", "1"], "Type: sweepyard prune good --trial 0 --trial 1"),
    (["prune", "good", "--trial", "0,1"], "--trial 0,1: it must be a whole number.\nType: --trial 0 --trial 1"),
    (["prune", "good", "--trial", "0"], "--trial 0: trial 0 has ended (completed).\nNo trial is running"),
    (["stop", "killed", "--trial", "1"], "killed and its trials are not running.\nResume it first: sweepyard"),
    (["stop", "killed", "--trial", "300"], "--trial 300: study killed has no trial 300.\nIt has 0 to 2"),
    (["best", "good", "1"], "1: sweepyard best takes no such word.\nType: sweepyard best good --trial 1"),
    (["list", "--root", "nowhere"], "--root nowhere: there is no such folder.\nType the folder that contains"),
    (["list", "--root", "multirun/good/study.json"], "--root multirun/good/study.json: it is a file.\nType the folder"),
    (["list", "--root", "multirun/good"], "--root multirun/good: it is a study.\nType the folder that contains"),
    (["list", "--rot"], "--rot: there is no such option.\nDid you mean --root?"),
    (["status", "good", "--root"], "--root: its value is missing.\nSee: "),
    (["exclude", "good", "--remove", "x=1"], "'x=1': study good has no such exclusion.\nNothing was excluded since"),
    (["exclude", "good"], "exclude: CONDITION is missing.\nSee: "),
    (["help", "status"], "help: there is no such command.\nType: sweepyard status --help"),
    (["frobnicate"], "frobnicate: there is no such command.\nChoose one of: best, refit"),
    (["status", "nothing"], "there is no study nothing in multirun.\nStudies: killed, failed, good"),
    (["status", "good", "--root", "."], "there is no study good in ..\nThere are no studies yet. Start"),
    (["status", "goood"], "there is no study goood in multirun.\nDid you mean good?"),
    (["stop", ".."], "there is no study .."),
    (["ui", "nothing"], "there is no study nothing in multirun.\nStudies: killed, failed, good"),
    (["ui", "good"], "has no runs of study good\nSend them: sweepyard sync good"),
    (["ui", "good", "--uri", "sqlite:///none.db"], "none.db has no study or runs named good"),
    (["ui", "--uri", "sqlite:///none.db"], "none.db\nCreate it with sweep.py -m, or choose an existing store with"),
    (["ui", "--uri", "postgresql://me:sesame@h/db"], "postgresql://me:***@: a password in a command line"),
    (["ui", "--root", "."], "there are no studies in .\nStart one with"),
    (["sync", "nothing"], "there is no study nothing in multirun.\nStudies: killed, failed, good"),
    (["sync", "--root", "."], "there are no studies in .\nStart one with"),
    (
        ["resume", "failed", "--retry", "fialed"],
        "--retry fialed: not a state that can be retried.\nChoose among failed, diverged",
    ),
    (
        ["resume", "failed", "--retry", "completed"],
        "--retry completed: not a state that can be retried.\nChoose among failed",
    ),
    (["resume", "failed", "--retry", "infeasible"], "no such trials to retry. It has: 2 failed, 0 diverged"),
    (
        ["resume", "failed", "--trials", "one"],
        "--trials one: not a list of trial numbers.\nType numbers, as in --trials 3,7",
    ),
    (["resume", "failed", "--trials", "1,,2"], "--trials 1,,2: not a list"),
    (["resume", "failed", "--trials", "2-1"], "--trials 2-1: not a list"),
    (["resume", "failed", "--trials", "0-1"], "no such trials to retry. It has: 2 failed"),
    (["resume", "failed", "--trials", "-1"], "--trials -1: not a list"),
    (["resume", "failed", "--trials", "0"], "no such trials to retry. It has: 2 failed, 0 diverged"),
    (["resume", "failed", "--trials", "1,9"], "no such trials to retry. It has: 2 failed"),
    (["resume", "failed", "--retry", "lost"], "no such trials to retry. It has: 2 failed, 0 diverged"),
    (["resume", "good", "--retry", "failed"], "no such trials to retry. It has: 0 failed"),
    (["resume", "failed", "zz=3", "--retry", "failed"], "zz=3: there is no such setting.\nType a setting of the lau"),
    (["resume", "good", "x=3"], "sweeps x.\nTo add a trial, type: sweepyard resume good --add x=3"),
    (["resume", "good", "x=3,4"], "To add values, type: "),
    (["resume", "good", "mem_gb=8"], "Type: sweepyard resume good hydra.launcher.mem_gb=8"),
    (["resume", "good", "repeats=2"], "another value makes another study.\nType: "),
    (["resume", "failed", "1"], "1: not a setting, as in key=value.\nTo retry such trials, type: "),
    (
        ["resume", "failed", "--retry", "failed", "hydra.launcher.mem_gb"],
        "Type a setting of the launcher, as in hydra.",
    ),
    (["report", "good", "--format", "gif"], "--format gif: unknown format.\nChoose among pdf, svg, png"),
    (["report", "good", "--table", "word"], "--table word: unknown format.\nChoose among latex, markdown, csv"),
    (["report", "good", "--table", "cvs"], "--table cvs: unknown format.\nDid you mean: --table csv"),
    (
        ["report", "good", "--table", "csv", "--columns", "+x,Objectiv"],
        "--columns Objectiv: unknown column.\nDid you mean: --columns x,objective",
    ),
    (["report", "good", "--table", "csv", "--columns", "y"], "--columns y: unknown column.\nChoose among trial, state"),
    (["report", "good", "--columns", "x"], "--columns needs --table.\nAdd: --table latex"),
    (["report", "good", "--table", "csv", "--classes"], "none of its best trials saved a model that predicts classes"),
    (["report", "good", "--table", "csv", "--figures", "f"], "--table and --figures conflict.\nType a command"),
    (["report", "good", "--format", "svg"], "--format needs --figures.\nAdd: --figures figures"),
    (["report", "good", "--metrics", "loss"], "--metrics needs --figures.\nAdd: --figures figures"),
    (["report", "good", "--figures", "f", "--metrics", "lss"], "--metrics lss: no trial reported a metric.\nRemove"),
    (["report", "good", "--figures", "f", "--by", "hours"], "--by hours: unknown axis.\nChoose among step, seconds"),
    (["report", "good", "--figures", "f", "--by", "second"], "--by second: unknown axis.\nDid you mean: --by seconds"),
    (["report", "good", "--figures", "f", "--trials", "x"], "--trials x: not a list of trial numbers.\nType numbers"),
    (["report", "good", "--figures", "f", "--facet", "y"], "--facet y: unknown param.\nChoose among x"),
    (["report", "good", "--methods", "--open"], "--methods and --open conflict, because --methods writes no page"),
    (["report", "good", "--methods", "--target", "1"], "--methods and --scaling conflict.\nType a command for each"),
    (["report", "good", "--figures", "multirun/good/study.json"], "the path is a file.\nChoose a folder: --figures"),
    (["ui", "good", "failed"], "has no runs of study good\nSend them: sweepyard sync good"),
    (["ui", "good", "failed", "--uri", "sqlite:///none.db"], "--uri is for runs outside of studies.\nRemove --uri"),
    (["bundle", "good", "--output", "multirun"], "--output multirun: the path is a folder.\nChoose a file"),
    (
        ["reproduce", "multirun/good/study.json", "hydra.sweeper.study_name=x"],
        "keeps its name and place.\nChoose a folder",
    ),
    (["reproduce", "no.zip"], "no.zip: there is no such file.\nMake a bundle from a study: sweepyard bundle"),
    (["reproduce", "multirun/good/study.json"], "study.json: not a bundle (File is not a zip file).\nMake one"),
    (["compare", "good"], "compare good: one study.\nAdd another name: sweepyard compare good NAME"),
    (["compare", "good", "nothing"], "there is no study nothing in multirun.\nStudies: killed, failed, good"),
    (["compare", "good", "./multirun/good"], "study ./multirun/good was typed twice.\nRemove one of them"),
    (["compare", "good", "killed"], "study killed: none of its 3 trials has a result.\nLeave it out. Show the reason"),
    (["compare", "good", "failed", "--output", "multirun"], "--output multirun: the path is a folder.\nChoose a file"),
]


@some("words, message", WRONG, 8, ids=[" ".join(words) for words, _ in WRONG])
def test_impossible_request_is_refused_in_two_lines(answer: Answer, words: list[str], message: str) -> None:
    code, output = answer(*words)
    assert code == 2
    assert len(output.splitlines()) <= 2
    assert message in output


@pytest.mark.parametrize("typed", ["status", "compare", "show good", "lsit", "status multirun/good"])
def test_advice_on_a_command_can_be_typed(answer: Answer, typed: str) -> None:
    code, output = answer(*typed.split())
    assert code == 2, output
    _, advice = output.splitlines()
    words = advice.partition(": ")[2].split()
    commands_typed = [word for word in words if word in ("best", "compare", "list", "report", "status")]
    words = words[words.index(commands_typed[0]) :] if commands_typed else ["status", *words]
    code, output = answer(*words)
    assert code == 0 or "none of its" in output, output


def test_resume_changes_settings_of_the_launcher(answer: Answer) -> None:
    code, output = answer("resume", "good", "hydra/launcher=slurm", "+hydra.launcher.mem_gb=16")
    assert code == 0
    assert "hydra/launcher=local" not in output
    assert " hydra/launcher=slurm +hydra.launcher.mem_gb=16" in output


def test_status_has_the_command_that_retries_failed_trials(answer: Answer) -> None:
    code, output = answer("status", "failed")
    assert code == 0
    retry = "Correct the cause of the failed trials, then type: sweepyard resume failed --retry failed"
    assert output.splitlines()[-1] == retry
    assert "Correct the cause" not in answer("status", "good")[1]


def test_compare_shows_two_studies_side_by_side(answer: Answer, tmp_path: Path) -> None:
    shutil.copytree("multirun/good", tmp_path / "other" / "good")
    code, output = answer("compare", "good", "failed", "other/good")
    assert code == 0
    assert output.endswith("\ncomparison.html\n")
    for row in (r"^│ good +│ \S+ +│ 1 ", r"^│ failed +│ \S+ +│ 1 ", r"^│ other/good +│ \S+ +│ 1 "):
        assert re.search(row, output, re.M), output


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "noise": lambda data: data[: len(data) // 3] + os.urandom(50) + data[len(data) // 3 :],
    "another": lambda data: b'["not", "it"]\n',
}


@pytest.mark.parametrize("damage", DAMAGES)
@some("file", ["study.json", "journal.jsonl"], 4)
@pytest.mark.parametrize("name", ["failed", "killed"])
def test_damaged_study_hides_no_other_study(answer: Answer, tmp_path: Path, name: str, file: str, damage: str) -> None:
    damaged = tmp_path / "multirun" / name / file
    damaged.write_bytes(DAMAGES[damage](damaged.read_bytes()))
    code, listed = answer("list")
    assert code == 0
    assert "2 of 2" in listed
    for words in (["status", name], ["report", name], ["stop", name], ["resume", name, "--retry", "failed"]):
        code, output = answer(*words)
        if file == "journal.jsonl" and damage == "cut" and "cannot be read" not in output:
            continue  # because a last line without a newline was never written
        assert code == 2, output
        assert f"{damaged} cannot be read: " in output
        assert str(damaged) in listed
        assert len(output.splitlines()) <= 2
        assert ("Repair it with: " in output) or ("type the command that started study" in output)


@some(
    "file",
    [
        "0/trial.json",
        "1/metrics.jsonl",
        "1/attempts/1/queued.json",
        "1/attempts/1/started",
        "1/attempts/1/alive",
        "1/.hydra/overrides.yaml",
        "driver.lock",
        "multirun.yaml",
    ],
    4,
)
@pytest.mark.parametrize("damage", DAMAGES)
def test_other_damaged_files_hide_no_trial(answer: Answer, tmp_path: Path, file: str, damage: str) -> None:
    damaged = tmp_path / "multirun" / "killed" / file
    damaged.write_bytes(DAMAGES[damage](damaged.read_bytes()))
    for words in (["list"], ["status", "killed"], ["report", "killed"], ["stop", "killed"]):
        code, output = answer(*words)
        assert code == 0, output
    assert "0 of 3 trials have ended" in answer("status", "killed")[1]


@some(
    "content",
    [
        *("5", "null", "[]", '"x"', "{}", "[" * 5000),
        '{"total": null}',
        '{"command": "rm"}',
        '{"size": "x"}',
        '{"parameters": {"x": [1]}}',
        '{"objective": []}',
        '{"directions": ["up"]}',
        '{"search": {"points": "5"}}',
        '{"search": {"sampler": "5"}}',
        '{"sweep_dir": [null]}',
        '{"working_folder": "\\ud800"}',
        "a folder",
        '{"config": %s}' % ("[" * 300 + "]" * 300),
        '{"total": 1%s}' % ("0" * 400),
    ],
    4,
)
def test_definition_of_other_types_hides_no_other_study(answer: Answer, tmp_path: Path, content: str) -> None:
    file = tmp_path / "multirun" / "failed" / "study.json"
    whole = json.loads(file.read_text())
    is_part = content.startswith('{"')
    file.unlink()
    if content == "a folder":
        file.mkdir()
    else:
        file.write_text(json.dumps({**whole, **json.loads(content)}) if is_part else content)
    code, listed = answer("list")
    assert code == 0 and "2 of 2" in listed and f"{file} cannot be read" in listed
    for command in ("status", "best", "report"):
        code, output = answer(command, "failed")
        assert (code, len(output.splitlines())) == (2, 2), output


@pytest.mark.parametrize(
    "change",
    [
        {"params": {"+x": {"a": 1}}},
        {"params": [1]},
        {"attempts": [5]},
        {"attempts": [{"state": "completed", "objective": {"a": 1}}]},
        {"attempts": [{"state": "completed", "metrics": [1]}]},
        {"attempts": [{"state": "completed", "ended_at": 1e30}]},
        {"line": None},
    ],
)
def test_journal_of_other_types_hides_no_other_study(answer: Answer, tmp_path: Path, change: dict[str, object]) -> None:
    file = tmp_path / "multirun" / "failed" / "journal.jsonl"
    events = [json.loads(line) for line in file.read_text().splitlines()]
    changed = [{**event, **change} if change.keys() & event.keys() else event for event in events]
    file.write_text("".join(f"{json.dumps(event)}\n" for event in changed))
    code, listed = answer("list")
    assert code == 0 and "2 of 2" in listed and f"{file} cannot be read" in listed
    assert len(answer("status", "failed")[1].splitlines()) == 2


def test_missing_definition_is_named(answer: Answer, tmp_path: Path) -> None:
    (file := tmp_path / "multirun" / "failed" / "study.json").unlink()
    missing = f"{file} is missing.\nTo repair it, type the command that started study failed again\n"
    assert answer("status", "failed") == (2, missing)
    assert missing.splitlines()[0] in answer("list")[1].replace("multirun", f"{tmp_path}/multirun")


def test_best_writes_no_file_by_default(answer: Answer, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, output = answer("best", "good")
    assert code == 0 and "sweepyard best good --write && " in output
    assert sorted(tmp_path.rglob("*")) == before
    assert answer("best", "good", "--write")[0] == 0
    assert (tmp_path / "multirun" / "good" / "experiment" / "best.yaml").exists()


def test_folder_in_place_of_a_lock_affects_one_study(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(migrated, tmp_path)}")
    file = tmp_path / "multirun" / "failed" / "driver.lock"
    file.unlink()
    file.mkdir()
    code, listed = answer("list")
    assert code == 0 and "2 of 2" in listed and f"{file}: Is a directory" in listed
    for study in (tmp_path / "multirun").iterdir():
        settings = study / "multirun.yaml"
        settings.write_text(settings.read_text().replace("tracking: false", "tracking: true"))
    code, output = answer("sync")
    assert code == 3 and "study good: sent 2 of 2 trials" in output and "Is a directory" in output


def test_list_names_studies_in_subfolders_alone(answer: Answer, tmp_path: Path) -> None:
    group = tmp_path / "multirun" / "group"
    group.mkdir()
    for study in (tmp_path / "multirun").glob("*/study.json"):
        study.parent.rename(group / study.parent.name)
    code, listed = answer("list")
    assert code == 0 and "group contains study good. List it: sweepyard list --root multirun/group" in listed


def test_folder_in_place_of_an_outcome_hides_no_trial(answer: Answer, tmp_path: Path) -> None:
    (end := tmp_path / "multirun" / "killed" / "1" / "attempts" / "1" / "end.json").mkdir()
    code, output = answer("status", "killed")
    assert code == 0 and "0 of 3 trials have ended" in output, (end, output)


def test_resuming_repairs_a_corrupt_study(studies: Path, tmp_path: Path) -> None:
    shutil.copytree(studies / "multirun" / "failed", tmp_path / "multirun" / "failed")
    study = tmp_path / "multirun" / "failed"
    whole = (study / "journal.jsonl").read_bytes()
    (study / "journal.jsonl").write_bytes(DAMAGES["noise"](whole))
    definition = json.loads((study / "study.json").read_text())
    (study / "study.json").write_text(json.dumps({**definition, "working_folder": str(tmp_path)}))
    (study / "1" / "trial.json").write_text("\x00")
    (study / "2" / "trial.json").unlink()
    done = sweeps(tmp_path, "resume", "failed")
    assert done.code == 1, done.said
    assert f"{study / 'journal.jsonl'} cannot be read: line" in done.out
    assert "Later events were restored from the trials' folders (old file: " in done.out
    assert [row.state for row in rows(study)] == ["completed", "failed", "failed"]
    assert [len(row.attempts) for row in rows(study)] == [1, 1, 1]
    assert [row.params for row in rows(study)] == [{"+how": how} for how in ("fine", "raises", "exits")]


def test_list_counts_pruned_and_failed_trials(answer: Answer) -> None:
    lines = [re.split(r"\s*[│┃]\s*", line)[1:-1] for line in answer("list")[1].splitlines() if line[0] in "│┃"]
    assert lines[0] == ["study", "trials", "failed", "best"]  # without the columns that would be empty
    counts = {name: (trials, failed) for name, trials, failed, *_ in lines[1:]}
    assert counts == {"good": ("2 of 2", ""), "failed": ("3 of 3", "2"), "killed": ("0 of 3", "")}


def test_list_counts_infeasible_trials_as_pruned(answer: Answer, tmp_path: Path) -> None:
    study, _ = read("killed", tmp_path / "multirun")
    record = Record(study)
    record.open()
    record.end(record.trials[2].with_end(Outcome(State.INFEASIBLE, "it is too large")))
    assert re.search(r"killed +│ 1 of 3 +│ 1 +│ +│", answer("list")[1])


def test_list_has_one_line_per_study_at_80_columns(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    journal = tmp_path / "multirun" / "good" / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"+x"', '"a.parameter.of.a.very.long.name.indeed"'))
    lock = Lock(journal.with_name("driver.lock"))
    shown = answer("list")[1]
    lock.release()
    lines = [line for line in shown.splitlines() if line[0] in "│┃"]
    assert "a.par" in shown and "process" in shown
    assert [re.split(r"\s*[│┃]\s*", line)[1] for line in lines[1:]] == ["killed", "failed", "good"]
    assert all(len(line) <= 80 for line in lines)


def test_help_shows_no_flag_types_and_no_braces(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = answer("--help")[1]
    assert "..." not in shown.partition("Commands:")[2]  # because each command's summary is a whole sentence
    for name in re.findall(r"^  (\w+)  ", shown.partition("Commands:")[2], re.M):
        shown += answer(name, "--help")[1]
    assert "bool" not in shown and "{" not in shown
    assert "sweepyard status [OPTIONS] NAME\n" in shown and "sweepyard ui [OPTIONS] [NAME]...\n" in shown


def test_status_asks_slurm_only_without_a_driver(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "multirun" / "killed"
    for trial in study.glob("[0-9]*"):
        (trial / "attempts" / "9" / "slurm").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\necho asked >> $0.log\n")
    (tmp_path / "bin" / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    lock = Lock(study / "driver.lock")
    assert answer("status", "killed")[0] == 0
    assert not (tmp_path / "bin" / "squeue.log").exists()
    lock.release()
    assert answer("status", "killed")[0] == 0
    assert (tmp_path / "bin" / "squeue.log").read_text() == "asked\n"


def test_list_prints_whole_names(answer: Answer, tmp_path: Path) -> None:
    name = "optimizers_and_learning_rates_of_the_second_network_2026-11-22"
    shutil.copytree(tmp_path / "multirun" / "good", tmp_path / "multirun" / name)
    assert f" {name} " in answer("list")[1]
    (tmp_path / "empty").mkdir()
    assert answer("list", "--root", "empty") == (0, "there are no studies in empty; start one with sweep.py -m\n")


def test_archived_study_is_reported(answer: Answer, tmp_path: Path) -> None:
    packed = tmp_path / "multirun" / "archive" / "old.tar.gz"
    packed.parent.mkdir()
    packed.touch()
    message = (
        "study old is packed in multirun/archive/old.tar.gz\nUnpack it with: tar -xzf multirun/archive/old.tar.gz -C"
    )
    assert answer("status", "old") == (2, f"{message} multirun\n")


def test_sync_adds_missing_records_to_mlflow(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    code, output = answer("sync")
    assert code == 0
    assert "study good is not tracked in MLflow. Send it: sweepyard sync good\n" in output
    assert not (tmp_path / "mlflow.db").exists()
    shutil.copy(migrated, tmp_path / "mlflow.db")
    code, output = answer("sync", "good")
    assert code == 0
    assert "study good: sent 2 of 2 trials to MLflow\ndashboard: sweepyard ui good" in output
    assert "study failed: sent 3 of 3 trials to MLflow" in answer("sync", "failed")[1]
    message = "study killed: MLflow is up to date; 2 trials not ended yet"
    assert message in answer("sync", "killed")[1]
    code, output = answer("sync", "good")
    assert (code, output.splitlines()[0]) == (0, "study good: MLflow is up to date")
    assert answer("status", "good")[1].endswith("dashboard: sweepyard ui good\n")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://h:1")
    assert "dashboard: http://h:1/#/experiments/1/runs?workflowType=machine_learning&" in answer("status", "good")[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    damaged = tmp_path / "multirun" / "good" / "multirun.yaml"
    damaged.write_text("{")
    code, output = answer("sync", "good")
    assert code == 2 and f"{damaged} cannot be read: " in output and "sweepyard resume good" in output


@pytest.mark.parametrize("words", [["ui"], ["sync"], ["resume"], ["delete"]])
def test_study_without_a_working_folder_is_refused(answer: Answer, tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "multirun" / "good" / "study.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "working_folder": "/gone/away"}))
    code, output = answer(words[0], "good", *words[1:])
    assert code == 2
    assert "study good: its working folder /gone/away does not exist.\nCreate the folder, or a link to" in output
    assert file.exists()


def test_sync_skips_a_study_with_a_running_driver(answer: Answer, tmp_path: Path) -> None:
    lock = Lock(tmp_path / "multirun" / "good" / "driver.lock")
    code, output = answer("sync", "good")
    lock.release()
    assert code == 0 and f"study good is being run by process {os.getpid()} on" in output


def test_command_that_another_user_could_have_changed_is_not_run(answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "multirun" / "good" / "study.json").chmod(0o664)
    code, output = answer("resume", "good")
    assert code == 2
    assert "another user could have changed the command in it.\nCheck it, then type it: " in output


def test_resume_of_a_renamed_or_copied_study(studies: Path, answer: Answer, tmp_path: Path) -> None:
    study = tmp_path / "multirun" / "good"
    content = json.loads((study / "study.json").read_text())
    (study / "study.json").write_text(json.dumps({**content, "working_folder": str(tmp_path)}))
    shutil.copytree(study, study.with_name("copied"))
    code, output = answer("resume", "copied")
    assert code == 2
    assert "copied is a copy of study good. Resume the study itself: sweepyard resume good" in output.replace("\n", " ")
    renamed = study.rename(study.with_name("renamed"))
    code, output = answer("resume", "renamed")
    assert code == 2
    assert f"Move the folder first: mv {renamed} {study.parent / content['name']}" in output.replace("\n", " ")


def test_typing_mistake_is_refused_with_the_alternatives(tmp_path: Path) -> None:
    arguments: dict[str, list[str]] = {"sttaus": ["sttaus", "x"], "nothing": [], "no name": ["status"]}
    results: dict[str, Done] = run_all({name: ["-m", "sweeps", *words] for name, words in arguments.items()}, tmp_path)
    assert results["sttaus"].err == "sttaus: there is no such command.\nType: sweepyard status x\n"
    assert "resume" in results["nothing"].said
    assert "status: the name of a study is missing.\nThere are no studies yet" in results["no name"].err
    assert all(result.code == 2 for result in results.values())
