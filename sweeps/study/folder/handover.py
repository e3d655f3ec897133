"""The check before a study resumes with another launcher, because no trial may run twice at a
time."""

from collections.abc import Mapping
from pathlib import Path

from sweeps.base.errors import UserError
from sweeps.launchers.contract import DRIVER_JOBS, TrialLauncher, await_end
from sweeps.record import driver_status
from sweeps.record.study import StudySnapshot
from sweeps.record.study_file import sweeps_line
from sweeps.trial.folder import AttemptFolder, TrialFolder


def refuse_running_elsewhere(study: StudySnapshot, launcher: TrialLauncher) -> None:
    """Raise UserError if another launcher of an earlier driver still runs an attempt, or if nobody
    knows."""
    in_slurm: dict[int, AttemptFolder] = {}
    for trial in study.open:
        attempt = TrialFolder(trial.folder).newest()
        if attempt is None or attempt.is_over:
            continue
        name = attempt.launcher() or launcher.name
        if name != launcher.name and name == "slurm":
            in_slurm[trial.number] = attempt
        elif name != launcher.name:
            await_end(attempt)
    if in_slurm:
        _refuse_living_jobs(study, in_slurm)


def refuse_driver_job(folder: Path) -> None:
    """Raise UserError if a SLURM job is going to drive the study, or drives it."""
    if not (folder / DRIVER_JOBS).exists():
        return
    from sweeps.launchers.slurm.queue import SlurmError
    from sweeps.launchers.slurm.trials import driver_chain

    try:
        drivers = driver_chain.living(folder)
    except SlurmError:  # because the claim still excludes a second driver
        return
    if drivers:
        raise UserError(
            f"study {folder.name} has a driver: {drivers[0]}.\nWatch the study:"
            f" {sweeps_line('status', folder)}, or stop it: {sweeps_line('stop', folder)}"
        )


def _refuse_living_jobs(study: StudySnapshot, attempts: Mapping[int, AttemptFolder]) -> None:
    from sweeps.launchers.slurm.queue import SlurmError, jobs_of_attempts

    try:
        jobs = jobs_of_attempts(
            study.folder, {number: attempt.path for number, attempt in attempts.items()}
        )
    except SlurmError as error:
        number, attempt = next(iter(attempts.items()))
        raise UserError(
            f"trial {number} may still run in SLURM, which does not answer: {error}.\nRepeat this"
            " command where SLURM answers. If the cluster is gone, remove the attempt:"
            f" {attempt.path}"
        ) from error
    if not jobs:
        return
    number, job = next(iter(jobs.items()))
    more = f" (and {len(jobs) - 1} more)" if len(jobs) > 1 else ""
    status = driver_status.read(study.folder)
    stop = sweeps_line("stop", study.folder)
    resume = f"Resume with that launcher: {status.command}\n" if status and status.command else ""
    raise UserError(
        f"trial {number}{more} still runs in SLURM job {job}, which another launcher submitted.\n"
        f"{resume}Or stop the trials, and repeat this command once they have ended: {stop}"
    )
