"""The states of jobs from squeue and sacct: good, slow, failing and missing answers, and a real cluster."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm, slurm, wait_for

from sweeps.launchers.slurm import queue
from sweeps.launchers.slurm.follow import watcher
from sweeps.launchers.slurm.follow.listing import GONE, JobInfo, Listing
from sweeps.launchers.slurm.follow.watcher import FollowedJob, Pace, Watcher, judge
from sweeps.launchers.slurm.queue import SlurmError, cancel, sacct, squeue


def run_job(*options: str) -> str:
    return slurm("sbatch", "--parsable", "--output=/dev/null", *options).strip()


def watch(name: str, job_id: str) -> tuple[Watcher, FollowedJob]:
    """Return a watcher that asks SLURM only when the test updates the watcher, and the watched job."""
    job = FollowedJob(Path(), name, job_id)
    return Watcher({name: job}, 3600), job


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_ABSENT_S", 0.05)


@pytest.mark.long
def test_sacct_reports_ends_and_cancelling_users(cluster: None) -> None:
    mark = str(time.time_ns())
    options = {"ends": ["--wrap=true"], "fails": ["--wrap=exit 3"], "waits": ["--hold", "--wrap=true"]}
    ids = [run_job(f"--job-name={name}-{mark}", *words) for name, words in options.items()]
    slurm("scancel", ids[2])
    expected = [("COMPLETED", None), ("FAILED", None), ("CANCELLED", str(os.getuid()))]
    jobs: Any = {}

    def have_ended() -> bool:
        nonlocal jobs
        jobs = sacct(ids)
        listed = [jobs[f"{name}-{mark}"] for name in options if f"{name}-{mark}" in jobs]
        return [(info.state, info.by) for info in listed] == expected

    wait_for(have_ended, 30)


@pytest.mark.parametrize(
    "script, expected",
    [
        ("sleep 5", None),
        ("echo 'sacct: error: no slurmdbd' >&2; exit 1", None),
        ("echo '7|COMPLETED|a-study-1.1-none'", JobInfo("7", "COMPLETED")),
        ("echo '7|CANCELLED by 12|a-study-1.1-none'", JobInfo("7", "CANCELLED", by="12")),
        ("echo '7|CANCELLED|a-study-1.1-none'", JobInfo("7", "CANCELLED", by="SLURM")),
        ("echo '7|COMPLETED|a-study-1.1-none'; echo '7.0|OUT_OF_MEMORY|x'", JobInfo("7", "OUT_OF_MEMORY")),
        ("echo '8|COMPLETED|somebody-elses'; echo '7|'; echo", None),  # the recorded id is another job's
    ],
)
def test_a_job_that_squeue_forgot(
    scripted_slurm: ScriptedSlurm, impatient: None, monkeypatch: Any, script: str, expected: JobInfo | None
) -> None:
    monkeypatch.setattr(queue, "_TIMEOUT_S", 0.5 if "sleep" in script else 10.0)
    scripted_slurm.say("sacct", script)
    watcher, job = watch("a-study-1.1-none", "7")
    watcher.update()
    first = job.info
    time.sleep(0.1)
    watcher.update()
    second = job.info
    assert first == expected  # because one missing answer does not prove an end
    assert second == (expected or JobInfo("7", GONE))


MINE, ELEMENT, SIBLING = "s-1.1-00000000", "s-a.1-00000000_1", "s-a.1-00000000_2"
OWN = str(os.getuid())


def listing(*rows: str) -> Listing:
    """Return a listing of rows such as `7 RUNNING name` and `7 CANCELLED name 12`, which ends with who cancelled it."""
    jobs = Listing()
    for row in rows:
        job_id, state, name, *by = row.split()
        jobs.add(name, JobInfo(job_id, state, by=by[0] if by else None))
    return jobs


@pytest.mark.parametrize(
    ("absent_s", "accounted", "squeue_rows", "sacct_rows", "state", "by", "absent"),
    [
        (None, False, [], [], "RUNNING", None, True),  # because one missing answer does not prove an end
        (29, False, [], [], "RUNNING", None, True),
        (31, False, [], [], GONE, None, True),
        (31, True, [], [], "RUNNING", None, True),  # because the accounting had it alive
        (301, True, [], [], GONE, None, True),
        (301, False, [], [f"7 RUNNING {MINE}"], GONE, None, True),  # a runaway job
        (None, False, [], [f"7 RUNNING {MINE}"], "RUNNING", None, True),
        (31, False, [], [f"7 COMPLETED {MINE}"], "COMPLETED", None, False),
        (31, False, [], [f"7 CANCELLED {MINE} 12"], "CANCELLED", "12", False),
        (31, False, [], [f"7 CANCELLED {MINE}"], "CANCELLED", "SLURM", False),
        (31, False, [], ["7 COMPLETED x-2.1-00000000"], GONE, None, True),  # an id that was given twice
        (None, False, [f"7 CANCELLED {MINE}"], [], "RUNNING", None, False),
        (None, False, [f"7 CANCELLED {MINE}"], [f"7 CANCELLED {MINE} 12"], "CANCELLED", "12", False),
        (None, False, [f"7 CANCELLED {MINE}"], [f"7 RUNNING {MINE}"], "RUNNING", None, False),
    ],
)
def test_verdicts_on_unclear_jobs(
    absent_s: float | None,
    accounted: bool,
    squeue_rows: list[str],
    sacct_rows: list[str],
    state: str,
    by: str | None,
    absent: bool,
) -> None:
    absent_since = None if absent_s is None else 1000 - absent_s
    job = FollowedJob(Path("nowhere"), MINE, "7", info=JobInfo("7", "RUNNING"))
    job = replace(job, absent_since=absent_since, accounted=accounted)
    judge(job, listing(*squeue_rows), listing(*sacct_rows), 1000.0)
    assert job.info and (job.info.state, job.info.by) == (state, by)
    assert (job.absent_since is not None) == absent


@pytest.mark.parametrize(
    ("was_pending", "squeue_rows", "sacct_rows", "absent_s", "state", "by"),
    [
        (True, [f"7_2 RUNNING {SIBLING}"], [], 29, "PENDING", None),
        (True, [f"7_2 RUNNING {SIBLING}"], [], 31, "CANCELLED", OWN),  # because it was cancelled alone
        (False, [f"7_2 RUNNING {SIBLING}"], [], 31, GONE, None),
        (False, [], [f"7_2 RUNNING {SIBLING}"], 31, "CANCELLED", OWN),
        (True, [], ["7 CANCELLED s-a.1-00000000 12"], 1, "CANCELLED", "12"),  # together, before they started
    ],
)
def test_verdicts_on_elements_of_arrays(
    was_pending: bool, squeue_rows: list[str], sacct_rows: list[str], absent_s: float, state: str, by: str | None
) -> None:
    info = JobInfo("7_1", "PENDING")
    job = FollowedJob(Path("nowhere"), ELEMENT, "7_1", Path("array"), info=info, was_pending=was_pending)
    job.absent_since = 1000 - absent_s
    judge(job, listing(*squeue_rows), listing(*sacct_rows), 1000.0)
    assert job.info and (job.info.state, job.info.by) == (state, by)


def test_job_that_is_listed_again_is_not_absent(scripted_slurm: ScriptedSlurm) -> None:
    watcher, job = watch("mine", "7")
    watcher.update()
    assert job.absent_since is not None
    (scripted_slurm.folder / "taken").write_text("1 mine\n")
    scripted_slurm.list("RUNNING")
    watcher.update()
    assert (job.info, job.absent_since) == (JobInfo("1", "RUNNING", "None"), None)


def missing(scripted_slurm: ScriptedSlurm, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(scripted_slurm.folder))
    (scripted_slurm.folder / "sacct").unlink()


def cannot_fork(scripted_slurm: ScriptedSlurm, monkeypatch: Any) -> None:
    def run(*args: Any, **settings: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", run)


def talks_nonsense(scripted_slurm: ScriptedSlurm, monkeypatch: Any) -> None:
    monkeypatch.setattr(watcher, "squeue", lambda: None)


@pytest.mark.parametrize(
    "break_slurm, problem",
    [(missing, "sacct cannot be run"), (cannot_fork, "squeue cannot be run"), (talks_nonsense, "cannot be queried")],
)
def test_watcher_survives_and_reports_errors(
    scripted_slurm: ScriptedSlurm, monkeypatch: Any, break_slurm: Callable[..., None], problem: str
) -> None:
    scripted_slurm.say("squeue", "/bin/cat $F/jobs")
    (scripted_slurm.folder / "taken").write_text("1 here\n")
    scripted_slurm.list("RUNNING")
    break_slurm(scripted_slurm, monkeypatch)
    job = FollowedJob(Path(), "here", None)
    watcher = Watcher({"here": job, "a": FollowedJob(Path(), "a", "7")}, 0.01)
    watcher.start()
    wait_for(lambda: problem in watcher.problem, 5)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(scripted_slurm.folder), prepend=":")
    wait_for(lambda: job.info == JobInfo("1", "RUNNING", "None"), 5)
    watcher.stop()


@pytest.mark.parametrize("command", ["squeue", "sacct"])
def test_answer_without_a_table_is_no_answer(scripted_slurm: ScriptedSlurm, command: str) -> None:
    scripted_slurm.say(command, "head -c 3000 /dev/urandom")
    with pytest.raises(SlurmError, match=f"^the output of {command} cannot be read$"):
        queue.squeue() if command == "squeue" else queue.sacct(["1"])
    scripted_slurm.say(command, "echo 'This site is down on Sunday'")
    assert (queue.squeue() if command == "squeue" else queue.sacct(["1"])) == {}


def test_an_outage_lasts_until_slurm_answers_though_no_job_is_left(scripted_slurm: ScriptedSlurm) -> None:
    scripted_slurm.say("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    jobs = {"mine": FollowedJob(Path(), "mine", "1")}
    watcher = Watcher(jobs, 0.01)
    watcher.start()
    wait_for(lambda: "Unable to contact" in watcher.problem, 5)
    jobs.clear()
    time.sleep(0.1)
    assert "Unable to contact" in watcher.problem
    scripted_slurm.say("squeue", "true")
    wait_for(lambda: not watcher.problem, 5)
    watcher.stop()


def test_hanging_accounting_does_not_delay_answers_of_squeue(scripted_slurm: ScriptedSlurm) -> None:
    forgotten, mine = FollowedJob(Path(), "forgotten", "9"), FollowedJob(Path(), "mine", "1")
    watcher = Watcher({"forgotten": forgotten, "mine": mine}, 3600)
    (scripted_slurm.folder / "taken").write_text("1 mine\n")
    scripted_slurm.list("FAILED")
    scripted_slurm.say("sacct", 'touch "$F/asked"; while [ -e "$F/asked" ]; do sleep 0.05; done')
    asking = threading.Thread(target=watcher.update)
    asking.start()
    wait_for((scripted_slurm.folder / "asked").exists, 5)
    assert (mine.info, forgotten.info) == (JobInfo("1", "FAILED", "None"), None)
    (scripted_slurm.folder / "asked").unlink()
    asking.join()


def test_squeue_of_a_user_with_odd_jobs(scripted_slurm: ScriptedSlurm) -> None:
    rows = [
        "1|RUNNING|None|a|b",
        "2|CANCELLED|None|twice",
        "3|PENDING|Priority|twice",
        "4|FAILED|None|twice",
        "",
        "odd",
    ]
    (scripted_slurm.folder / "jobs").write_bytes("\n".join(rows).encode() + b"\n5|RUNNING|None|\xff\n")
    assert {name: info.id for name, info in squeue().items()} == {"a|b": "1", "twice": "3", "\ufffd": "5"}


def test_canceller_is_asked_once_for_each_job(scripted_slurm: ScriptedSlurm, impatient: None) -> None:
    (scripted_slurm.folder / "taken").write_text("1 mine\n")
    watcher, job = watch("mine", "1")
    scripted_slurm.list("CANCELLED")
    scripted_slurm.say("sacct", "echo '1|RUNNING|mine'")  # the accounting is late
    watcher.update()
    assert job.info == JobInfo("1", "CANCELLED", "None")
    scripted_slurm.say("sacct", "echo '1|CANCELLED by 0|mine'")
    watcher.update()
    assert job.info == JobInfo("1", "CANCELLED", by="0")
    scripted_slurm.say("sacct", 'echo again >> "$F/asked"')
    watcher.update()
    assert job.info.by == "0"
    assert not scripted_slurm.lines("asked")


def test_error_of_scancel_is_reported(scripted_slurm: ScriptedSlurm, tmp_path: Path, monkeypatch: Any) -> None:
    cancel(["1", "2"])
    cancel(["3"], pending_only=True)
    assert scripted_slurm.lines("scancelled") == ["1 2", "--state=PENDING 3"]
    scripted_slurm.say("scancel", "echo 'scancel: error: Invalid job id specified' >&2; exit 1")
    cancel(["1"])
    scripted_slurm.say("scancel", "echo 'scancel: error: no controller' >&2; exit 1")
    with pytest.raises(SlurmError, match="no controller"):
        cancel(["1"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="scancel cannot be run"):
        cancel(["1"])


def test_pace_slows_down_while_nothing_changes() -> None:
    pace, now, state = Pace(5), 0.0, "pending"
    queries = []
    for _ in range(2000):  # a second each
        now += 1
        state = "running" if now > 1000 else state
        if pace.is_due(state, now):
            queries.append(now)
            pace.add_query(state, now)
    gaps = [after - before for before, after in pairwise(queries)]
    assert gaps[:5] == [5, 10, 20, 40, 60]
    assert max(gaps) <= 61
    assert gaps.count(60) > 20
    after = [query for query in queries if query > 1000]
    assert after[0] == 1001  # at once
    assert after[1] - after[0] == 5
    assert len(queries) < 50


def test_element_that_was_cancelled_alone_has_no_record(scripted_slurm: ScriptedSlurm, impatient: None) -> None:
    scripted_slurm.say("squeue", "echo '7_0|RUNNING|None|mine'")
    scripted_slurm.say("sacct", "echo '7_0|RUNNING|mine'; echo '7_[2-3%2]|PENDING|mine'")
    elements = {f"mine_{i}": FollowedJob(Path(), f"mine_{i}", f"7_{i}", Path()) for i in range(4)}
    watcher = Watcher(elements, 3600)
    for _ in range(2):
        watcher.update()
        time.sleep(0.06)
    watcher.update()
    states = [job.info and job.info.state for job in elements.values()]
    assert states == ["RUNNING", "CANCELLED", "PENDING", "PENDING"]


@pytest.mark.parametrize(("log", "ended"), [(False, "CANCELLED"), (True, GONE)])
def test_pending_element_that_vanished_is_cancelled_without_accounting(
    scripted_slurm: ScriptedSlurm, impatient: None, tmp_path: Path, log: bool, ended: str
) -> None:
    scripted_slurm.say("squeue", "echo '7_0|RUNNING|None|mine'; echo '7_1|PENDING|None|mine'")
    elements = {f"mine_{i}": FollowedJob(tmp_path / str(i), f"mine_{i}", f"7_{i}", Path()) for i in range(2)}
    watcher = Watcher(elements, 3600)
    watcher.update()
    if log:
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "log").touch()
    scripted_slurm.say("squeue", "echo '7_0|RUNNING|None|mine'")
    for _ in range(2):
        watcher.update()
        time.sleep(0.06)
    watcher.update()
    states = [job.info and job.info.state for job in elements.values()]
    assert states == ["RUNNING", ended]


@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        ("#SBATCH --clusters=a\nsrun x", "a"),
        ("#SBATCH --time=1\nsrun x", ""),
        ("#SBATCH --clusters='a", None),
        ("#SBATCH --clusters=", None),
        ("", None),
    ],
)
def test_cluster_of_a_script_that_may_be_cut(tmp_path: Path, text: str, cluster: str | None) -> None:
    script = tmp_path / "0" / "attempts" / "1" / "slurm" / "7_submission.sh"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/bash\n{text}")
    assert queue.cluster_of(tmp_path) == cluster


def test_elements_that_were_cancelled_together_share_a_record(scripted_slurm: ScriptedSlurm) -> None:
    scripted_slurm.say("squeue", "echo '7_0|RUNNING|None|mine'; echo '7|CANCELLED|Resources|mine'")
    scripted_slurm.say("sacct", "echo '7_0|RUNNING|mine'; echo '7|CANCELLED by 12|mine'")
    elements = {f"mine_{i}": FollowedJob(Path(), f"mine_{i}", f"7_{i}", Path()) for i in range(2)}
    Watcher(elements, 3600).update()
    infos = [job.info for job in elements.values()]
    assert infos == [JobInfo("7_0", "RUNNING", "None"), JobInfo("7_1", "CANCELLED", by="12")]


@pytest.mark.parametrize(
    ("listed", "job_id"),
    [
        ({"7": "a-0.1-12345678"}, "7"),
        ({"7": "renamed"}, "7"),
        ({"7": "b-0.1-12345678"}, None),  # another job of ours has this id
        ({"7": "b-0.1-12345678", "8": "a-0.1-12345678"}, "8"),
        ({"8": "a-0.1-12345678"}, "8"),
        ({}, None),
    ],
)
def test_job_is_found_by_its_id_or_its_name(listed: dict[str, str], job_id: str | None) -> None:
    jobs = Listing()
    for number, name in listed.items():
        jobs.add(name, JobInfo(number, "RUNNING"))
    info = jobs.find("a-0.1-12345678", "7")
    assert (info and info.id) == job_id
