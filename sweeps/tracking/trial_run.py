"""A trial's run in MLflow, updated from the trial's folder."""

import re
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from omegaconf import DictConfig

from sweeps.analysis import costs
from sweeps.base.files import Lines, last_lines
from sweeps.base.wording import counted, printable
from sweeps.record.study import TrialRecord, result_of
from sweeps.record.trial_config import read_config, settings
from sweeps.show import notes
from sweeps.tracking.run_data import MetricRow, logarithms, mlflow_name, send, send_settings
from sweeps.tracking.saved_model import log_saved_model
from sweeps.tracking.store import first_line
from sweeps.tracking.study_run import StudyRun, read_tracking
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from sweeps.trial.machine import facts
from sweeps.trial.metrics import METRICS, SYSTEM_METRICS
from sweeps.trial.metrics_reader import MetricsReader

_LOG_LINES = 20
_LOG_WIDTH = 80
# because MLflow cuts a tag after 8000, and masking a password may lengthen it
_LOG_CHARACTERS = 4000


class TrialRun:
    """One trial. `sync` may be called at any time, also after a failure; the driver sets `trial`
    and `ended`."""

    def __init__(
        self,
        study: StudyRun,
        trial: TrialRecord,
        overrides: Sequence[str] = (),
        config: DictConfig | None = None,
    ) -> None:
        self.trial = trial
        self.run_id: str | None = None  # of a run that surely exists
        self.ended = self.closed = False
        self.described = False  # whether its params were sent
        self.problem = ""  # parts of the trial that MLflow lacks, and why
        self.refused = False  # whether MLflow refused a part, and would again
        self.failures = 0  # consecutive calls that MLflow did not answer
        self._study = study
        self._folder = TrialFolder(trial.folder)
        self._overrides = overrides
        self._config = config
        self._earlier_run_possible = False
        self._opening = threading.Lock()
        self._readers = [MetricsReader(self._folder, name) for name in (METRICS, SYSTEM_METRICS)]
        self._reported: Counter[str] = Counter()  # number of points of each metric that was sent

    def was_closed(self) -> bool:
        """Return whether the study's run already has the complete trial, as the trial's folder
        records it."""
        tracking = read_tracking(self._folder.path)
        closed = {"parent": self._study.run_id, "trial": self.trial.number, "closed": True}
        return tracking.items() >= closed.items()

    def open(self) -> str:
        """Return the id of the trial's run, which is reopened, or created if there is none."""
        with self._opening:
            if self.run_id is None:
                self._study.open()
                # because the disk may have been full when an earlier driver created the run
                has_begun = bool(self.trial.attempts or self._folder.newest())
                tracking = self._folder.path / "tracking.json"
                self._earlier_run_possible = has_begun or tracking.exists()
                with suppress(OSError):  # because the second call below raises it again
                    # because a driver that dies now may leave a run to search for
                    self._write_tracking(closed=False)
                self.run_id = self._study.open_child(
                    self.trial, self._overrides, self._earlier_run_possible
                )
                self._write_tracking(closed=False)
        return self.run_id

    def sync(self) -> None:
        """Send all that is new in the folder. If the trial has ended, send its outcome and close
        its run.

        Raises CorruptFile or OSError if one of its files cannot be read or written now.
        """
        run_id = self.open()
        # read before the files, because nothing is written to them after the end
        ended = self.ended
        metrics, batches = self._new_metrics()
        self._reported.update(name for name, *_ in metrics)

        swept = {mlflow_name(name): str(value) for name, value in self.trial.params.items()}
        params = {}
        if not self.described:
            params = swept | logarithms(self.trial.params, self._study.study.space)
        tags: dict[str, str] = {}
        if ended:
            end_ms = self._end_ms()
            metrics += [(name, value, end_ms, 0) for name, value in self._end_metrics().items()]
            tags = self._end_tags()
        self._note_refusal(send(self._study.client, run_id, metrics, params, tags))

        for reader, lines in zip(self._readers, batches, strict=True):
            reader.mark_read(lines)
        self.described = True
        curves = [name for name, points in self._reported.items() if points > 1]
        self._study.update_view([*swept], curves)
        if ended:
            # At the end, because a trainer (autolog) may log params of the same names with other
            # values.
            self._note_refusal(send_settings(self._study.client, run_id, self._settings()))
            self._close(run_id)

    def _note_refusal(self, reason: str) -> None:
        """Note why MLflow refused a part of the trial; nothing if the reason is empty."""
        if reason:
            self.problem = reason
            self.refused = True

    def _new_metrics(self) -> tuple[list[MetricRow], list[Lines]]:
        """Return the metrics that were reported since the last complete `sync`, and the lines that
        contain them."""
        rows = []
        batches = [reader.unread() for reader in self._readers]
        for reader, lines in zip(self._readers, batches, strict=True):
            if lines.damaged:
                damaged = counted(lines.damaged, "damaged line")
                self.problem = f"{damaged} in {self._folder.path / reader.name}"
            for line in lines.values:
                time_ms = int(line.time * 1000)
                for name, value in line.metrics.items():
                    rows.append((mlflow_name(name), value, time_ms, line.step))
        return rows, batches

    def _settings(self) -> dict[str, str]:
        """Return the settings of the trial's configuration that were not swept, as the training
        used them."""
        try:
            written = settings(self._config or read_config(self._folder.path))
        except Exception as error:  # because a damaged file may hold anything
            config = self._folder.path / ".hydra"
            self.problem = f"its config in {config} cannot be read: {first_line(error)}"
            return {}
        written |= {name: str(value) for name, value in facts.read(self._folder).settings.items()}
        fixed = {mlflow_name(name): value for name, value in written.items() if value != "null"}
        for name in self.trial.params:
            fixed.pop(mlflow_name(name), None)
        return fixed

    def _end_metrics(self) -> dict[str, float]:
        """Return each objective as best/NAME, the returned metrics that were never reported, and
        the costs."""
        trial = self.trial
        objective = dict(zip(self._study.study.objective, trial.objective, strict=False))
        metrics = {f"best/{mlflow_name(name)}": value for name, value in objective.items()}
        for name, value in trial.metrics.items():
            own_name = mlflow_name(name)
            if name not in objective and own_name not in self._reported:
                metrics[own_name] = value
        metrics |= costs.of_attempts(trial.attempts)
        if trial.gpu_use is not None:
            metrics["gpu_use"] = trial.gpu_use
        return metrics

    def _end_tags(self) -> dict[str, str]:
        trial = self.trial
        tags = {"state": str(trial.state), "mlflow.note.content": self._description()}
        has_earlier = self._earlier_run_possible or len(trial.attempts) > 1
        if trial.error or has_earlier:  # because an earlier attempt may have set it
            tags["error"] = trial.error
        tags |= facts.read(self._folder).process
        for name, note in self._folder.notes().items():
            tags[f"note.{mlflow_name(name)}"] = notes.text_of(note)
        return tags

    def _description(self) -> str:
        """Return the outcome and the end of the log, in Markdown."""
        count = len(self.trial.attempts)
        attempt_number = f" in attempt {count}" if count > 1 else ""
        state = f"**{self.trial.state.replace('_', ' ')}**{attempt_number}"
        lines = [f"{state}: {self.trial.error}" if self.trial.error else state]
        if result := result_of(self.trial, self._study.study):
            lines.append(result)
        attempt = self._folder.newest()
        log_lines = last_lines(attempt.log, _LOG_LINES) if attempt else []
        # Folded, because one long line would widen MLflow's whole page.
        if log := "\n".join(_folded(printable(line)) for line in log_lines)[-_LOG_CHARACTERS:]:
            fence = "`" * (1 + max(map(len, re.findall("`+", log)), default=2))
            lines.append("The end of its log (the whole log is an artifact):")
            lines.append(f"{fence}text\n{log}\n{fence}")
        return "\n\n".join(lines)

    def _end_ms(self) -> int:
        """Return the same time at each call, because MLflow would store a metric of another time as
        a second row."""
        ended = self.trial.attempts[-1].ended_at if self.trial.attempts else 0.0
        # a refused trial has no end time
        return int(1000 * (ended or self._folder.path.stat().st_mtime))

    def _close(self, run_id: str) -> None:
        self._study.client.set_terminated(run_id, _run_status(self.trial.state), self._end_ms())
        logs = [attempt.log for attempt in self._folder.attempts()[-1:]]
        self._study.send_files(run_id, self._folder.path / ".hydra" / "config.yaml", *logs)
        if model := self._folder.model:
            log_saved_model(self._study.client, self._study.experiment_id, run_id, model)
        self._write_tracking(closed=self.trial.state not in (State.QUEUED, State.RUNNING))
        self.closed = True

    def _write_tracking(self, closed: bool) -> None:
        # because a refused trial has no folder
        self._folder.path.mkdir(parents=True, exist_ok=True)
        trial = {"parent": self._study.run_id, "trial": self.trial.number}
        self._folder.write_tracking({"run_id": self.run_id, **trial, "closed": closed})


def _folded(line: str) -> str:
    """Return the line in pieces. Passwords must be masked before, while the line is whole."""
    return "\n".join(line[start : start + _LOG_WIDTH] for start in range(0, len(line), _LOG_WIDTH))


def _run_status(state: State) -> str:
    """Return MLflow's status for a state: KILLED if the trial was ended from outside, or is not
    over."""
    if state in (State.COMPLETED, State.PRUNED, State.PAUSED, State.INFEASIBLE):
        return "FINISHED"
    return "FAILED" if state.is_bad and state is not State.LOST else "KILLED"


def is_running(trial: TrialRecord) -> bool:
    """Return whether the trial runs, or its job is queued, without this driver."""
    with suppress(OSError):
        newest = TrialFolder(trial.folder).newest() if trial.state is State.QUEUED else None
        return trial.state is State.RUNNING or (newest is not None and not newest.is_over)
    return False
