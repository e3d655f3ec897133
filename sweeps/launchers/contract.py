"""The interface of a launcher. local.py, slurm/ and batch.py implement it; another launcher needs
the same methods."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from omegaconf import DictConfig

from sweeps.base.errors import UserError
from sweeps.base.files import holder
from sweeps.trial.folder import AttemptFolder
from sweeps.trial.job import Outcome, Request
from sweeps.trial.run.sent_job import Job

DRIVER_LOG = "driver.log"
"""In a study's folder: what all drivers print that run as jobs of a launcher."""
DRIVER_JOBS = Path("driver/jobs")
"""In a study's folder: the jobs in which drivers run; missing if none was submitted."""
_PATIENCE_S = 30.0


class TrialLauncher(Protocol):
    """Runs attempts at trials, and never blocks on an attempt.

    The driver uses the launcher that the method `trials(study_folder)` of `hydra.launcher._target_`
    returns. This one runs one trial at a time, each in a process of its own::

        import multiprocessing

        from sweeps.launchers.contract import TrialLauncher, await_end
        from sweeps.trial.job import Outcome, Request, State
        from sweeps.trial.run.process import run_trial
        from sweeps.trial.run.sent_job import SentJob
        from sweeps.trial.times import now


        class OneAtATime(TrialLauncher):
            name = "one_at_a_time"

            def __init__(self):
                self._running = {}

            def request(self, config):
                return Request()

            def has_room(self, ahead=False):
                return not self._running

            def submit(self, job):
                if self._running:
                    return False
                sent = [SentJob.of(job), now()]
                process = multiprocessing.Process(target=run_trial, args=sent)
                process.start()
                self._running[job.number] = process
                return True

            def adopt(self, job):
                await_end(job.attempt_folder)
                return False

            def poll(self, timeout_s):
                over = []
                for number, process in list(self._running.items()):
                    process.join(timeout_s)
                    if not process.is_alive():
                        del self._running[number]
                        reason = f"it ended with {process.exitcode} and no result"
                        over.append((number, Outcome(State.FAILED, reason)))
                return over

            def close(self, keep=False):
                for process in self._running.values():
                    process.kill()
    """

    # recorded with each attempt, because only this launcher knows whether the attempt is alive
    name: str
    # whether the driver leaves when there is no room, while submitted trials continue
    detach: bool = False
    # whether the driver leaves its trials running at the first Ctrl-C
    keep_on_interrupt: bool = False
    survives: bool = False  # whether trials continue when the driver dies, as SLURM jobs do
    # how often a trial may time out and resume; None: while each attempt advances
    max_timeouts: int | None = None

    grid_only: str = ""  # the setting that makes this launcher run only grids

    def request(self, config: DictConfig) -> Request:
        """Return the resources of this composed trial. Raises UserError if the trial could never
        start here."""

    def preview(self) -> Iterable[str]:
        """Return what would be submitted for the trials that `request` was called with.

        Raises UserError, at the end, if any of it would be refused.
        """
        return ()

    def open(self) -> None:
        """Prepare to run trials; may continue in the background."""

    def has_room(self, ahead: bool = False) -> bool:
        """Return whether a small trial could start now or, with `ahead`, could be queued."""

    def submit(self, job: Job) -> bool:
        """Start the attempt, or return False if there is no room yet."""

    def adopt(self, job: Job) -> bool:
        """Take over an attempt that an earlier driver submitted. Return False only if it is
        certainly not alive."""

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        """Return the attempts that ended since the last call, by trial number; wait up to
        `timeout_s` if none did.

        An outcome counts only if the attempt left no end.json.
        """

    def avoid(self, nodes: Mapping[str, str]) -> None:
        """Start no further trial on these nodes, which have failed for these reasons, if the
        launcher has nodes."""
        return

    def notes(self) -> list[str]:
        """Return notes for the user while trials wait, such as why jobs are pending."""
        return []

    def cancel_pending(self) -> None:
        """Cancel every submitted attempt that has not started; `poll` reports it as cancelled."""

    def close(self, keep: bool = False) -> None:
        """End every running attempt or, with `keep`, leave attempts that can continue without a
        driver."""


def await_end(attempt: AttemptFolder) -> None:
    """Wait until no process that holds the attempt's lock is alive. Raises UserError if one is
    alive after 30 s."""
    deadline = time.monotonic() + _PATIENCE_S
    while process := next(filter(None, map(holder, attempt.path.glob("alive*"))), None):
        if time.monotonic() > deadline:
            raise UserError(
                f"{attempt.path} is still running in {process}.\nEnd that process, then repeat the"
                " command"
            )
        time.sleep(0.05)
