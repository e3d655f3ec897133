"""A study's place in MLflow: its experiment, its own run (parent of the trials' runs), and writing to runs.

Calls run in the caller's thread, may take seconds, and raise one of `outages` when MLflow gives no answer
or refuses.
"""

import logging
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from sweeps import comparison_view, ledger, report
from sweeps.errors import UserError
from sweeps.summary import Summary
from sweeps.trial_folder import State, TrialFolder

MetricRow = tuple[str, float, int, int]
"""Name, value, milliseconds since 1970, step. MLflow keeps equal rows once, so sending again is harmless."""

_REFUSALS = (
    "RESOURCE_DOES_NOT_EXIST",
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "BAD_REQUEST",
    "PERMISSION_DENIED",
)
_BATCH = 800
"""Metrics in one call: MLflow takes 1000 entities, and params and tags count."""
_ENVIRONMENT = {  # without the first three, a call to a server that is gone blocks for four minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def key(name: str) -> str:
    """A name in the letters that MLflow allows: Hydra's `+db@src` is `db_src` there."""
    return re.sub(r"[^\w\-. /:]", "_", name.lstrip("+~"))


def is_refusal(error: Exception) -> bool:
    """Whether MLflow answered, and will answer the same the next time."""
    return getattr(error, "error_code", "") in _REFUSALS


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


class StudyRun:
    """The study's run, which `connect` creates or reopens, and the client that writes to all runs."""

    outages: tuple[type[Exception], ...] = (OSError, ImportError)
    """What calls raise when MLflow gives no answer or refuses; `connect` adds what it has to import first."""

    def __init__(self, uri: str, experiment: str, summary: Summary) -> None:
        self.uri, self.study, self.objective = uri, summary.name, summary.objective
        self._experiment, self._folder = experiment, TrialFolder(summary.folder)
        self._directions = summary.directions
        self._left_open: dict[str, str] = {}
        self._swept: dict[str, None] = {}
        self._curves: dict[str, None] = {}

    def connect(self) -> None:
        """Create or migrate the store; create or reopen the experiment and the study's run.

        Raises:
            UserError: the experiment was deleted.
        """
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
        from requests import RequestException
        from sqlalchemy.exc import SQLAlchemyError

        self.outages = (*self.outages, MlflowException, RequestException, SQLAlchemyError)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it raises what it logs
        self.client = MlflowClient(self.uri)
        self.experiment_id = self._open_experiment()
        self.run_id = self._reopen() or self._create()

    def create_child(self, number: int, name: str, overrides: Sequence[str]) -> str:
        """The id of a new run for a trial, or of the one that a driver created before it died."""
        left_open = self._left_open.pop(str(number), None)
        if left_open is not None:
            return left_open
        tags = {"mlflow.parentRunId": self.run_id, "role": "trial", "trial": str(number), **self._tags}
        if overrides:
            tags["overrides"] = " ".join(overrides)
        return str(self.client.create_run(self.experiment_id, tags=tags, run_name=name).info.run_id)

    def send(
        self,
        run_id: str,
        metrics: Sequence[MetricRow],
        params: Mapping[str, str] = {},
        tags: Mapping[str, str] = {},
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        first = ([Param(*item) for item in params.items()], [RunTag(*item) for item in tags.items()])
        for start in range(0, len(metrics) or 1, _BATCH):
            batch = [Metric(*row) for row in metrics[start : start + _BATCH]]
            if batch or any(first):
                self.client.log_batch(run_id, batch, *first, synchronous=True)
            first = ([], [])

    def show(self, swept: Sequence[str], curves: Sequence[str]) -> None:
        """Let the comparison view know these parameters and metrics, as MLflow names them."""
        known = len(self._swept), len(self._curves)
        self._swept |= dict.fromkeys(swept)
        self._curves |= dict.fromkeys(name for name in curves if not name.startswith("system/"))
        if known != (len(self._swept), len(self._curves)):
            objective = [key(name) for name in self.objective]
            now_ms = int(time.time() * 1000)
            tag = comparison_view.tag(
                self.study,
                params=[*self._swept],
                objective=objective,
                directions=self._directions,
                curves=self._curves,
                now_ms=now_ms,
            )
            self.client.set_experiment_tag(self.experiment_id, *tag)

    def complete(self, summary: Summary) -> None:
        """Write what stands for the whole study, with the files of report.write, and end its run."""
        now_ms = int(time.time() * 1000)
        done, bad = summary.count(State.COMPLETED), len(summary.bad())
        figures: dict[str, float] = {"trials": len(summary.rows), "completed": done, "failed": bad}
        figures["pruned"] = summary.count(State.PRUNED)
        for kind, cost in ledger.of_study(summary.rows).items():
            figures |= {f"{kind}/seconds_{phase}": value for phase, value in cost.seconds.items()}
            figures[f"{kind}/gpu_hours"] = cost.gpu_hours
            if cost.energy_kwh is not None:
                figures[f"{kind}/energy_kwh"] = cost.energy_kwh
        figures["idle_slot_seconds_at_the_end"] = ledger.tail_s(summary.rows)
        tags = {"mlflow.note.content": report.markdown(summary)}
        if best := summary.best():
            figures |= {
                f"best_{key(name)}": value for name, value in zip(self.objective, best.objective, strict=True)
            }
            tags["best_trial"] = f"{best.number}: {best.name}"
        # Named unlike the trials' metrics: sorted by one of those, the list must hold trials alone.
        self.send(
            self.run_id, [(f"study/{name}", value, now_ms, 0) for name, value in figures.items()], {}, tags
        )
        for file in (summary.folder / report.HTML, summary.folder / report.CSV):
            if file.exists():
                self.client.log_artifact(self.run_id, str(file))
        if summary.count(State.RUNNING):
            return  # its trials go on without this driver
        over = summary.count(State.QUEUED, State.CANCELLED) == 0
        status = "KILLED" if not over else "FAILED" if bad and not done else "FINISHED"
        self.client.set_terminated(self.run_id, status, now_ms)

    def _open_experiment(self) -> str:
        found = self.client.get_experiment_by_name(self._experiment)
        if found is None:
            database = self.uri.removeprefix("sqlite:///")
            beside = None if database == self.uri else str(Path(database).parent / "mlartifacts")
            kind = {"mlflow.experimentKind": "custom_model_development"}  # else the page opens as GenAI
            return str(self.client.create_experiment(self._experiment, artifact_location=beside, tags=kind))
        if found.lifecycle_stage == "deleted":
            restore = f"mlflow experiments restore -x {found.experiment_id}"
            raise UserError(
                f"The MLflow experiment '{self._experiment}' was deleted. Choose another name with "
                f"hydra.sweeper.experiment=..., or restore it:\n"
                f"MLFLOW_TRACKING_URI={shlex.quote(self.uri)} {restore}"
            )
        return str(found.experiment_id)

    def _reopen(self) -> str | None:
        from mlflow.exceptions import MlflowException

        run_id: str | None = self._folder.read_tracking().get("run_id")
        if run_id is None:
            return None
        try:
            if self.client.get_run(run_id).info.lifecycle_stage == "deleted":
                return None
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":  # the store is another one than last time
                return None
            raise
        self.client.update_run(run_id, status="RUNNING")
        # A driver that died between creating a trial's run and noting it left one: still the trial's.
        running = f"tags.`mlflow.parentRunId` = '{run_id}' AND attributes.status = 'RUNNING'"
        found = self.client.search_runs([self.experiment_id], running)
        self._left_open = {run.data.tags.get("trial", ""): run.info.run_id for run in found}
        return run_id

    def _create(self) -> str:
        command = shlex.join([Path(sys.executable).name, *sys.argv])
        tags = {"role": "study", "command": command, **self._tags}
        run_id = str(self.client.create_run(self.experiment_id, tags=tags, run_name=self.study).info.run_id)
        self._folder.path.mkdir(parents=True, exist_ok=True)
        self._folder.write_tracking({"run_id": run_id})
        return run_id

    @cached_property
    def _tags(self) -> dict[str, str]:
        """What every run of the study carries."""
        tags = {
            "study": self.study,
            "mlflow.source.name": Path(sys.argv[0]).name,
            "mlflow.source.type": "LOCAL",
        }
        try:
            git = subprocess.run(
                ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
            )
        except (FileNotFoundError, subprocess.TimeoutExpired) as error:
            logging.getLogger(__name__).info("no git commit noted: %s", error)
            return tags
        return {**tags, "mlflow.source.git.commit": git.stdout.strip()} if git.returncode == 0 else tags
