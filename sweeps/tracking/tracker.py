"""Shows a study in MLflow while it runs, without ever standing in its way.

The driver is the only writer. Trials write into their folders, and one thread here brings MLflow up to what
the folders say, again and again. So an outage or a dead driver leaves no gap, and never touches training.
"""

import os
import shlex
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from omegaconf import DictConfig

from sweeps.errors import Outage, UserError
from sweeps.files import LOOKS_PER_S, CorruptFile
from sweeps.record.definition import sweeps_line
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.results.findings import Findings, findings_of
from sweeps.secrets import has_password, without_password
from sweeps.tracking import comparison_view
from sweeps.tracking.store import (
    QUIET,
    default_uri,
    first_line,
    identity,
    is_refusal,
    is_server,
    outage_errors,
    resolve_uri,
)
from sweeps.tracking.study_run import StudyRun
from sweeps.tracking.trial_run import TrialRun
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from sweeps.wording import counted

_EVERY_S = 1.0
_PATIENCE_S = 3.0
_SOON_S = 0.01  # when nothing more comes
_PAGE_EVERY_S = 60.0


class Tracker:
    """Shows one study. Call `open` first, `drain` and `complete` last; only `open` raises.

    `uri` is MLflow's tracking URI; None follows MLFLOW_TRACKING_URI, or takes ./mlflow.db.
    """

    def __init__(self, uri: str | None, experiment: str, summary: StudySnapshot, command: str = "") -> None:
        """`command` is the one that started the study, by default this process's."""
        self.uri = resolve_uri(uri)
        self._experiment, self._summary, self._command = experiment, summary, command
        self._trials: dict[int, TrialRun] = {}
        self._creating = ThreadPoolExecutor(1, "creating runs")
        self._outage = ""
        self._file: tuple[int, int] | None = None  # of an SQLite store, once it is open
        self._lacking: dict[int, str] = {}
        self.seconds: dict[int, float] = {}  # that showing each trial took, by its number
        self._page_due, self._page_is_old = time.monotonic() + _PAGE_EVERY_S, False
        self._draining, self._finished = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._keep_in_step, name="tracking", daemon=True)

    @property
    def problem(self) -> str | None:
        """What MLflow lacks and why, in words; None when all is well."""
        if self._is_gone():
            return f"{self.uri} was deleted: MLflow has nothing of this study"
        if self._outage:
            where = f"MLflow at {without_password(self.uri)} does not answer: {self._outage}"
            return Outage(f"{where}; training goes on, metrics are kept in the trial folders", "MLflow answers again")
        lacking = [*self._lacking.values()]
        more = f" (and of {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        return f"MLflow lacks some of {lacking[0]}{more}" if lacking else None

    def open(self) -> None:
        """Connect, and create or reopen the study's run.

        Raises UserError: the store gives no answer, is of another MLflow version, or its experiment was deleted.
        """
        try:
            self._study = StudyRun(self.uri, self._experiment, self._summary, self._command)
        except Exception as error:
            if not isinstance(error, (OSError, ImportError)) and not isinstance(error, outage_errors()):
                raise
            file = str((error.filename2 or error.filename) if isinstance(error, OSError) else "")
            if file.startswith(f"{self._summary.folder}/"):
                again = "Make its folder writable and remove what is in the way, then type the command again"
                raise UserError(f"a file of the study cannot be written: {error}\n{again}") from error
            raise UserError(
                f"MLflow at {without_password(self.uri)} cannot be used: {first_line(error)}\n"
                "Choose another, as tracking.uri=sqlite:///mlflow.db or tracking.uri=http://127.0.0.1:5000; or none: "
                "tracking=none (without these keys: hydra.sweeper.tracking_uri=..., hydra.sweeper.tracking=false)"
            ) from error
        self._file = identity(self.uri)
        self._thread.start()

    def start_trial(
        self, row: TrialRecord, overrides: Sequence[str], config: DictConfig | None = None
    ) -> dict[str, str]:
        """Create the trial's run, or take up the one it has. Returns what to add to the trial's environment.

        That is nothing in an outage: the run is created later. An address with a password is not added: a trial has it
        from its driver's environment, or not at all. `config`, with its hydra node, is by default read from the folder.
        """
        trial = TrialRun(self._study, row, overrides, config)
        started = time.monotonic()
        if not self._outage:
            opening = self._creating.submit(trial.open)  # MLflow itself would wait 20 s for a locked database
            try:
                error = opening.exception(_PATIENCE_S)
            except TimeoutError:
                self._outage = f"no answer within {_PATIENCE_S:g} s"
            else:
                if isinstance(error, outage_errors()):
                    self._outage = first_line(error)  # what else goes wrong the thread meets again, and tells
        self._spend(row.number, started)
        self._trials[row.number], self._page_is_old = trial, True
        if trial.run_id is None:
            return {}
        run = {"MLFLOW_RUN_ID": trial.run_id, **QUIET}
        if has_password(self.uri):
            return run if os.environ.get("MLFLOW_TRACKING_URI") == self.uri else {}
        return {"MLFLOW_TRACKING_URI": self.uri, **run}

    def end_trial(self, row: TrialRecord) -> None:
        """Hand over a trial that is over; what remains is sent in the background."""
        trial = self._trials.get(row.number) or TrialRun(self._study, row)
        trial.row, trial.ended = row, True
        self._trials[row.number], self._page_is_old = trial, True

    def drain(self, summary: StudySnapshot, timeout_s: float = 30.0) -> None:
        """Wait until everything is sent, or nothing was for `timeout_s`: the next driver sends what `problem` names."""
        for row in summary.rows:
            if _goes_on(row):  # the next driver sends the rest
                self._trials.pop(row.number, None)
                continue
            is_left = row.state is not State.QUEUED and not TrialRun(self._study, row).was_closed()
            if is_left or row.number in self._trials:
                self.end_trial(row)
        self._draining.set()
        left, deadline = len(self._trials), time.monotonic() + timeout_s
        while self._trials and time.monotonic() < deadline:
            time.sleep(_SOON_S)
            if len(self._trials) < left:
                left, deadline = len(self._trials), time.monotonic() + timeout_s
        self._finished.set()
        self._thread.join(min(timeout_s, 5.0))
        if self._trials:
            self._outage = f"{self._outage or 'too slow'} ({counted(left, 'trial')} not complete there)"

    def complete(self, study: StudySnapshot | Findings) -> None:
        """Complete the study's run with the files that report.write left, if all its trials are complete there."""
        if self._trials:
            return
        try:
            findings = findings_of(study)
            self._study.complete(findings, goes_on=any(map(_goes_on, findings.study.rows)))
        except Exception as error:  # the study is over, and its report is written
            self._lacking[-1] = f"the study: {first_line(error)}"

    def catch_up(self, summary: StudySnapshot) -> tuple[int, int]:
        """Send what MLflow lacks of a study without a driver. Returns of how many trials it lacked something, and how
        many go on: of these it has what is there by now.
        """
        going_on = [row for row in summary.rows if _goes_on(row)]
        over = [row for row in summary.rows if row.state is not State.QUEUED and row not in going_on]
        lacking = [row for row in over if not TrialRun(self._study, row).was_closed()]
        for row in going_on:
            if not self._sync(TrialRun(self._study, row)):
                break
        self.drain(summary)
        self.complete(summary.with_tracking(self.seconds))
        return len(lacking), len(going_on)

    def dashboard_line(self) -> str:
        """What to type, or to open, to see the study in its ready-made view."""
        if is_server(self.uri):
            path = comparison_view.path(self._study.experiment_id, self._summary.name, self._summary.all_failed)
            return f"dashboard: {without_password(self.uri).rstrip('/')}{path}"
        if self._is_gone():
            sync = sweeps_line("sync", self._summary.folder)
            return f"MLflow has nothing of the study: {self.uri} was deleted. To bring it there anew: {sync}"
        if self._summary.name == self._summary.folder.name:
            return f"dashboard: {sweeps_line('ui', self._summary.folder)}"
        return f"dashboard: {self._line_for_single_runs()}"

    def _line_for_single_runs(self) -> str:
        """Those are no study that `ui` finds by its folder."""
        words, uri = ["python", "-m", "sweeps", "ui", self._summary.name], self.uri
        if uri not in (default_uri(), os.environ.get("MLFLOW_TRACKING_URI")):
            named = [name for name, value in os.environ.items() if value == uri]
            words += ["--uri", f"${{oc.env:{named[0]}}}" if named else without_password(uri)]
        return shlex.join(words)

    def _spend(self, number: int, since: float) -> None:
        self.seconds[number] = self.seconds.get(number, 0.0) + time.monotonic() - since

    def _is_gone(self) -> bool:
        """Whether the file that this process writes to was deleted, or another one took its place."""
        return self._file is not None and self._file != identity(self.uri)

    def _keep_in_step(self) -> None:
        while not self._finished.is_set():
            answered = True
            # One trial for which MLflow has no answer does not keep the others waiting.
            for number, trial in sorted(self._trials.items(), key=lambda item: item[1].failures):
                started = time.monotonic()
                answered = self._sync(trial)
                self._spend(number, started)
                if not answered:
                    break
                if trial.closed and self._trials.get(number) is trial:
                    self._trials.pop(number, None)
            if not answered:
                self._finished.wait(_EVERY_S)
                continue
            if self._page_is_old and time.monotonic() >= self._page_due and not self._draining.is_set():
                self._send_page()
            if self._draining.wait(max(_EVERY_S, len(self._trials) / LOOKS_PER_S)):
                self._finished.wait(_SOON_S)

    def _send_page(self) -> None:
        """Send the page as it stands. The next one comes in a minute, and the last one at the study's end."""
        self._page_due, self._page_is_old = time.monotonic() + _PAGE_EVERY_S, False
        try:
            self._study.send_page()
            self._lacking.pop(-1, None)
        except Exception as error:  # whatever it is: trials come first
            self._lacking[-1] = f"the study: its page: {first_line(error)}"

    def _sync(self, trial: TrialRun) -> bool:
        """Whether MLflow answered."""
        lacks = ""
        try:
            trial.sync()
            lacks, trial.failures = trial.lacks, 0
        except outage_errors() as error:
            if not is_refusal(error):
                self._outage = first_line(error)
                trial.failures += 1
                return False
            lacks, trial.closed = first_line(error), True  # what comes would be refused too, until its end
        except (CorruptFile, OSError) as error:
            lacks, trial.closed = str(error), self._draining.is_set()  # a disk may be away for a moment
        except Exception as error:  # whatever it is: the other trials are shown, and this one is told of
            lacks, trial.closed = f"{type(error).__name__}: {first_line(error)}", True
        self._outage = ""
        if lacks:
            self._lacking[trial.row.number] = f"trial {trial.row.number} ({trial.row.name}): {lacks}"
        else:
            self._lacking.pop(trial.row.number, None)
        return True


def _goes_on(row: TrialRecord) -> bool:
    """Whether it runs, or its job waits, without this driver."""
    with suppress(OSError):
        newest = TrialFolder(row.folder).newest() if row.state is State.QUEUED else None
        return row.state is State.RUNNING or (newest is not None and not newest.is_over)
    return False
