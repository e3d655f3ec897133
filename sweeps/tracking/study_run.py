"""A study's place in MLflow: its experiment, its own run (parent of the trials' runs), and writing to runs.

Calls may take seconds, and raise one of `outage_errors` when MLflow gives no answer or refuses.
"""

import re
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from sweeps.errors import UserError
from sweeps.files import CorruptFile
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.results import picture, report
from sweeps.results.findings import Findings
from sweeps.secrets import without_password
from sweeps.tracking import comparison_view
from sweeps.tracking.store import UNWANTED, artifacts_of, connect, first_line, outage_errors
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State

MetricRow = tuple[str, float, int, int]
"""Name, value, milliseconds since 1970, step. MLflow keeps equal rows once, so sending again is harmless."""

_LONG_BYTES = 5_000_000
_PICTURE = "study.svg"
_BATCH = 1000  # metrics, params and tags that MLflow takes in one call, at most


def key(name: str) -> str:
    """A name in the letters that MLflow allows: Hydra's `+db@src` is `db_src` there."""
    return re.sub(r"[^\w\-. /:]", "_", name.lstrip("+~"))


class StudyRun:
    """The study's run, created or reopened, and the client that writes to all runs."""

    def __init__(self, uri: str, experiment: str, summary: StudySnapshot, command: str = "") -> None:
        self.client = connect(uri)
        from mlflow.tracking.context.registry import resolve_tags

        self.summary = summary
        self._source: dict[str, str] = resolve_tags()  # whose code it is, and from where
        self._swept: dict[str, None] = {}  # for the comparison view, in this order
        self._curves: dict[str, None] = {}
        self._places: dict[str, str] = {}  # where the artifacts of each run go
        self.experiment_id = self._open_experiment(uri, experiment)
        self.run_id = self._open_run(command or shlex.join([Path(sys.executable).name, *sys.argv]))

    def open_child(self, row: TrialRecord, overrides: Sequence[str], may_exist: bool) -> str:
        """The id of a trial's run: the one that an earlier driver left, if there may be one, or a new one."""
        where = f"tags.`mlflow.parentRunId` = '{self.run_id}' AND tags.trial = '{row.number}'"
        if may_exist and (found := self._search(where)):
            return self._reopen(found[0])
        tags = {"mlflow.parentRunId": self.run_id, "trial": str(row.number), "role": "trial"}
        return self._create(row.name, {**tags, "overrides": " ".join(overrides)} if overrides else tags)

    def send(self, run_id: str, metrics: list[MetricRow], params: dict[str, str], tags: dict[str, str]) -> str:
        """Send all that MLflow takes. Returns why it refused the rest; empty if it took everything."""
        from mlflow.entities import Metric, Param, RunTag

        entities: list[Any] = [Param(name, without_password(value)) for name, value in params.items()]
        entities += [RunTag(name, without_password(value)) for name, value in tags.items()]
        entities += [Metric(*row) for row in metrics]
        batches = [entities[start : start + _BATCH] for start in range(0, len(entities), _BATCH)]
        refused = [self._log(run_id, batch) for batch in batches]
        return next(filter(None, refused), "")

    def _log(self, run_id: str, batch: Sequence[Any]) -> str:
        """Log metrics, params and tags, so that a name that is refused costs no other. Returns a refusal's words."""
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException

        def those(kind: type) -> list[Any]:
            return [entity for entity in batch if isinstance(entity, kind)]

        try:
            self.client.log_batch(run_id, those(Metric), those(Param), those(RunTag), synchronous=True)
        except MlflowException as error:
            names = {entity.key for entity in batch}
            if error.error_code not in UNWANTED:
                raise
            if len(names) == 1:
                return first_line(error)
            each = [self._log(run_id, [entity for entity in batch if entity.key == name]) for name in names]
            return next(filter(None, each), "")
        return ""

    def send_files(self, run_id: str, *files: Path) -> None:
        """Log files as artifacts; of a long one its head and its tail."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from mlflow.utils.uri import add_databricks_profile_info_to_artifact_uri

        # As client.log_artifact does, which asks the server once more for the place of each run.
        uri, locate = self.client.tracking_uri, cast(Any, add_databricks_profile_info_to_artifact_uri)
        place: Any = get_artifact_repository(locate(self._places[run_id], uri), uri)
        for file in files:
            if file.is_file() and file.stat().st_size > _LONG_BYTES:
                with tempfile.TemporaryDirectory() as folder:
                    place.log_artifact(str(_shortened(file, Path(folder))))
            elif file.is_file():
                place.log_artifact(str(file))

    def show(self, swept: Sequence[str], curves: Sequence[str]) -> None:
        """Let the comparison view know these parameters and metrics, as MLflow names them."""
        known = len(self._swept), len(self._curves)
        self._swept |= dict.fromkeys(swept)
        self._curves |= dict.fromkeys(curves)
        if known != (len(self._swept), len(self._curves)):
            self._store_view(self.summary)

    def _store_view(self, summary: StudySnapshot) -> None:
        objective, maximize = [*map(key, summary.objective)], summary.directions[0] == "maximize"
        numbers = [key(name) for name in summary.numbers()]
        lacking = self._lacking(summary)
        view = comparison_view.tag(
            summary.name, [*self._swept], objective, maximize, self._curves, numbers, summary.all_failed, lacking
        )
        self.client.set_experiment_tag(self.experiment_id, *view)

    def _lacking(self, summary: StudySnapshot) -> set[str]:
        """What not all trials have: the seed of a final race, what exists only under a condition."""
        had = [{key(name) for name in row.params} for row in summary.rows if row.params]
        return {name for name in self._swept if any(name not in some for some in had)}

    def complete(self, findings: Findings, goes_on: bool) -> None:
        """Write what stands for the whole study, with the files of report.write. End its run, unless trials go on."""
        summary = findings.study
        now_ms = int(time.time() * 1000)
        if summary.importance or summary.all_failed or self._lacking(summary):
            self._store_view(summary)
        note = report.markdown(findings, self._picture(findings))
        figures, tags = self._found(findings)
        tags["mlflow.note.content"] = note
        # Named unlike the trials' metrics: sorted by one of those, the list must hold trials alone.
        self.send(self.run_id, [(f"study/{name}", value, now_ms, 0) for name, value in figures.items()], {}, tags)
        self.send_page()
        self.send_files(self.run_id, summary.folder / report.CSV)
        for file in summary.folder.glob("code/[0-9]*/[!.]*.*"):  # commit, diff and packages, not the modules
            self.client.log_artifact(self.run_id, str(file), str(file.parent.relative_to(summary.folder)))
        if not goes_on:
            failed = summary.bad() and not summary.count(State.COMPLETED)
            status = "KILLED" if summary.over() < len(summary.rows) else "FAILED" if failed else "FINISHED"
            self.client.set_terminated(self.run_id, status, now_ms)

    @staticmethod
    def _found(findings: Findings) -> tuple[dict[str, float], dict[str, str]]:
        """What stands for the whole study, as metrics and as tags."""
        answer, objective, tags = findings.answer, findings.study.objective, dict[str, str]()
        figures = {f"{kind}/{name}": value for kind, cost in findings.costs.items() for name, value in cost.items()}
        figures["idle_slot_seconds_at_the_end"] = findings.tail_s
        if answer.front:
            tags["front"] = ", ".join(str(row.number) for row in answer.front)
            figures["hypervolume"] = findings.hypervolumes[-1][1]
        elif best := answer.configuration:
            figures[f"best_mean_{key(objective[0])}"] = fmean(best.values)
            tags["best_configuration"] = best.name
        elif trial := answer.trial:
            figures |= {f"best_{key(n)}": value for n, value in zip(objective, trial.objective, strict=True)}
            tags["best_trial"] = f"{trial.number}: {trial.name}"
        return figures, tags

    def send_page(self) -> None:
        """Log the study's page, if there is one by now."""
        if (page := self.summary.folder / report.HTML).is_file():
            self.client.log_artifact(self.run_id, str(page))

    def _picture(self, findings: Findings) -> str:
        """Log the study's main figure, and return the line of a description that shows it; empty without one."""
        try:
            drawn = picture.render_picture(findings)
        except Exception as error:  # whatever numbers trials can have: the rest is told
            return f"No picture could be drawn: {first_line(error)}"
        if not drawn:
            return ""
        self.client.log_text(self.run_id, drawn, _PICTURE)
        # As MLflow's pages load an artifact, below their own address.
        return f"![its trials](get-artifact?path={_PICTURE}&run_uuid={self.run_id})"

    def _open_experiment(self, uri: str, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            kind = {"mlflow.experimentKind": "custom_model_development"}  # else the page opens as GenAI
            try:
                return str(self.client.create_experiment(name, artifacts_of(uri), kind))
            except outage_errors():  # another driver was faster, or it raises once more
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            raise UserError(
                f"The MLflow experiment '{name}' was deleted. "
                "Choose another name with tracking.experiment=..., or restore it:\n"
                f"MLFLOW_TRACKING_URI={shlex.quote(without_password(uri))} "
                f"mlflow experiments restore -x {found.experiment_id}"
            )
        return str(found.experiment_id)

    def _open_run(self, command: str) -> str:
        """The run that an earlier driver noted; where the note is damaged, the one of this folder; or a new one."""
        folder, name = TrialFolder(self.summary.folder), self.summary.name
        tags = {"role": "study", "folder": str(folder.path.absolute())}
        mine, known = [], None
        if (folder.path / "tracking.json").exists():
            with suppress(CorruptFile, OSError):
                known = folder.read_tracking().get("run_id")
            left = self._search(f"tags.role = 'study' AND tags.study = {comparison_view.quote(name)}")
            mine = [run for run in left if run.info.run_id == known or run.data.tags.get("folder") == tags["folder"]]
        else:
            folder.path.mkdir(parents=True, exist_ok=True)
            folder.write_tracking({"run_id": None})  # a driver that dies now leaves a run to look for
        run_id = self._reopen(mine[0]) if mine else self._create(name, {**tags, "command": command})
        folder.write_tracking({"run_id": run_id, "experiment": self.experiment_id})
        return run_id

    def _search(self, where: str) -> list[Any]:
        return list(self.client.search_runs([self.experiment_id], where))

    def _reopen(self, run: Any) -> str:
        self.client.update_run(run.info.run_id, status="RUNNING")
        return self._known(run)

    def _create(self, name: str, tags: Mapping[str, str]) -> str:
        tags = {**tags, "study": self.summary.name, **self._source}
        shown = {tag: without_password(value) for tag, value in tags.items()}
        return self._known(self.client.create_run(self.experiment_id, tags=shown, run_name=without_password(name)))

    def _known(self, run: Any) -> str:
        """Its id."""
        self._places[run.info.run_id] = run.info.artifact_uri
        return str(run.info.run_id)


def _shortened(file: Path, folder: Path) -> Path:
    """A file of the same name in `folder`, with the head and the tail of it."""
    half, size, short = _LONG_BYTES // 2, file.stat().st_size, folder / file.name
    with file.open("rb") as whole, short.open("wb") as copy:
        copy.write(whole.read(half))
        copy.write(f"\n\n[... {size - 2 * half} bytes are left out here; the whole file: {file}]\n\n".encode())
        whole.seek(size - half)
        copy.write(whole.read(half))
    return short
