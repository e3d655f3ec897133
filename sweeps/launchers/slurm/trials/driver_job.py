"""The driver of a study as a SLURM job (hydra.launcher.driver=job), because login nodes end long
processes.

Before a job starts the driver, it submits the next job, which depends on its own by `afternotok`.
So SLURM starts the next driver if this one reaches its time limit, is killed, or loses its node.
"""

import math
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.base.errors import UserError
from sweeps.base.files import holder
from sweeps.hydra.parts import sweep_word
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.hydra.shell_words import flags_first
from sweeps.launchers.contract import DRIVER_LOG
from sweeps.launchers.slurm.queue import SlurmError, cancel, name_of, read_job_id, rows, squeue
from sweeps.launchers.slurm.script.limits import minutes_in
from sweeps.launchers.slurm.script.request import parameters
from sweeps.launchers.slurm.script.submit import (
    BusyError,
    RefusedError,
    UnansweredError,
    check_commands,
    submit,
    write_call,
)
from sweeps.launchers.slurm.shell import OF_JOBS, habits, is_in_job
from sweeps.launchers.slurm.trials.arrays import next_number
from sweeps.launchers.slurm.trials.driver_chain import (
    begin,
    folders,
    idle_after,
    jobs_folder,
    was_cancelled,
)

# variables of the job itself: the cluster as its node sees it, and a token, which no file gets
_OF_THE_NODE = ("SLURM_CONF", "SLURM_JWT")
_PLACE = "SWEEPYARD_DRIVER"  # variable with the folder of the driver's job
_DAY_MIN = 24 * 60
_SHORTEST_MIN = 60
_MEM_GB = 2.0
_HERE = "hydra.launcher.driver=here"
_WARNING_S = 120  # time to leave the trials, before the time limit
_IDLE = 2  # drivers in a row without progress, after which none follows
_LOCK_S = 90.0  # longer than the lock of a lost node's driver lasts
_ANSWER_S = 10.0
_LOOK_S = 5.0
_AGAIN_S = 60.0


@dataclass(frozen=True)
class Launch:
    """What every driver of a chain starts with."""

    words: list[str]
    folder: Path
    variables: dict[str, str]  # of SLURM and of Python, as in the user's terminal
    settings: SlurmLauncherConf  # of the driver's job

    @classmethod
    def of(cls, words: Sequence[str], settings: SlurmLauncherConf) -> "Launch":
        """Return the launch of a command in this folder and environment. Raises UserError if no
        partition allows it."""
        prefixes = ("PYTHONPATH",) if is_in_job() else (*OF_JOBS, "PYTHONPATH")
        variables = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(prefixes) and name not in _OF_THE_NODE
        }
        return cls(list(words), Path.cwd(), variables, request(settings))

    def restore(self, place: Path) -> None:
        """Restore the folder and the environment of the terminal, for a driver in the job at
        `place`."""
        of_job = (*OF_JOBS, "SLURMD_", "SUBMITIT_", "SWEEPYARD_", "PYTHONPATH")
        for name in list(os.environ):
            if name.startswith(of_job) and name not in _OF_THE_NODE:
                del os.environ[name]
        os.environ.update(self.variables)
        os.environ[_PLACE] = str(place)
        os.environ["PYTHONUNBUFFERED"] = "1"
        os.chdir(self.folder)


class DriverJob:
    """The job of a study's driver: still to be submitted by the user's command, or the job that
    this driver is in."""

    def __init__(self, study: Path, settings: SlurmLauncherConf) -> None:
        """Find out where this process is.

        Raises UserError if no partition allows a driver, or if the process is in the job of another
        study's driver.
        """
        self._study = study
        self._settings = settings
        self._place: Path | None = None
        self._look_at = 0.0  # time of the next look for newer drivers, monotonic
        self._newer = ""
        self._renew_at = 0.0  # time of the next look whether a driver follows, monotonic
        place = os.environ.pop(_PLACE, None)  # because trials must not inherit the variable
        if place is None:
            request(settings)
        else:
            self._place = Path(place)
            self._refuse_other(self._place.parents[2])

    def _refuse_other(self, started: Path) -> None:
        """Raise UserError if the job is of the driver of another study, because it must start no
        driver of this study, and so on."""
        if started == self._study:
            return
        self.end()
        raise UserError(
            f"hydra.sweep.dir: this job drives the study in {started}, and its command leads to"
            f" {self._study}.\nLet the command lead to the same folder each time, as with"
            f" {shlex.quote(sweep_word('dir', str(started)))}"
        )

    @property
    def is_here(self) -> bool:
        """Return whether this process is the driver in its job."""
        return self._place is not None

    @property
    def goes_on(self) -> bool:
        """Return whether another driver follows if this one is interrupted."""
        return bool(self._later())

    def _later(self) -> list[Path]:
        """Return the folders of the jobs that were submitted after this driver's."""
        place = self._place
        if place is None:
            return []
        jobs = folders(place.parents[2])
        return [folder for folder in jobs if int(folder.name) > int(place.name)]

    def submit(self, line: str) -> str:
        """Submit the first driver, which runs the command `line`. Return the id of its job. Raises
        UserError."""
        check_commands()
        words = [sys.executable, *shlex.split(line)[1:]]
        try:
            return _send(self._study, None, Launch.of(words, self._settings))
        except (RefusedError, BusyError) as error:
            problem = "refused the job"
            advice = "Correct the setting that SLURM names"
            if isinstance(error, BusyError):
                problem = "accepts no job now"
                advice = "Repeat the command later"
            here = _here(shlex.split(line))
            raise UserError(
                f"SLURM {problem} for the driver: {error}\n{advice}, or run the driver here: {here}"
            ) from error

    def newer(self) -> str:
        """Return the id of a later job in which a driver of the study has begun; empty if none
        has. Reads files, at most every 5 s."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            for folder in self._later():
                if (folder / "begun").exists():
                    self._newer = read_job_id(folder) or folder.name
        return self._newer

    def renew(self) -> None:
        """Submit the next driver if that failed before, at most every minute."""
        if self._place is None or time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + _AGAIN_S
        if self.goes_on:
            return
        try:
            launch = Launch.of(sys.orig_argv, self._settings)
            if idle_after(self._place, launch.settings.timeout_min, time.time()) <= _IDLE:
                _send(self._study, self._place, launch)
        except (RefusedError, BusyError, UserError) as error:
            print(f"the next driver cannot be submitted now: {error}; retrying", flush=True)

    def end(self) -> None:
        """Cancel the next driver, because the study needs none."""
        for following in self._later():
            job = read_job_id(following) or f"--name={name_of(following)}"
            try:
                cancel([job])
            except SlurmError as error:
                problem = f"the next driver may still start, and end at once: {error}"
                print(f"{problem}\nCancel it: scancel {job}")


def request(settings: SlurmLauncherConf) -> SlurmLauncherConf:
    """Return the request of the driver's job. Raises UserError if its partition does not allow the
    time."""
    typed = settings.driver_partition or settings.partition
    partition = typed or habits("").get("SBATCH_PARTITION")
    allowed, name = _shortest(partition)
    minutes = int(settings.driver_timeout_min or min(_DAY_MIN, allowed))
    problem = f"partition {name} allows {allowed:g} minutes"
    if minutes > allowed:
        raise UserError(
            f"hydra.launcher.driver_timeout_min={minutes}: {problem}.\nType"
            f" hydra.launcher.driver_timeout_min={int(allowed)}, or choose another"
            " hydra.launcher.driver_partition"
        )
    if minutes < _SHORTEST_MIN and not settings.driver_timeout_min:
        raise UserError(
            f"hydra.launcher.driver=job: {problem}, which is short for a driver.\nChoose another"
            f" hydra.launcher.driver_partition, or type hydra.launcher.driver_timeout_min={minutes}"
        )
    return SlurmLauncherConf(
        timeout_min=minutes,
        cpus_per_task=1,
        mem_gb=_MEM_GB,
        partition=partition,
        qos=settings.qos,
        account=settings.account,
        comment=settings.comment,
        clusters=settings.clusters,
    )


def _shortest(partition: str | None) -> tuple[float, str]:
    """Return the shortest time limit, in minutes, of the partitions in a list, by default of the
    site's default, and the partition's name."""
    typed = partition.split(",") if partition else []
    limits: dict[str, float] = {}
    with suppress(SlurmError):  # because sbatch, or the preview, names the problem
        for word, limit in rows(["sinfo", "--noheader", "--format=%P|%l"], 2):
            name = word.rstrip("*")
            if name in typed or (not typed and name != word):
                limits[name] = minutes_in(limit)
    # because sinfo hides some partitions; sbatch names one that is wrong
    if not limits or len(limits) < len({*typed}):
        return math.inf, ""

    return min((minutes, name) for name, minutes in limits.items())


def requested(study: Path, settings: SlurmLauncherConf) -> dict[str, object]:
    """Return the parameters of the first driver's job. Raises UserError if its partition does not
    allow the time."""
    return _parameters(jobs_folder(study) / "1", request(settings), None)


def run_driver(folder: Path, launch: Launch, follows: Path | None) -> None:
    """Submit the next driver, and turn into the driver of the study. Raises UserError if the chain
    ends here.

    `follows` is the folder of the job before; None if a person submitted this job.
    """
    study = folder.parents[2]
    log = os.open(study / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # because srun's output is a terminal, and its last lines may be late
    os.dup2(log, 1)
    os.dup2(log, 2)
    idle = begin(folder, follows, os.environ["SLURM_JOB_ID"], launch.settings.timeout_min)
    launch.restore(folder)  # first, because the next driver inherits it
    before = read_job_id(follows) if follows else None
    if before and was_cancelled(before):
        raise UserError(
            f"driver job {before} was cancelled with scancel, so none follows.\nResume:"
            f" {shlex.join(launch.words)}"
        )
    _send_next(folder, launch, idle)

    deadline = time.monotonic() + _LOCK_S
    # by which time the driver before has left
    while holder(study / "driver.lock") and time.monotonic() < deadline:
        time.sleep(0.5)
    # the command that the user typed, without a shell
    os.execv(launch.words[0], launch.words)  # noqa: S606


def _send_next(folder: Path, launch: Launch, idle: int) -> None:
    """Submit the next driver, unless too many in a row were idle. Raises UserError if SLURM refuses
    it."""
    if idle >= _IDLE:
        print(
            f"{idle} drivers in a row made no progress: none follows this one until it makes some",
            flush=True,
        )
        return
    try:
        _send(folder.parents[2], folder, launch)
    except RefusedError as error:
        raise UserError(
            f"SLURM refused the next driver, from {socket.gethostname()}: {error}\n"
            f"If nodes may not submit jobs, type on a login node: {_here(launch.words)}"
        ) from error
    except BusyError as error:
        print(f"the next driver is submitted later: {error}", flush=True)


def _here(words: Sequence[str]) -> str:
    """Return the command that runs the driver of this command here."""
    others = [word for word in words if not word.startswith("hydra.launcher.driver")]
    return shlex.join([*flags_first(others), _HERE])


def _send(study: Path, follows: Path | None, launch: Launch) -> str:
    """Submit a job for the next driver, and return its id. Raises RefusedError, or BusyError if
    SLURM has none."""
    folder = jobs_folder(study) / str(next_number(jobs_folder(study)))
    folder.mkdir(parents=True)
    try:
        write_call(folder, launch.settings, run_driver, folder, launch, follows)
        return submit(folder, _parameters(folder, launch.settings, follows))
    except (RefusedError, BusyError) as error:
        job_id = _id_of(name_of(folder)) if isinstance(error, UnansweredError) else None
        if job_id is None:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return job_id
    except OSError:
        # because a folder means that a driver follows
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _parameters(folder: Path, settings: SlurmLauncherConf, follows: Path | None) -> dict[str, Any]:
    options = parameters(folder, settings)
    log = str(folder.parents[2] / DRIVER_LOG)
    warning_s = min(_WARNING_S, settings.timeout_min * 60 // 4)
    own = options["additional_parameters"]
    own["output"] = log
    own["open-mode"] = "append"
    own["signal"] = f"TERM@{warning_s}"
    if follows:
        job_id = read_job_id(follows)
        if job_id is None:
            raise BusyError(f"the id of its job cannot be read from {follows}")
        own["dependency"] = f"afternotok:{job_id}"
        own["kill-on-invalid-dep"] = "yes"
    arguments = options["srun_args"]
    arguments[arguments.index(str(folder / "log"))] = log
    return options


def _id_of(name: str) -> str | None:
    """Return the id of the job of this name, which sbatch may have submitted without an answer."""
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline:
        with suppress(SlurmError):
            info = squeue().get(name)
            if info:
                return info.id
        time.sleep(1)
    return None
