"""Shows a study in MLflow while it runs, without ever blocking it.

The driver is the only writer. Trials write into their folders, and one thread here repeatedly
updates MLflow from these folders. So an outage or a dead driver leaves no gap, and never affects
training.
"""

import os
import shlex
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from omegaconf import DictConfig

from sweeps.analysis import costs
from sweeps.base.errors import Outage, UserError
from sweeps.base.files import CorruptFile
from sweeps.base.secrets import has_password, without_password
from sweeps.base.wording import counted
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.record.study_file import sweeps_line
from sweeps.show.findings import Findings, findings_of
from sweeps.tracking import store
from sweeps.tracking.registry import server_line
from sweeps.tracking.run_context import TRIAL_RUN
from sweeps.tracking.store import first_line, outage_errors
from sweeps.tracking.study_run import StudyRun
from sweeps.tracking.trial_run import TrialRun, is_running
from sweeps.trial.job import State

_EVERY_S = 1.0
_RUNS_PER_S = 20.0  # maximum of those that are updated while trials run
_PATIENCE_S = 3.0
_SOON_S = 0.01  # interval once no trial writes any more
_PAGE_EVERY_S = 60.0
_STUDY = -1  # key of the study's own problem
_ADVICE = (
    "Choose another store, tracking.uri=sqlite:///mlflow.db; no tracking, tracking=none; "
    "or start now and track later, tracking.required=false.\n"
    "In other apps: hydra.sweeper.tracking_uri=..., .tracking=false or .tracking_required=false"
)


class Tracker:
    """Shows one study. Call `open` first, `drain` and `complete` last; only `open` raises.

    `uri` is MLflow's tracking URI; None uses MLFLOW_TRACKING_URI, or else ./mlflow.db. `experiment`
    is a name as it was typed; None uses the study's own, or else what the environment names.
    `command` is the command that started the study, by default this process's.
    """

    def __init__(
        self, uri: str | None, experiment: str | None, study: StudySnapshot, command: str = ""
    ) -> None:
        self.uri = store.resolve_uri(uri)
        self._snapshot = study
        self.duplicates: list[str] = []  # ids of the duplicate runs that `complete` has ended
        self._study = StudyRun(self.uri, experiment, study, command)
        self._runs: dict[int, TrialRun] = {}  # not complete in MLflow, by trial number
        self._creating = ThreadPoolExecutor(1, "creating runs")
        self._outage = ""
        # device and inode of an SQLite store, once it is open
        self._file: tuple[int, int] | None = None
        self._problems: dict[int, str] = {}  # by trial number, or _STUDY
        # numbers of the trials of which MLflow refused a part, and would again
        self._refused: set[int] = set()
        # that showing each trial took, by trial number
        self.seconds = costs.read_tracking_seconds(study.folder)
        self._page_due = time.monotonic() + _PAGE_EVERY_S
        self._page_is_old = False
        self._draining = threading.Event()
        self._finished = threading.Event()
        self._thread = threading.Thread(
            target=self._sync_until_finished, name="tracking", daemon=True
        )

    @property
    def lacks_sendable(self) -> bool:
        """Return whether MLflow lacks something that it may take later, not only what it has
        refused."""
        may_answer = self._is_gone() or bool(self._outage) or bool(self._runs)
        return may_answer or not self._refused.issuperset(self._problems)

    @property
    def problem(self) -> str | None:
        """Return what MLflow lacks and why; None if it lacks nothing."""
        if self._is_gone():
            return f"{self.uri} was deleted: MLflow has nothing of this study"
        if self._outage:
            reason = f"MLflow at {without_password(self.uri)} does not answer: {self._outage}"
            return Outage(
                f"{reason}; training continues, metrics are in the trial folders",
                "MLflow answers again",
            )
        problems = [*self._problems.values()]
        more = f" (and of {len(problems) - 1} more)" if len(problems) > 1 else ""
        return f"MLflow lacks some of {problems[0]}{more}" if problems else None

    def open(self, required: bool = True, advice: str = _ADVICE) -> None:
        """Connect, and create or reopen the study's run. Unless `required`, an outage only delays
        this.

        If the run may exist, an outage delays too, because a refused study would leave its run
        behind.

        Raises UserError: the store does not answer, has another MLflow version, or its experiment
        was deleted.
        """
        try:
            self._study.open()
        except ImportError as error:  # first, because `outage_errors` imports MLflow
            raise self._refusal(error, advice) from error
        except Exception as error:
            is_outage = isinstance(error, outage_errors())
            if not is_outage and not isinstance(error, OSError):
                raise
            may_wait = not required or self._study.may_exist
            if not (is_outage and may_wait):
                raise self._refusal(error, advice) from error
            self._outage = first_line(error)
        else:
            self._file = store.identity(self.uri)
        self._thread.start()

    def _refusal(self, error: Exception, advice: str) -> UserError:
        """Return why the study cannot be tracked, and what to do."""
        file = str((error.filename2 or error.filename) if isinstance(error, OSError) else "")
        if file.startswith(f"{self._snapshot.folder}/"):
            return UserError(
                f"a file of the study cannot be written: {error}\nMake its folder writable and"
                " remove what is in the way, then type the command again"
            )
        reason = store.explain(error) or first_line(error)
        is_of_shell = self.uri == os.environ.get("MLFLOW_TRACKING_URI")
        source = " (MLFLOW_TRACKING_URI)" if is_of_shell else ""
        return UserError(
            f"MLflow at {without_password(self.uri)}{source} cannot be used: {reason}\n{advice}"
        )

    def start_trial(
        self, trial: TrialRecord, overrides: Sequence[str], config: DictConfig | None = None
    ) -> dict[str, str]:
        """Create or reopen the trial's run, and return what to add to the trial's environment.

        In an outage that is nothing, and the run is created later. An address with a password is
        never added: the trial inherits it from its driver, or goes without. `config`, with its
        hydra node, is by default read from the folder.
        """
        run = TrialRun(self._study, trial, overrides, config)
        started = time.monotonic()
        if not self._outage:
            # because MLflow would wait 20 s for a locked database
            opening = self._creating.submit(run.open)
            try:
                error = opening.exception(_PATIENCE_S)
            except TimeoutError:
                self._outage = f"no answer within {_PATIENCE_S:g} s"
            else:
                # any other error recurs in the thread, which reports it
                if isinstance(error, outage_errors()):
                    self._outage = first_line(error)
        self._add_seconds(trial.number, started)
        self._runs[trial.number] = run
        self._page_is_old = True
        if run.run_id is None:
            return {}
        environment = {
            "MLFLOW_RUN_ID": run.run_id,
            TRIAL_RUN: run.run_id,
            store.EXPERIMENT_NAME: self._study.experiment,
            store.EXPERIMENT_ID: self._study.experiment_id,
            **store.QUIET,
        }
        if has_password(self.uri):
            return environment if os.environ.get("MLFLOW_TRACKING_URI") == self.uri else {}
        return {"MLFLOW_TRACKING_URI": self.uri, **environment}

    def end_trial(self, trial: TrialRecord) -> None:
        """Send the rest of a trial that is over, in the background."""
        run = self._runs.get(trial.number) or TrialRun(self._study, trial)
        run.trial = trial
        run.ended = True
        self._runs[trial.number] = run
        self._page_is_old = True

    def drain(self, study: StudySnapshot, timeout_s: float = 30.0) -> None:
        """Wait until everything is sent, or no trial was completed for `timeout_s`; the next driver
        sends the rest."""
        for trial in study.rows:
            if is_running(trial):  # without this driver: the next driver sends the rest
                self._runs.pop(trial.number, None)
            elif trial.number in self._runs or self._lacks(trial):
                self.end_trial(trial)
        self._draining.set()
        left = len(self._runs)
        deadline = time.monotonic() + timeout_s
        while self._runs and time.monotonic() < deadline:
            time.sleep(_SOON_S)
            if len(self._runs) < left:
                left = len(self._runs)
                deadline = time.monotonic() + timeout_s
        self._finished.set()
        self._thread.join(min(timeout_s, 5.0))
        if self._runs:
            self._outage = (
                f"{self._outage or 'too slow'} ({counted(left, 'trial')} not complete there)"
            )

    def complete(self, study: StudySnapshot | Findings) -> None:
        """Complete the study's run with the files of report.write, if all its trials are complete
        in MLflow."""
        if self._runs:
            return
        try:
            findings = findings_of(study)
            self._study.complete(findings, has_running=any(map(is_running, findings.study.rows)))
            self.duplicates = self._study.end_duplicates(findings.study.rows)
        except Exception as error:  # because the study is over, and its report is written
            self._problems[_STUDY] = f"the study: {first_line(error)}"

    def closing_lines(self) -> list[str]:
        """Return what MLflow lacks and how to send it, and which duplicate runs were ended, a line
        each."""
        problem = self.problem
        lines = [problem] if problem else []
        if problem and self.lacks_sendable:
            lines.append(f"Send the rest later: {sweeps_line('sync', self._snapshot.folder)}")
        if self.duplicates:
            runs = counted(len(self.duplicates), "duplicate run")
            ids = ", ".join(self.duplicates)
            cause = "Each was created by a call whose answer was lost"
            lines.append(f"deleted {runs} in MLflow: {ids}. {cause}")
        return lines

    def catch_up(self, study: StudySnapshot) -> tuple[int, int]:
        """Send what MLflow lacks of a study without a driver.

        Returns of how many trials it lacked something, and how many still run; of these it has what
        exists so far.
        """
        running = [trial for trial in study.rows if is_running(trial)]
        lacking = [trial for trial in study.rows if trial not in running and self._lacks(trial)]
        for trial in running:
            if not self._sync(TrialRun(self._study, trial)):
                break
        self.drain(study)
        self.complete(study.with_tracking(self.seconds))
        return len(lacking), len(running)

    def dashboard_line(self) -> str:
        """Return the line with the command, or the link, that shows the study in its ready-made
        view."""
        study = self._snapshot
        if store.is_server(self.uri):
            experiment_id = self._study.experiment_id  # unknown until MLflow answers
            return server_line(self.uri, experiment_id, study) if experiment_id else ""
        if self._is_gone():
            sync = f"To send it again: {sweeps_line('sync', study.folder)}"
            return f"MLflow has nothing of the study: {self.uri} was deleted. {sync}"
        if study.name == study.folder.name:
            return f"dashboard: {sweeps_line('ui', study.folder)}"
        # single runs, which `ui` does not find by a folder
        words = ["sweepyard", "ui", study.name]
        if not store.is_usual(self.uri):
            variables = [name for name, value in os.environ.items() if value == self.uri]
            address = f"${{oc.env:{variables[0]}}}" if variables else without_password(self.uri)
            words += ["--uri", address]
        return f"dashboard: {shlex.join(words)}"

    def _lacks(self, trial: TrialRecord) -> bool:
        return trial.state is not State.QUEUED and not TrialRun(self._study, trial).was_closed()

    def _add_seconds(self, number: int, since: float) -> None:
        self.seconds[number] = self.seconds.get(number, 0.0) + time.monotonic() - since

    def _is_gone(self) -> bool:
        """Return whether the file that this process writes to was deleted or replaced."""
        return self._file is not None and self._file != store.identity(self.uri)

    def _sync_until_finished(self) -> None:
        while not self._finished.is_set():
            if not self._sync_all():
                self._finished.wait(_EVERY_S)
                continue
            is_page_due = self._page_is_old and time.monotonic() >= self._page_due
            if is_page_due and not self._draining.is_set():
                self._send_page()
            if self._draining.wait(max(_EVERY_S, len(self._with_news()) / _RUNS_PER_S)):
                self._finished.wait(_SOON_S)

    def _with_news(self) -> list[tuple[int, TrialRun]]:
        """Return the runs that MLflow may lack something of: not those of queued trials whose
        params it has."""
        queued = {trial.number for trial in self._snapshot.open if trial.state is State.QUEUED}
        runs = list(self._runs.items())
        return [(n, run) for n, run in runs if run.ended or not run.described or n not in queued]

    def _sync_all(self) -> bool:
        """Update all runs, and return whether MLflow answered. Trials that failed before come
        last."""
        for number, run in sorted(self._with_news(), key=lambda item: item[1].failures):
            started = time.monotonic()
            answered = self._sync(run)
            self._add_seconds(number, started)
            if not answered:
                return False
            if run.closed and self._runs.get(number) is run:
                self._runs.pop(number, None)
        return True

    def _send_page(self) -> None:
        """Send the current page. The next page is sent in a minute, and the last page at the
        study's end."""
        self._page_due = time.monotonic() + _PAGE_EVERY_S
        self._page_is_old = False
        try:
            self._study.send_page()
            self._problems.pop(_STUDY, None)
        except Exception as error:  # because trials are more important
            self._problems[_STUDY] = f"the study: its page: {first_line(error)}"

    def _sync(self, run: TrialRun) -> bool:
        """Update a trial's run, and return whether MLflow answered."""
        number = run.trial.number
        try:
            run.sync()
            problem = run.problem
            run.failures = 0
            if run.refused:
                self._refused.add(number)
        except outage_errors() as error:
            problem = first_line(error)
            if not store.is_refusal(error):
                self._outage = problem
                run.failures += 1
                return False
            run.closed = True  # because later metrics would be refused too
            self._refused.add(number)
        except (CorruptFile, OSError) as error:
            problem = str(error)
            run.closed = self._draining.is_set()  # because a disk may be away for a moment
        except Exception as error:  # because the other trials must still be sent
            problem = f"{type(error).__name__}: {first_line(error)}"
            run.closed = True
        self._outage = ""
        if problem:
            self._problems[number] = f"trial {number} ({run.trial.name}): {problem}"
        else:
            self._problems.pop(number, None)
        return True
