"""The submission of a job to SLURM, with an sbatch whose answers a test chooses."""

import errno
import os
import pickle
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm

from sweeps.base.files import CorruptFile, read_json
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.inside.in_job import main, print_safely
from sweeps.launchers.slurm.queue import name_of, read_job_id
from sweeps.launchers.slurm.script import submit as module
from sweeps.launchers.slurm.script.request import parameters
from sweeps.launchers.slurm.script.submit import BusyError, RefusedError, UnansweredError, submit, write_call


def send(attempt: Path, *call: Any) -> str:
    write_call(attempt, SlurmLauncherConf(), *call)
    return submit(attempt, parameters(attempt, SlurmLauncherConf()))


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    folder = tmp_path / "a study" / "7" / "attempts" / "2"
    folder.mkdir(parents=True)
    return folder


def test_a_job_is_named_by_its_folder_and_its_files_are_its_owners_alone(
    scripted_slurm: ScriptedSlurm, attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        assert send(attempt, print, "x") == "1"
    finally:
        os.umask(before)
    assert scripted_slurm.names == [name_of(attempt)]
    assert name_of(attempt).startswith("a_study-7.2-")
    monkeypatch.chdir(attempt.parent)
    assert name_of(Path("2")) == name_of(attempt)
    assert read_job_id(attempt) == "1"
    assert stat.S_IMODE((attempt / "slurm").stat().st_mode) == 0o700
    assert [file.name for file in attempt.iterdir() if file.suffix in (".pkl", ".sh")] == []
    script = (scripted_slurm.folder / "script").read_text()
    assert f"--output='{attempt}/log'" in script


def test_job_reads_only_files_of_its_user(
    scripted_slurm: ScriptedSlurm, attempt: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    send(attempt, print, "carried out")
    monkeypatch.setattr("sys.argv", ["-c", str(attempt / "slurm")])
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    main()
    assert capsys.readouterr().out == "carried out\n"
    call = attempt / "slurm" / "call.pkl"
    whole = call.read_bytes()
    call.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SystemExit, match=r"call\.pkl cannot be read"):
        main()
    call.write_bytes(pickle.dumps(None))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(SystemExit, match="belongs to user") as refused:
        main()
    assert isinstance(refused.value.__cause__, CorruptFile)


def no_room(number: int) -> None:
    raise OSError(number, "as a disk says", "end.json")


@pytest.mark.parametrize(
    ("number", "left"),
    [(errno.ENOSPC, ["errno.28"]), (errno.EFBIG, ["errno.27"]), (errno.EROFS, ["errno.30"]), (2, [])],
)
def test_a_job_leaves_word_of_a_disk_that_takes_none(
    scripted_slurm: ScriptedSlurm,
    attempt: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    number: int,
    left: list[str],
) -> None:
    send(attempt, no_room, number)
    monkeypatch.setattr("sys.argv", ["-c", str(attempt / "slurm")])
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises((OSError, SystemExit)) as raised:
        main()
    if left:
        assert raised.value.args == (os.EX_IOERR,)
        assert capsys.readouterr().err.endswith(f"OSError: [Errno {number}] as a disk says: 'end.json'\n")
    assert [file.name for file in (attempt / "slurm").glob("errno*")] == left


def test_full_disk_does_not_stop_the_submission_after_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        print_safely("retrying")
        with suppress(OSError):  # because close() writes the buffer
            full.close()


def test_driver_inside_a_job_hides_the_job_from_its_trials(
    scripted_slurm: ScriptedSlurm, attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_job = {"SLURM_JOB_ID": "3", "SLURM_MEM_PER_CPU": "9", "SBATCH_EXCLUSIVE": "1", "PMI_RANK": "0", "PMIX_X": "1"}
    for name, value in {**of_a_job, "SLURM_CONF": "/etc/here", "MINE": "yes"}.items():
        monkeypatch.setenv(name, value)
    send(attempt, print)
    variables = dict(line.split("=", 1) for line in scripted_slurm.lines("environment") if "=" in line)
    assert not variables.keys() & of_a_job.keys()
    assert (variables["SLURM_CONF"], variables["MINE"]) == ("/etc/here", "yes")


def test_a_driver_on_a_login_node_keeps_its_habits(
    scripted_slurm: ScriptedSlurm, attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "usual")
    send(attempt, print)
    assert "SBATCH_PARTITION=usual" in scripted_slurm.lines("environment")


@pytest.mark.parametrize(
    ("script", "expected", "words"),
    [
        ("echo 'sbatch: error: invalid partition' >&2; exit 1", RefusedError, "invalid partition"),
        ("echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1", BusyError, "QOSMaxSubmit"),
        ("echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1", BusyError, "Unable to contact"),
        ("echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1", UnansweredError, "timed out"),
        ("sleep 5", UnansweredError, "longer than"),
        ("trap '' TERM; sleep 5", UnansweredError, "longer than"),  # as a site's own sbatch may be
        ("echo hello", UnansweredError, "hello"),
    ],
)
def test_answers_of_sbatch(
    scripted_slurm: ScriptedSlurm, attempt: Path, monkeypatch: Any, script: str, expected: Any, words: str
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.3 if "sleep" in script else 10.0)
    scripted_slurm.say("sbatch", script)
    with pytest.raises((RefusedError, BusyError), match=words) as raised:
        send(attempt, print)
    assert raised.type is expected
    assert read_job_id(attempt) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"id": 7}', '{"id": "7; rm"}', "\0\0", '{"name": "x"}'])
def test_a_ticket_that_cannot_be_read_is_none(attempt: Path, content: str) -> None:
    (attempt / "job.json").write_text(content)
    assert read_job_id(attempt) is None


def test_a_ticket_names_its_job(scripted_slurm: ScriptedSlurm, attempt: Path) -> None:
    send(attempt, print)
    assert read_json(attempt / "job.json") == {"name": name_of(attempt), "id": "1"}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("printf 'compte d\\351bit\\351\\n' >&2; echo 'Submitted batch job 5'", "the output of sbatch cannot be read"),
        ("head -c 3000 /dev/urandom", "the output of sbatch cannot be read"),
        ("exit 1", "^sbatch ended with 1$"),
        ("exit 124", "^sbatch took longer than 20 s. Check the controller"),
        ("true", ""),
    ],
)
def test_unknown_submission(scripted_slurm: ScriptedSlurm, attempt: Path, script: str, words: str) -> None:
    scripted_slurm.say("sbatch", script)
    with pytest.raises(UnansweredError, match=words):
        send(attempt, print, "x")
