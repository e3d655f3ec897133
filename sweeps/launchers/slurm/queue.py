"""The states of our SLURM jobs: one squeue for all jobs, and sacct for jobs that squeue no longer
lists.

The files by which the driver and a job find each other, in the folder of the attempt or the worker:

    job.json          the job's name and id, written after sbatch; or, before sbatch, the array and
                      the
                      index of the element                                                 (driver)
    slurm/call.pkl    the function that the job runs; slurm/ is private to its owner       (driver)
    slurm/setup.sh      the lines of `setup`, of mode 0600, until the job has read them   (driver)
    slurm/set_up      created when every line of `setup` has succeeded                     (job)
    slurm/set_up_failed   the status and the place of the command that failed before       (job)
    slurm/errno.<n>   the disk error that ended the job, because its log may be on that disk   (job)
    slurm/*.sh        the batch script from submitit                                       (driver)
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, read_json, write_whole
from sweeps.launchers.slurm import shell
from sweeps.launchers.slurm.follow.listing import ENDED, JobInfo, Listing

_SQUEUE = ["squeue", "--me", "--array", "--noheader", "--states=all", "--format=%i|%T|%r|%j"]
_SACCT = ["sacct", "--noheader", "--parsable2", "--format=JobID,State,JobName"]
_CLUSTERS = "SLURM_CLUSTERS"  # obeyed by all of SLURM's commands but sacct
_TYPED_CLUSTER = os.environ.get(_CLUSTERS)
_SCRIPTS = ("*/attempts/*", "workers/*/*", "arrays/*/*", "driver/jobs/*")
_TIMEOUT_S = 20  # because SLURM's commands would retry for minutes without a controller
_UNREACHABLE = re.compile(
    "contact slurm controller|Connection refused|configuration source|s_p_parse_file|timed out|took"
    " longer"
)
_HARMLESS = re.compile("Job/step already completing or completed|Invalid job id specified")
_CHECKS = (
    "Check the controller (scontrol ping) and SLURM_CONF, which must name the cluster's slurm.conf"
)

ELEMENTS = "elements"  # links to the folders of the attempts of an array, by index


def name_of(folder: Path) -> str:
    """Return the unique name of the SLURM job with its files in `folder`, such as
    study-trial.attempt-hash."""
    path = folder.resolve()
    study, trial = (re.sub(r"[^\w.-]", "_", path.parents[above].name)[:60] for above in (2, 1))
    digest = hashlib.blake2s(bytes(path), digest_size=4).hexdigest()
    return f"{study}-{trial}.{path.name}-{digest}"


def token_of(number: int, attempt: int) -> str:
    """Return the name of an attempt's file in the queue of workers, which sorts in the queue's
    order."""
    return f"{number:07}.{attempt:04}.job"


@dataclass(frozen=True)
class Ticket:
    """What identifies the job of an attempt or a worker: its name and, once sbatch or squeue has
    reported it, its id.

    The name of an element of an array is ARRAY_INDEX.
    """

    name: str
    id: str | None = None
    array: Path | None = None  # folder of its array


def write_job_id(folder: Path, job_id: str) -> None:
    content = {"name": name_of(folder), "id": job_id}
    write_whole(folder / "job.json", json.dumps(content), sync=False)


def write_element(array: Path, index: int, folder: Path) -> None:
    """Make the job of an attempt or a worker an element of the array, before sbatch. Raises
    OSError."""
    place = array / ELEMENTS / str(index)
    place.symlink_to(os.path.relpath(folder, place.parent))
    content = {"array": os.path.relpath(array, folder), "index": index}
    write_whole(folder / "job.json", json.dumps(content), sync=False)


def element_of(array: Path, index: int | str, array_id: str | None) -> Ticket:
    """Return the ticket of an element of an array, which has this id."""
    job_id = f"{array_id}_{index}" if array_id else None
    return Ticket(f"{name_of(array)}_{index}", job_id, array)


def read_ticket(folder: Path) -> Ticket:
    """Return the ticket by job.json; without an id if the file is missing, damaged, or copied from
    another folder."""
    name = name_of(folder)
    content: dict[str, Any] = {}
    with suppress(OSError, CorruptFile):
        content = read_json(folder / "job.json") or {}
    job_id = str(content.get("id"))
    if content.get("name") == name and job_id.isdecimal():
        return Ticket(name, job_id)
    index = str(content.get("index"))
    array = Path(os.path.normpath(folder / str(content.get("array"))))
    with suppress(OSError):
        if index.isdecimal() and (array / ELEMENTS / index).resolve() == folder.resolve():
            return element_of(array, index, read_job_id(array))
    return Ticket(name)


def read_job_id(folder: Path) -> str | None:
    return read_ticket(folder).id


class SlurmError(UserError):
    """A SLURM command failed or did not answer; the text is the reason."""


def squeue() -> Listing:
    """Return this user's jobs, including jobs that ended minutes ago (MinJobAge). Raises
    SlurmError."""
    jobs = Listing()
    for job_id, state, reason, array in rows(_SQUEUE, 4):
        jobs.add(_name_in(array, job_id), JobInfo(job_id, state, reason))
    return jobs


def sacct(ids: Iterable[str]) -> Listing:
    """Return the jobs with these ids, and the other elements of their arrays, from the accounting.

    Raises SlurmError.
    """
    jobs = Listing()
    jobs_and_arrays = dict.fromkeys(job_id.partition("_")[0] for job_id in ids)
    command = [*_SACCT, f"--jobs={','.join(jobs_and_arrays)}"]
    if _CLUSTERS in os.environ:
        command.append(f"--clusters={os.environ[_CLUSTERS]}")
    job_name = ""  # of the rows of a job, its steps follow
    for step_id, state, name in rows(command, 3):
        job_ids, _, step = step_id.partition(".")
        if not step:
            job_name = name
        words = state.split()  # such as CANCELLED by 0
        # because only the step has this state
        if not words or (step and words != ["OUT_OF_MEMORY"]):
            continue
        by = words[2] if len(words) == 3 else None
        for job_id in _elements(job_ids):
            jobs.add(_name_in(job_name, job_id), JobInfo(job_id, words[0], by=by))
    return jobs


def _name_in(name: str, job_id: str) -> str:
    """Return the name of a job, or of an element of the array `name`, by its id: 123 or 123_4."""
    _, is_element, index = job_id.partition("_")
    return f"{name}_{index}" if is_element else name


def _elements(job_ids: str) -> list[str]:
    """Return the ids in 123, 123_4 or, while elements of an array are pending, 123_[4-6,9%2]."""
    array, bracket, indices = job_ids.partition("[")
    if not bracket:
        return [job_ids]
    ids: list[str] = []
    for part in re.split("[]%]", indices)[0].split(","):
        first, _, last = part.partition("-")
        ids += [f"{array}{index}" for index in range(int(first), int(last or first) + 1)]
    return ids


def by_array(ids: Iterable[str]) -> list[str]:
    """Return the ids with one word for all elements of an array, because each word is one request
    to the controller."""
    arrays: dict[str, list[str]] = {}
    for job_id in ids:
        array, _, index = job_id.partition("_")
        arrays.setdefault(array, []).append(index)
    return [
        f"{array}_[{','.join(indices)}]" if any(indices) else array
        for array, indices in arrays.items()
    ]


def cancel(jobs: Sequence[str], pending_only: bool = False) -> None:
    """Cancel jobs, by ids or `--name=NAME`. Raises SlurmError if any of the jobs may still run."""
    state = ["--state=PENDING"] if pending_only else []
    try:
        answer(["scancel", *state, *jobs])
    except SlurmError as error:
        harmful = [line for line in str(error).splitlines() if not _HARMLESS.search(line)]
        if harmful:
            raise SlurmError("; ".join(harmful)) from error


def select_cluster(name: str | None) -> None:
    """Send all later SLURM commands of this process to a cluster; if None, to the user's own
    choice."""
    chosen = name or _TYPED_CLUSTER
    os.environ.pop(_CLUSTERS, None)
    if chosen:
        os.environ[_CLUSTERS] = chosen


def cluster_of(study: Path) -> str | None:
    """Return the cluster that a job of the study was submitted to by name; "" without a name, None
    without a job."""
    for pattern in _SCRIPTS:
        for script in study.glob(f"{pattern}/slurm/*submission*.sh"):
            text = script.read_text(errors="replace")
            if "\nsrun " in text:  # because the others were cut before sbatch
                match = re.search("^#SBATCH --clusters=(.*)$", text, re.MULTILINE)
                return shlex.split(match[1])[0] if match else ""
    return None


def choose_cluster(study: Path, name: str | None) -> None:
    """Choose the cluster for the study's jobs. Raises UserError if the study has jobs on another
    cluster."""
    former = cluster_of(study)
    if former not in (None, name or ""):
        raise UserError(
            f"hydra.launcher.clusters={name or 'null'}: this study has jobs on another cluster.\n"
            f"Type hydra.launcher.clusters={former or 'null'}, or another study_name"
        )
    select_cluster(name)


def living_jobs(study: Path, unfinished: Iterable[Path]) -> list[JobInfo]:
    """Return the queued and running jobs of the study's `unfinished` trials and workers. Raises
    SlurmError."""
    folders = [file.parent for trial in unfinished for file in trial.glob("attempts/[0-9]*/slurm")]
    folders += [file.parent for file in study.glob("workers/*/[0-9]*/slurm")]
    select_cluster(cluster_of(study))
    if not folders:
        return []
    jobs = squeue()
    ids = {info.id for info in living_in(jobs, folders)}
    return [info for info in jobs.by_id.values() if info.id in ids]  # in SLURM's order


def living_in(listed: Listing, folders: Iterable[Path]) -> list[JobInfo]:
    """Return those of the listed jobs that have their files in one of the folders, and have not
    ended."""
    tickets = [read_ticket(folder) for folder in folders]
    matches = [listed.find(ticket.name, ticket.id) for ticket in tickets]
    return [info for info in matches if info and info.state not in ENDED]


def jobs_of_attempts(study: Path, attempts: Mapping[int, Path]) -> dict[int, str]:
    """Return the id of the living job that has each attempt, by trial number. Raises SlurmError.

    Attempts that no worker has claimed are removed from the queues.
    """
    select_cluster(cluster_of(study))
    listed = squeue()
    jobs: dict[int, str] = {}
    for number, attempt in attempts.items():
        token = token_of(number, int(attempt.name))
        for queued in study.glob(f"workers/*/queue/{token}"):
            queued.unlink(missing_ok=True)  # because a worker may claim the file first
        workers = [file.parents[1] for file in study.glob(f"workers/*/*/claimed/{token}")]
        living = living_in(listed, [attempt, *workers])
        if living:
            jobs[number] = living[0].id
    return jobs


def cancel_pending_and_dismiss_idle(study: Path, jobs: list[JobInfo]) -> None:
    """Cancel the pending jobs of the study, and dismiss its workers. Raises SlurmError or
    OSError."""
    for queued in study.glob("workers/*/queue/*.job"):
        queued.unlink(missing_ok=True)  # because a worker may claim the file first
    pending = [job.id for job in jobs if job.state == "PENDING"]
    if pending:
        cancel(by_array(pending), pending_only=True)
    for folder in study.glob("workers/*/[0-9]*/slurm"):
        (folder.parent / "dismissed").touch()


def rows(command: list[str], fields: int) -> list[list[str]]:
    """Return the rows that the command prints, without other lines. Raises SlurmError if the output
    is not text."""
    lines = [line.split("|", fields - 1) for line in answer(command).splitlines()]
    if any(len(line) != fields and "\N{REPLACEMENT CHARACTER}" in line[0] for line in lines):
        raise SlurmError(f"the output of {command[0]} cannot be read")
    return [line for line in lines if len(line) == fields]


def with_hint(error: str) -> str:
    """Return the error of a SLURM command; if the controller does not answer, add what to check."""
    return f"{error}. {_CHECKS}" if _UNREACHABLE.search(error) else error


def answer(command: list[str], timeout_s: float | None = None) -> str:
    """Return the output of the command, by default after up to 20 s. Raises SlurmError if it
    fails."""
    limit_s = timeout_s or _TIMEOUT_S
    # because SLURM shortens the indices of an array's elements
    environment = {**shell.for_queries(), "SLURM_BITSTR_LEN": "0"}
    try:
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise SlurmError(with_hint(f"{command[0]} took longer than {limit_s} s")) from error
    except subprocess.CalledProcessError as error:
        problem = error.stderr.strip() or f"{command[0]} ended with {error.returncode}"
        raise SlurmError(with_hint(problem)) from error
    except OSError as error:  # because it is not installed, or no process can be started now
        raise SlurmError(f"{command[0]} cannot be run: {error}") from error
    return done.stdout
