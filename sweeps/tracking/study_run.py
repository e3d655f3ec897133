"""A study in MLflow: its experiment, its own run (the parent of the trials' runs), and writing to
runs.

Calls may take seconds, and raise one of `outage_errors` if MLflow refuses or does not answer.
"""

import os
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile
from sweeps.base.secrets import has_password, mask_value, without_password
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.record.trial_config import shared_settings
from sweeps.show import tables
from sweeps.show.figures import picture
from sweeps.show.findings import Findings
from sweeps.show.page import report
from sweeps.tracking import comparison_view
from sweeps.tracking.run_data import copy_for_show, mlflow_name, send
from sweeps.tracking.store import (
    EXPERIMENT_ID,
    artifacts_of,
    connect,
    first_line,
    is_server,
    is_unanswered,
    outage_errors,
    resolve_experiment,
    sent_once,
)
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State

_PICTURE = "study.svg"


def read_tracking(folder: Path) -> dict[str, Any]:
    """Read what a study's or a trial's folder records of its run; {} if there is nothing, or the
    file is damaged."""
    with suppress(CorruptFile, OSError):
        return TrialFolder(folder).read_tracking()
    return {}


class StudyRun:
    """The study's run, and the client that writes to all runs. `open` connects, and creates or
    reopens the run."""

    client: Any

    def __init__(
        self, uri: str, experiment: str | None, study: StudySnapshot, command: str = ""
    ) -> None:
        """Prepare without a connection: until `open`, the ids are the ids that the study's folder
        records.

        `experiment` is the experiment's name as it was typed; None if nobody typed one.
        """
        recorded = read_tracking(study.folder)
        self.run_id = str(recorded.get("run_id") or "")
        self.experiment_id = str(recorded.get("experiment") or "")
        self.study = study
        self._uri = uri
        self.experiment = resolve_experiment(experiment, recorded.get("experiment_name"))
        self._command = command or shlex.join([Path(sys.executable).name, *sys.argv])
        self._opening = threading.Lock()
        self._is_open = False
        # whether MLflow has the run, or did not answer its creation
        self.may_exist = bool(self.run_id)
        self._source_tags: dict[str, str] = {}  # user, git commit and entry point
        self._view = comparison_view.StudyView()
        self._artifact_uris: dict[str, str] = {}  # by run id

    def open(self) -> None:
        """Connect to the store, and create or reopen the study's run, unless that was done
        before."""
        with self._opening:
            if self._is_open:
                return
            self.client = connect(self._uri)
            from mlflow.tracking.context.registry import resolve_tags

            self._source_tags = resolve_tags()
            self.experiment_id = self._open_experiment()
            try:
                self.run_id = self._open_run(self._command)
                self.may_exist = True
            except outage_errors() as error:
                self.may_exist = self.may_exist or is_unanswered(error)
                raise
            self._send_params()
            self._view.derive(self.study)
            self._is_open = True

    def open_child(self, trial: TrialRecord, overrides: Sequence[str], may_exist: bool) -> str:
        """Return the id of a trial's run: an earlier driver's run if there is one, else a new run.

        may_exist: whether an earlier driver may have left a run.
        """
        where = f"tags.`mlflow.parentRunId` = '{self.run_id}' AND tags.trial = '{trial.number}'"
        if may_exist and (runs := self._search(where)):
            return self._reopen(runs[0])
        tags = {"mlflow.parentRunId": self.run_id, "trial": str(trial.number), "role": "trial"}
        tags["folder"] = str(trial.folder.absolute())
        if overrides:
            tags["overrides"] = " ".join(overrides)
        return self._create(trial.short_name, tags)

    def send_files(self, run_id: str, *files: Path) -> None:
        """Log files that are not empty as artifacts; of a long file its head and its tail."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from mlflow.utils.uri import add_databricks_profile_info_to_artifact_uri

        # Because client.log_artifact would request the artifact URI of each run once more.
        uri = self.client.tracking_uri
        locate = cast(Any, add_databricks_profile_info_to_artifact_uri)
        repository: Any = get_artifact_repository(locate(self._artifact_uris[run_id], uri), uri)
        # An empty file would be sent in chunks, which not every proxy passes on.
        for file in files:
            if file.is_file() and file.stat().st_size:
                with tempfile.TemporaryDirectory() as folder:
                    repository.log_artifact(str(copy_for_show(file, Path(folder))))

    def update_view(self, params: Sequence[str], metrics: Sequence[str]) -> None:
        """Add these params and metrics, as MLflow names them, to the comparison view."""
        if self._view.add(params, metrics):
            self._store_view(self.study)

    def _store_view(self, study: StudySnapshot) -> None:
        self.client.set_experiment_tag(self.experiment_id, *self._view.tag(study))

    def complete(self, findings: Findings, has_running: bool) -> None:
        """Send the whole study's results and the files of report.write. End its run unless it
        `has_running` trials."""
        self.open()
        study = findings.study
        now_ms = int(time.time() * 1000)
        self._view.derive(study)
        self._store_view(study)
        self._send_results(findings, now_ms)
        self.send_page()
        self.send_files(self.run_id, study.folder / tables.CSV)
        self._log_code(study.folder)

        seconds = {row.number: row.tracking_s for row in study.rows}
        tracking = read_tracking(study.folder)
        TrialFolder(study.folder).write_tracking({**tracking, "seconds": seconds})
        if not has_running:
            self.client.set_terminated(self.run_id, _status_of(study), now_ms)

    def _send_results(self, findings: Findings, now_ms: int) -> None:
        note = report.markdown(findings, self._log_picture(findings))
        figures, tags = _results(findings)
        tags["mlflow.note.content"] = note
        # Prefixed, because the list of runs, sorted by a metric of the trials, must not contain the
        # study's run.
        metrics = [(f"study/{name}", value, now_ms, 0) for name, value in figures.items()]
        send(self.client, self.run_id, metrics, {}, tags)

    def _log_code(self, folder: Path) -> None:
        """Log commit, diff and packages, not the modules."""
        for file in folder.glob("code/[0-9]*/[!.]*.*"):
            place = file.parent.relative_to(folder)
            self.client.log_artifact(self.run_id, str(file), str(place))

    def end_duplicates(self, trials: Sequence[TrialRecord]) -> list[str]:
        """End and delete unfinished runs of the trials' folders that the folders do not record, and
        return their ids.

        MLflow creates such a run if its answer to the creation was lost; a driver, if it could not
        write the id to a full disk. Runs of other folders stay, because single runs and copies of a
        study may share a number.
        """
        self.open()
        run_ids = {str(t.folder.absolute()): read_tracking(t.folder).get("run_id") for t in trials}
        unfinished = (
            f"attributes.status != 'FINISHED' AND tags.`mlflow.parentRunId` = '{self.run_id}'"
        )
        duplicates = []
        for run in self._search(unfinished):
            recorded = run_ids.get(run.data.tags.get("folder", ""))
            if recorded and recorded != run.info.run_id:
                self.client.set_terminated(run.info.run_id, "KILLED")
                self.client.delete_run(run.info.run_id)
                duplicates.append(run.info.run_id)
        return duplicates

    def send_page(self) -> None:
        """Log the study's page if it has been written."""
        self.open()
        if (page := self.study.folder / tables.HTML).is_file():
            self.client.log_artifact(self.run_id, str(page))

    def _log_picture(self, findings: Findings) -> str:
        """Log the study's main figure, and return the Markdown line that shows it; "" without a
        figure."""
        try:
            svg = picture.render_picture(findings)
        except Exception as error:
            # because trials may report any numbers, and the other results are still sent
            return f"The figure could not be drawn: {first_line(error)}"
        if not svg:
            return ""
        self.client.log_text(self.run_id, svg, _PICTURE)
        # The address at which MLflow's pages load an artifact, relative to their own.
        return f"![its trials](get-artifact?path={_PICTURE}&run_uuid={self.run_id})"

    def _open_experiment(self) -> str:
        """Return the id of the experiment, which is created if there is none of its name."""
        if not self.experiment:
            self.experiment = str(self.client.get_experiment(os.environ[EXPERIMENT_ID]).name)
        name = self.experiment
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            # because MLflow otherwise opens GenAI pages
            kind = {"mlflow.experimentKind": "custom_model_development"}
            try:
                return str(self.client.create_experiment(name, artifacts_of(self._uri), kind))
            except outage_errors():
                experiment = self.client.get_experiment_by_name(name)
                if experiment is None:  # else another driver was faster
                    raise
        if experiment.lifecycle_stage == "deleted":
            raise UserError(
                f"The MLflow experiment '{name}' was deleted. "
                "Choose another name with tracking.experiment=..., or restore it:\n"
                f"MLFLOW_TRACKING_URI={shlex.quote(without_password(self._uri))} "
                f"mlflow experiments restore -x {experiment.experiment_id}"
            )
        return str(experiment.experiment_id)

    def _open_run(self, command: str) -> str:
        """Return the id of the run that the study's folder records, or that records this folder;
        else of a new run."""
        folder = TrialFolder(self.study.folder)
        name = self.study.name
        place = str(folder.path.absolute())
        earlier = None
        if (folder.path / "tracking.json").exists():
            earlier = self._earlier_run(place)
        else:
            folder.path.mkdir(parents=True, exist_ok=True)
            # because a driver that dies now may leave a run to search for
            folder.write_tracking({"run_id": None})

        if earlier:
            run_id = self._reopen(earlier)
        else:
            run_id = self._create(name, {"role": "study", "folder": place, "command": command})
        tracking = {
            "run_id": run_id,
            "experiment": self.experiment_id,
            "experiment_name": self.experiment,
        }
        if is_server(self._uri) and not has_password(self._uri):
            path = comparison_view.path(self.experiment_id, name)
            tracking["page"] = self._uri.rstrip("/") + path
        folder.write_tracking(tracking)
        return run_id

    def _earlier_run(self, place: str) -> Any:
        """Return the run that the study's folder, at `place`, records, or that records the folder;
        else None."""
        run_id = read_tracking(self.study.folder).get("run_id")
        name = comparison_view.quote(self.study.name)
        for run in self._search(f"tags.role = 'study' AND tags.study = {name}"):
            if run.info.run_id == run_id or run.data.tags.get("folder") == place:
                return run
        return None

    def _send_params(self) -> None:
        """Log the study's params; a value that differs from a logged param, which MLflow cannot
        change, as a tag."""
        logged = self.client.get_run(self.run_id).data.params
        new = {}
        changed = {}
        for name, text in self._params().items():
            value = mask_value(name, text)
            if name not in logged:
                new[name] = value
            elif logged[name] != value:
                changed[name] = value
        send(self.client, self.run_id, [], new, changed)

    def _params(self) -> dict[str, str]:
        """Return the objectives, the values of each swept parameter, and the settings that all
        trials share."""
        goals = zip(self.study.objective, self.study.directions, strict=True)
        objective = ", ".join(f"{name} ({direction})" for name, direction in goals)
        settings = {**shared_settings(self.study), **self.study.space}
        params = {mlflow_name(name): value for name, value in settings.items()}
        return {"objective": objective, **params}

    def _search(self, where: str) -> list[Any]:
        return list(self.client.search_runs([self.experiment_id], where))

    def _reopen(self, run: Any) -> str:
        self.client.update_run(run.info.run_id, status="RUNNING")
        return self._register(run)

    def _create(self, name: str, tags: Mapping[str, str]) -> str:
        # ours last, because a trial's own context has a parent
        all_tags = {**self._source_tags, **tags, "study": self.study.name}
        masked = {tag: without_password(value) for tag, value in all_tags.items()}
        with sent_once():
            run = self.client.create_run(
                self.experiment_id, tags=masked, run_name=without_password(name)
            )
        return self._register(run)

    def _register(self, run: Any) -> str:
        self._artifact_uris[run.info.run_id] = run.info.artifact_uri
        return str(run.info.run_id)


def _status_of(study: StudySnapshot) -> str:
    """Return MLflow's status for a study of which no trial runs."""
    if study.over() < len(study.rows):
        return "KILLED"
    if study.bad() and not study.count(State.COMPLETED):
        return "FAILED"
    return "FINISHED"


def _results(findings: Findings) -> tuple[dict[str, float], dict[str, str]]:
    """Return the whole study's results, as metrics and as tags."""
    answer = findings.answer
    objective = [mlflow_name(name) for name in findings.study.objective]
    tags = dict[str, str]()
    figures = {"idle_slot_seconds_at_the_end": findings.tail_s}
    for kind, cost in findings.costs.items():
        for name, value in cost.items():
            figures[f"{kind}/{name}"] = value

    if answer.front:
        tags["front"] = ", ".join(str(trial.number) for trial in answer.front)
        figures["hypervolume"] = findings.hypervolumes[-1][1]
    elif best := answer.best_configuration:
        figures[f"best_mean_{objective[0]}"] = fmean(best.values)
        tags["best_configuration"] = best.name
    elif trial := answer.best_trial:
        for name, value in zip(objective, trial.objective, strict=True):
            figures[f"best_{name}"] = value
        tags["best_trial"] = f"{trial.number}: {trial.name}"
    return figures, tags
