"""The driver of a study as a SLURM job (hydra.launcher.driver=job), because login nodes end long
processes.

Before a job starts the driver, it submits the next job, which depends on its own by `afternotok`.
So SLURM starts the next driver if this one reaches its time limit, is killed, or loses its node.
"""

import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sweeps.base.errors import UserError
from sweeps.base.files import holder, write_whole
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
from sweeps.launchers.slurm.trials.driver_chain import (
    begin,
    folders,
    follows_of,
    idle_count,
    jobs_folder,
    made_progress,
    was_cancelled,
)

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
    variables: list[str]  # SLURM's variables that the user's terminal had
    python_path: str | None
    settings: SlurmLauncherConf  # of the driver's job
    # of the terminal's variables, those by which options are set
    habits: dict[str, str] | None = None

    @classmethod
    def of(cls, words: Sequence[str], settings: SlurmLauncherConf) -> "Launch":
        """Return the launch of a command in this folder and environment. Raises UserError if no
        partition allows it."""
        variables = [name for name in os.environ if name.startswith(OF_JOBS) and not is_in_job()]
        path = os.environ.get("PYTHONPATH")
        of_job = request(settings)
        return cls(list(words), Path.cwd(), [*variables, "SLURM_CONF"], path, of_job, habits(""))

    def restore(self, place: Path) -> None:
        """Restore the folder and the environment of the terminal, for a driver in the job at
        `place`."""
        of_job = (*OF_JOBS, "SLURMD_", "SUBMITIT_", "SWEEPYARD_", "PYTHONPATH")
        for name in list(os.environ):
            if name.startswith(of_job) and name not in self.variables:
                del os.environ[name]
        os.environ.update(self.habits or {})
        if self.python_path is not None:
            os.environ["PYTHONPATH"] = self.python_path
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
        place = os.environ.pop(_PLACE, None)  # because trials must not inherit the variable
        self._place = None if place is None else Path(place)
        self._look_at = 0.0  # time of the next look for newer drivers, monotonic
        self._newer = ""
        self._renew_at = 0.0  # time of the next look whether a driver follows, monotonic
        if self._place and self._place.parent != jobs_folder(study):
            self._refuse_other(self._place.parents[2])
        if self._place is None:
            request(settings)

    def _refuse_other(self, started: Path) -> None:
        """Raise UserError, because the job of a study's driver must start no driver of another
        study, and so on."""
        other, self._study = self._study, started
        self.end()
        raise UserError(
            f"hydra.sweep.dir: this job drives the study in {started}, and its command leads to"
            f" {other}.\nLet the command lead to the same folder each time, as with"
            f" {shlex.quote(sweep_word('dir', str(started)))}"
        )

    @property
    def is_here(self) -> bool:
        """Return whether this process is the driver in its job."""
        return self._place is not None

    @property
    def goes_on(self) -> bool:
        """Return whether another driver follows if this one is interrupted."""
        return self._next is not None

    @property
    def _next(self) -> Path | None:
        own = self._place and read_job_id(self._place)
        following = [folder for folder in folders(self._study) if own == follows_of(folder)]
        return following[0] if own and following else None

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
            raise UserError(
                f"SLURM {problem} for the driver: {error}\n{advice}, or run the driver here:"
                f" {_here(shlex.split(line))}"
            ) from error

    def newer(self) -> str:
        """Return the id of a later job in which a driver of the study has begun; empty if none
        has. Reads files, at most every 5 s."""
        if self._place and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            own = int(self._place.name)
            begun = [folder for folder in folders(self._study) if (folder / "begun").exists()]
            newer = [folder for folder in begun if int(folder.name) > own]
            self._newer = (read_job_id(newer[-1]) or newer[-1].name) if newer else ""
        return self._newer

    def renew(self) -> None:
        """Submit the next driver if that failed before, at most every minute."""
        if self._place is None or time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + _LOOK_S
        own = read_job_id(self._place)
        if self.goes_on or not own:
            return

        self._renew_at = time.monotonic() + _AGAIN_S
        try:
            launch = Launch.of(sys.orig_argv, self._settings)
            minutes = launch.settings.timeout_min
            is_busy = made_progress(self._place, minutes, time.time())
            if is_busy or idle_count(self._place) < _IDLE:
                _send(self._study, own, launch)
        except (RefusedError, BusyError, UserError) as error:
            print(f"the next driver cannot be submitted now: {error}; retrying", flush=True)

    def end(self) -> None:
        """Cancel the next driver, because the study needs none."""
        following = self._next
        if following is None:
            return
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
    name, allowed = _shortest(partition)
    minutes = settings.driver_timeout_min or min(_DAY_MIN, allowed)
    if minutes > allowed:
        raise UserError(
            f"hydra.launcher.driver_timeout_min={minutes}: partition {name} allows {allowed:g}"
            f" minutes.\nType hydra.launcher.driver_timeout_min={int(allowed)}, or choose another"
            " hydra.launcher.driver_partition"
        )
    if minutes < _SHORTEST_MIN and not settings.driver_timeout_min:
        raise UserError(
            f"hydra.launcher.driver=job: partition {name} allows {allowed:g} minutes, which is"
            " short for a driver.\nChoose another hydra.launcher.driver_partition, or type"
            f" hydra.launcher.driver_timeout_min={int(minutes)}"
        )
    return SlurmLauncherConf(
        timeout_min=int(minutes),
        cpus_per_task=1,
        mem_gb=_MEM_GB,
        partition=partition,
        qos=settings.qos,
        account=settings.account,
        comment=settings.comment,
        clusters=settings.clusters,
    )


def _shortest(partition: str | None) -> tuple[str, float]:
    """Return the partition with the shortest time limit of those in a list, by default of the
    site's default, and its limit in minutes."""
    limits: dict[str, float] = {}
    with suppress(SlurmError):  # because sbatch, or the preview, names the problem
        for name, limit in rows(["sinfo", "--noheader", "--format=%P|%l"], 2):
            limits[name] = minutes_in(limit)
    names = partition.split(",") if partition else [name for name in limits if name.endswith("*")]
    names = [name.rstrip("*") for name in names]
    limits = {name.rstrip("*"): minutes for name, minutes in limits.items()}
    shortest = min(names, key=lambda name: limits.get(name, _DAY_MIN), default="")
    # because sinfo hides some partitions; sbatch names one that is wrong
    return shortest, limits.get(shortest, float("inf"))


def requested(study: Path, settings: SlurmLauncherConf) -> dict[str, object]:
    """Return the parameters of the first driver's job. Raises UserError if its partition does not
    allow the time."""
    return _parameters(jobs_folder(study) / "1", request(settings), None)


def run_driver(folder: Path, launch: Launch) -> None:
    """Submit the next driver, and turn into the driver of the study. Raises UserError if the chain
    ends here."""
    study = folder.parents[2]
    follows = follows_of(folder)
    job_id = os.environ["SLURM_JOB_ID"]
    log = os.open(study / DRIVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # because srun's output is a terminal, and its last lines may be late
    os.dup2(log, 1)
    os.dup2(log, 2)
    idle = begin(folder, job_id, launch.settings.timeout_min)
    launch.restore(folder)  # first, because the next driver inherits it
    if follows and was_cancelled(follows):
        raise UserError(
            f"driver job {follows} was cancelled with scancel, so none follows.\nResume:"
            f" {shlex.join(launch.words)}"
        )
    _send_next(study, job_id, launch, idle)

    deadline = time.monotonic() + _LOCK_S
    # by which time the driver before has left
    while holder(study / "driver.lock") and time.monotonic() < deadline:
        time.sleep(0.5)
    # the command that the user typed, without a shell
    os.execv(launch.words[0], launch.words)  # noqa: S606


def _send_next(study: Path, job_id: str, launch: Launch, idle: int) -> None:
    """Submit the next driver, unless too many in a row were idle. Raises UserError if SLURM refuses
    it."""
    if idle >= _IDLE:
        print(
            f"{idle} drivers in a row made no progress: none follows this one until it makes some",
            flush=True,
        )
        return
    try:
        _send(study, job_id, launch)
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


def _send(study: Path, follows: str | None, launch: Launch) -> str:
    """Submit a job for the next driver, and return its id. Raises RefusedError, or BusyError if
    SLURM has none."""
    numbers = [int(folder.name) for folder in folders(study)]
    folder = jobs_folder(study) / str(1 + max(numbers, default=0))
    folder.mkdir(parents=True)
    if follows:
        write_whole(folder / "follows", follows)
    try:
        write_call(folder, launch.settings, run_driver, folder, launch)
        return submit(folder, _parameters(folder, launch.settings, follows))
    except (RefusedError, BusyError) as error:
        if isinstance(error, UnansweredError) and (job_id := _id_of(name_of(folder))):
            return job_id
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _parameters(
    folder: Path, settings: SlurmLauncherConf, follows: str | None
) -> dict[str, object]:
    log = str(folder.parents[2] / DRIVER_LOG)
    options = parameters(folder, settings)
    warning_s = min(_WARNING_S, settings.timeout_min * 60 // 4)
    own = options["additional_parameters"]
    own["output"] = log
    own["open-mode"] = "append"
    own["signal"] = f"{signal.SIGTERM.name[3:]}@{warning_s}"
    if follows:
        own["dependency"] = f"afternotok:{follows}"
        own["kill-on-invalid-dep"] = "yes"
    srun = [log if word == str(folder / "log") else word for word in options["srun_args"]]
    return {**options, "srun_args": srun}


def _id_of(name: str) -> str | None:
    """Return the id of the job of this name, which sbatch may have submitted without an answer."""
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline:
        with suppress(SlurmError):
            if info := squeue().get(name):
                return info.id
        time.sleep(1)
    return None
