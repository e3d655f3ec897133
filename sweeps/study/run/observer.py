"""What the driver learns from the files of the attempts that it has submitted: starts, metrics and
ends."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sweeps.base.looks import Looks
from sweeps.base.wording import counted
from sweeps.record.writer import Record
from sweeps.study.run.attempt import Attempt
from sweeps.study.run.events import Event, Note, Started
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import METRICS, MetricsLine
from sweeps.trial.metrics_reader import MetricsReader
from sweeps.trial.times import now

if TYPE_CHECKING:
    from sweeps.choose.sampler.pruner import Pruner

_PATIENCE_S = 60.0  # time until an unreadable file of an ended trial is given up


@dataclass
class Observer:
    """Reads the files of attempts into the record, and lets the pruner judge what they report.

    A file that cannot be read now concerns one attempt, and is read again later.
    """

    record: Record
    pruner: "Pruner | None" = None
    clock: Callable[[], float] = now
    _looks: Looks = field(default_factory=Looks)
    # by trial, because the next attempt at a trial appends to the same file
    _readers: dict[int, MetricsReader] = field(default_factory=dict)

    def due(self, attempts: list[Attempt]) -> list[Attempt]:
        """Return the attempts to observe now: rarely where there are many."""
        return self._looks.due(attempts, lambda attempt: not attempt.is_queued)

    def observe(self, attempt: Attempt) -> list[Event]:
        """Read what the attempt wrote since the last look. Return its start, and notes."""
        events: list[Event] = []
        try:
            if attempt.is_queued and self._has_started(attempt):
                events.append(Started(attempt.trial, attempt.describe_start()))
            folder = attempt.job.folder
            reader = self._readers.setdefault(attempt.trial.number, MetricsReader(folder))
            lines = reader.unread()
            for line in lines.values:
                self._pass_on(attempt, line)
            reader.mark_read(lines)
            attempt.read_error = ""
        except OSError as error:  # because a shared disk may be unreachable for a moment
            attempt.read_error = f"{error}; retrying"
            return events

        if lines.damaged:
            damaged = counted(lines.damaged, "damaged line")
            events.append(Note(f"{damaged} in {attempt.trial.folder / METRICS}"))
        return events

    def _has_started(self, attempt: Attempt) -> bool:
        """Return whether the attempt has started by now, and show that in the record."""
        attempt.started_at = attempt.job.attempt_folder.began()
        if attempt.is_queued:
            return False
        trial = self.record.trials[attempt.trial.number]
        self.record.update(replace(trial, state=State.RUNNING))
        return True

    def _pass_on(self, attempt: Attempt, line: MetricsLine) -> None:
        """Show reported metrics in the record, and let the pruner judge them."""
        number = attempt.trial.number
        trial = self.record.trials[number]
        metrics = {**trial.metrics, **line.metrics}
        self.record.update(replace(trial, metrics=metrics, step=max(trial.step, line.step)))
        value = line.metrics.get(self.record.study.objective[0])
        if value is None or self.pruner is None:
            return
        if self.pruner.report(number, line.step, value):
            attempt.job.attempt_folder.request_stop(State.PRUNED)

    def _ended_at(self, attempt: Attempt) -> float | None:
        """Return when an adopted attempt last wrote a file, if that was before the adoption,
        because perhaps nobody looked for hours; else None."""
        if attempt.adopted:
            with suppress(OSError):
                written = attempt.job.attempt_folder.last_written()
                return written if written < attempt.queued_at else None
        return None

    def read_end(self, attempt: Attempt, outcome: Outcome) -> Outcome | None:
        """Return how an attempt ended, by its folder, or else by this outcome; None while its
        folder cannot be read."""
        try:
            return attempt.job.attempt_folder.close(outcome, self._ended_at(attempt))
        except OSError as error:
            attempt.read_error = f"{error}; retrying"
            attempt.unreadable_since = attempt.unreadable_since or self.clock()
            if self.clock() - attempt.unreadable_since < _PATIENCE_S:
                return None
            # because it may have a result
            state = State.LOST if outcome.state is State.FAILED else outcome.state
            is_named = str(error.strerror) in outcome.error
            text = outcome.error if is_named else f"{outcome.error}; {error}"
            return replace(outcome, state=state, error=text, ended_at=self.clock())
