"""A ready-made comparison of a study's trials in MLflow's web page.

MLflow keeps a shared view of an experiment's page in an experiment tag, as the page's own "Share"
button writes it. The tag's format is undocumented: this is what MLflow 3.17 reads, and
tests/tracking/test_dashboard.py checks.
"""

import base64
import hashlib
import json
import time
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any
from urllib.parse import urlencode

from sweeps.base.files import CorruptFile
from sweeps.record.study import StudySnapshot
from sweeps.tracking.run_data import mlflow_name, names_by_log
from sweeps.trial.folder import TrialFolder
from sweeps.trial.metrics import METRICS, SYSTEM_METRICS, is_gpu_use

_CURVES_FIRST = ("val_accuracy", "val_loss", "accuracy", "loss")
_MOST_CURVES = 4
# trials whose files show which metrics are curves, because most trials report the same
_CURVES_OF = 20
_NEWEST_KNOWN = (3, 17)
_NOT_GENAI = "workflowType=machine_learning"  # because MLflow 3.17 otherwise opens its GenAI pages
ALL_EXPERIMENTS = f"/#/experiments?{_NOT_GENAI}"
"""The path of the page that lists all experiments."""
_SECTIONS = {
    "Sweep": (1, 380),
    "Curves": (2, 300),
    "Parameters": (2, 300),
    "GPUs": (2, 300),
    "Trials": (1, 640),
}
"""Number of columns, and height in pixels, of each section."""
_BY_STEP: dict[str, Any] = {
    "xAxisKey": "step",
    "lineSmoothness": 0,
    "selectedXAxisMetricKey": "",
    "range": {},
    "yAxisKey": "metric",
    "xAxisScaleType": "linear",
    "scaleType": "linear",
    "yAxisExpressions": [],
    "ignoreOutliers": False,
    "useGlobalXaxisKey": True,
    "useGlobalLineSmoothing": True,
}
_BY_TIME = {**_BY_STEP, "xAxisKey": "time-relative", "useGlobalXaxisKey": False}
_DIFFERENCES: dict[str, Any] = {
    "chartName": "Trials",
    "compareGroups": ["Model metrics", "Parameters", "Tags"],
    "showChangeFromBaseline": False,
    "showDifferencesOnly": True,
    "baselineColumnUuid": "",
}
Names = Sequence[str]
TRIALS = "tags.role = 'trial'"
"""The filter of trials' runs."""
_STATE = "tags.`state`"  # column of a trial's run
_ERROR = "tags.`error`"  # column of a trial's run


@dataclass(frozen=True, kw_only=True)
class View:
    """The view of a study, or of several.

    Attributes:
        study: the name of the study, or the title of a view of several.
        params: the swept parameters, as MLflow names them.
        objective: the objectives; each trial has a metric best/<objective>. The first objective
        sorts the list.
        maximize: whether larger values of the first objective are better.
        curves: the metrics that the trials report by step; the main metrics get a chart, and the
        use of each GPU.
        numbers: the parameters that are numbers, the most important first.
        errors_first: whether the table shows the trials' errors before their parameters.
        lacking: the parameters that some trials do not have. MLflow would draw neither a line nor a
        point of a contour
            for such a trial, so charts of several parameters leave them out.
        where: the filter of a view of several studies, which shows the study of each trial.
        logarithms: params such as `log10 lr`, which the charts show in place of `lr`.
    """

    study: str
    params: Names
    objective: Names
    maximize: bool
    curves: Collection[str]
    numbers: Names = ()
    errors_first: bool = False
    lacking: Collection[str] = ()
    where: str = ""
    logarithms: Collection[str] = ()

    @property
    def tag(self) -> tuple[str, str]:
        """Return the experiment tag, as key and value, that describes the view."""
        best = [f"best/{name}" for name in self.objective]
        charts = self._draw(best)
        metrics = [f"metrics.`{name}`" for name in best]
        columns = [_STATE, *metrics, *(f"params.`{name}`" for name in self.params[:12])]
        columns.insert(1 if self.errors_first else len(columns), _ERROR)
        if self.where:
            columns.insert(0, "tags.`study`")
        state = {  # MLflow fills in its defaults for all other keys
            "searchFilter": self.where or f"tags.study = {quote(self.study)} AND {TRIALS}",
            "orderByKey": f"metrics.`{best[0]}`",
            "orderByAsc": not self.maximize,
            "selectedColumns": columns,
            "columnOrder": columns,
            "columnWidths": {_ERROR: 600 if self.errors_first else 300},
            "runsHiddenMode": "SHOW_ALL",
            "compareRunCharts": charts,
            "compareRunSections": _sections(charts),
            "isAccordionReordered": True,
        }
        packed = "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
        content = {"name": self.study, "createdAt": int(time.time() * 1000), "state": packed}
        return tag_name(self.study), json.dumps(content)

    def _draw(self, best: Names) -> list[Any]:
        """Return the charts, with logarithms in place of the params that have one; each of the main
        curves, and of the GPUs, has a chart of its own."""
        shared = [name for name in self.params if name not in self.lacking] or self.params
        lacking = [name for name in self.params if name not in shared]
        axes = {name: name for name in (*self.params, *self.numbers)}
        axes |= {name.removeprefix("log10 "): name for name in self.logarithms}
        params = [axes[name] for name in shared]
        objective = {"key": best[0], "type": "METRIC"}

        title = f"{', '.join(params) or 'trials'} → {', '.join(best)}"
        columns = {"selectedParams": params, "selectedMetrics": best}
        charts = [_chart("PARALLEL", "Sweep", title, showAllRuns=True, **columns)]
        numbers = [axes[name] for name in self.numbers if name in shared]
        if len(numbers) > 1:
            x, y, *_ = numbers
            title = f"{x}, {y} → {best[0]}"
            axis = {"xaxis": _param_axis(x), "yaxis": _param_axis(y), "zaxis": objective}
            charts.append(_chart("CONTOUR", "Parameters", title, **axis))
        for name in [axes[name] for name in (*shared, *lacking)][:3]:
            axis = {"xaxis": _param_axis(name), "yaxis": objective}
            charts.append(_chart("SCATTER", "Parameters", f"{name} → {best[0]}", **axis))

        main_curves = _main_curves(self.objective, self.curves)
        charts += [_curve("Curves", name, _BY_STEP) for name in main_curves]
        gpus = sorted(filter(is_gpu_use, self.curves))
        charts += [_curve("GPUs", name, _BY_TIME) for name in gpus]
        return [*charts, _chart("DIFFERENCE", "Trials", "Trials", **_DIFFERENCES)]


def _sections(charts: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the sections of the page that have a chart."""
    filled = {chart["metricSectionId"] for chart in charts}
    return [
        {
            "uuid": name,
            "name": name,
            "columns": count,
            "cardHeight": height,
            "display": True,
            "isReordered": True,
        }
        for name, (count, height) in _SECTIONS.items()
        if name in filled
    ]


def _curve(section: str, metric: str, x_axis: Mapping[str, Any]) -> dict[str, Any]:
    keys = {"metricKey": metric, "selectedMetricKeys": [metric]}
    return _chart("LINE", section, metric, **keys, **x_axis)


def tag_name(study: str) -> str:
    """Return the key of the experiment tag that describes the study's view."""
    return f"mlflow.sharedViewState.{key(study)}"


def key(study: str) -> str:
    """Return the name of the study's view in tags and addresses; equal for equal studies."""
    return hashlib.sha256(study.encode()).hexdigest()[:16]


def unknown_version() -> str:
    """Return MLflow's version if its saved views may have another format; else an empty string."""
    version = metadata.version("mlflow")
    return version if tuple(map(int, version.split(".")[:2])) > _NEWEST_KNOWN else ""


def path(experiment_id: str, study: str, as_table: bool = False) -> str:
    """Return the view's path on the MLflow server: its charts, or the table with the state of each
    trial.

    With a version of MLflow whose saved views are unknown, return the path of the plain list of
    runs.
    """
    page = f"/#/experiments/{experiment_id}/runs?{_NOT_GENAI}"
    if unknown_version():
        return page
    mode = "TABLE" if as_table else "CHART"
    return f"{page}&viewStateShareKey={key(study)}&compareRunsMode={mode}"


def path_of_experiments(experiment_ids: Names) -> str:
    """Return the path of the page that lists the trials of several experiments."""
    query = {"experiments": json.dumps([*experiment_ids]), "searchFilter": TRIALS}
    return f"/#/compare-experiments/s?{urlencode(query)}&{_NOT_GENAI}"


def quote(text: str) -> str:
    """Return `text` in quotes, for the filter of a search in MLflow."""
    return f'"{text}"' if "'" in text else f"'{text}'"


def _param_axis(name: str) -> dict[str, str]:
    return {"key": name, "type": "PARAM"}


def _main_curves(objective: Names, curves: Collection[str]) -> list[str]:
    reported = {name for name in curves if not name.startswith("system/")}
    usual = [name for name in dict.fromkeys([*objective, *_CURVES_FIRST]) if name in reported]
    return usual[:_MOST_CURVES] or sorted(reported)[:_MOST_CURVES]


def _chart(kind: str, section: str, title: str, **settings: Any) -> dict[str, Any]:
    return {
        "uuid": f"{kind}-{title}",
        "displayName": title,
        "type": kind,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": 100,
        **settings,
    }


class StudyView:
    """The swept params and the curves of a study, by their names in MLflow."""

    def __init__(self) -> None:
        self._swept: dict[str, None] = {}  # ordered set
        self._curves: dict[str, None] = {}
        # params that trials have together: several in a conditional space
        self._branches: set[frozenset[str]] = set()

    def derive(self, study: StudySnapshot) -> None:
        """Add the params and curves of the study's trials, which earlier drivers may have run."""
        for trial in study.rows:
            self._add_params([mlflow_name(name) for name in trial.params])
        reporting = [trial for trial in study.rows if trial.metrics]
        for trial in reporting[:_CURVES_OF]:
            self._curves |= dict.fromkeys(_read_curves(TrialFolder(trial.folder)))

    def add(self, params: Sequence[str], curves: Sequence[str]) -> bool:
        """Add the params and curves of a trial, as MLflow names them, and return whether the view
        changes."""
        count = len(self._branches) + len(self._curves)
        self._add_params(params)
        self._curves |= dict.fromkeys(curves)
        return count < len(self._branches) + len(self._curves)

    def _add_params(self, params: Sequence[str]) -> None:
        """Add the params of a trial. A trial whose params are lost has none."""
        if params:
            self._swept |= dict.fromkeys(params)
            self._branches.add(frozenset(params))

    def tag(self, study: StudySnapshot) -> tuple[str, str]:
        """Return the experiment tag, as key and value, that describes the view."""
        view = View(
            study=study.name,
            params=[*self._swept],
            objective=[*map(mlflow_name, study.objective)],
            maximize=study.directions[0] == "maximize",
            curves=self._curves,
            numbers=[*map(mlflow_name, study.numbers())],
            errors_first=study.all_failed,
            lacking=self._partial_params(),
            logarithms=names_by_log(study.space).values(),
        )
        return view.tag

    def _partial_params(self) -> set[str]:
        """Return the params that some trials lack: a final race's seed, a param that exists under a
        condition.

        If each param is lacking somewhere, return those outside of the largest branch, which then
        has charts.
        """
        if not self._branches:
            return set()
        shared = frozenset.intersection(*self._branches)
        shown = shared or max(self._branches, key=lambda branch: (len(branch), sorted(branch)))
        return {*self._swept} - shown


def _read_curves(folder: TrialFolder) -> list[str]:
    """Return the metrics that a trial reported at several steps."""
    points: Counter[str] = Counter()
    for name in (METRICS, SYSTEM_METRICS):
        # because the view of the other metrics is still of use
        with suppress(CorruptFile, OSError):
            for line in folder.read_metrics(0, name).values:
                points.update(map(mlflow_name, line.metrics))
    return [name for name, count in points.items() if count > 1]
