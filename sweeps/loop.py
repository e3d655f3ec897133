"""Keep the slots full: ask, submit, poll, tell. Knows no SLURM, no TensorFlow and no Optuna."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.launchers.contract import Exit, TrialJob, TrialLauncher
from sweeps.study import Proposal, Study
from sweeps.summary import Row, Summary
from sweeps.terminal import View
from sweeps.trial_folder import Result, State

if TYPE_CHECKING:
    from sweeps.tracking import Tracker

log = logging.getLogger(__name__)

_TICK_S = 0.25


@dataclass
class _Attempt:
    """A trial that waits for room, or runs."""

    job: TrialJob
    row: Row
    read_to: int = 0


class Loop:
    """Runs the trials of one study to their ends.

    Args:
        make_job: from a proposal to a job with its folder; raises UserError if its config is not valid.
        n_jobs: trials at a time, at most; None for as many as the launcher takes.
        max_failures: trials that may go wrong before no further one is started; None for any number.
    """

    def __init__(
        self,
        study: Study,
        launcher: TrialLauncher,
        make_job: Callable[[Proposal], TrialJob],
        summary: Summary,
        view: View,
        tracker: "Tracker | None" = None,
        n_jobs: int | None = None,
        max_failures: float | None = None,
    ) -> None:
        self._study = study
        self._launcher = launcher
        self._make_job = make_job
        self._summary = summary
        self._view = view
        self._tracker = tracker
        self._n_jobs = n_jobs
        self._max_failures = max_failures
        self._running: dict[int, _Attempt] = {}
        self._next: _Attempt | None = None
        self._asked_all = False

    def run(self) -> None:
        """Return when every trial has ended, or those that still ran when too many had failed."""
        while True:
            self._fill()
            if self._asked_all and not self._running and self._next is None:
                return
            for over in self._launcher.poll(_TICK_S):
                self._end(self._running.pop(over.number), over)
            for attempt in self._running.values():
                self._hear(attempt)
            self._view.tick(self._summary, self._tracker and self._tracker.problem)

    def _fill(self) -> None:
        while self._n_jobs is None or len(self._running) < self._n_jobs:
            if self._next is None and not self._asked_all and self._launcher.has_room():
                self._next = self._ask()
                self._asked_all = self._next is None
            if self._next is None or not self._launcher.submit(self._next.job):
                return
            self._next.row.state = State.RUNNING
            self._view.started(self._next.row)
            self._running[self._next.row.number] = self._next
            self._next = None

    def _ask(self) -> _Attempt | None:
        """The next trial whose config is valid. One that is not has failed, and the study goes on."""
        while not self._hopeless():
            proposal = self._study.ask()
            if proposal is None:
                return None
            row = Row(proposal.number, proposal.point, State.QUEUED, self._summary.folder / str(proposal.number))
            self._summary.rows.append(row)
            try:
                job = self._make_job(proposal)
            except UserError as error:
                self._record(row, Result(State.FAILED, error=str(error)))
                continue
            row.folder = job.folder.path
            if self._tracker:
                job.environment = {**job.environment, **self._tracker.start_trial(row, proposal.overrides)}
            return _Attempt(job, row)
        return None

    def _hopeless(self) -> bool:
        return self._max_failures is not None and len(self._summary.bad()) > self._max_failures

    def _hear(self, attempt: _Attempt) -> None:
        """Read what the trial reported since the last time, and let the pruner decide on it."""
        folder = attempt.job.folder
        lines, attempt.read_to = folder.read_metrics(attempt.read_to)
        for line in lines:
            attempt.row.metrics = line.metrics
            value = line.metrics.get(self._summary.objective[0])
            if value is not None and self._study.report(attempt.row.number, value, line.step):
                folder.request_stop(State.PRUNED)

    def _end(self, attempt: _Attempt, over: Exit) -> None:
        self._hear(attempt)
        result = attempt.job.folder.read_result() or Result(over.state, error=over.error)
        self._record(attempt.row, result)

    def _record(self, row: Row, result: Result) -> None:
        row.state, row.objective, row.error = result.state, result.objective, result.error
        row.metrics, row.seconds = result.metrics or row.metrics, result.seconds
        self._study.tell(row.number, result)
        self._view.ended(row, self._summary)
        if self._tracker:
            self._tracker.end_trial(row)
