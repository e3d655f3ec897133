"""A ready-made comparison of a study's trials in MLflow's web page.

MLflow keeps a shared view of an experiment's page in an experiment tag, as the page's own "Share" button
writes it. The content is not documented: this is what MLflow 3.17 reads, and tests/tracking/test_dashboard.py checks.
"""

import base64
import hashlib
import json
import time
import zlib
from collections.abc import Collection, Sequence
from typing import Any

from sweeps.trial.folder import GPU, USE

_CURVES_FIRST = ("val_accuracy", "val_loss", "accuracy", "loss")
_MOST_CURVES = 4
_NOT_GENAI = "workflowType=machine_learning"  # else MLflow 3.17 opens as for GenAI, whatever the kind
ALL_EXPERIMENTS = f"/#/experiments?{_NOT_GENAI}"
"""Where all experiments are."""
_SECTIONS = [
    {"uuid": name, "name": name, "columns": columns, "cardHeight": height, "display": True, "isReordered": True}
    for name, columns, height in (
        ("Sweep", 1, 380),
        ("Curves", 2, 300),
        ("Parameters", 2, 300),
        ("GPUs", 2, 300),
        ("Trials", 1, 640),
    )
]
_BY_STEP: dict[str, Any] = {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""}
_BY_STEP |= {"xAxisScaleType": "linear", "scaleType": "linear", "range": {}, "yAxisKey": "metric"}
_BY_STEP |= {"yAxisExpressions": [], "ignoreOutliers": False, "useGlobalXaxisKey": True, "useGlobalLineSmoothing": True}
_BY_TIME = {**_BY_STEP, "xAxisKey": "time-relative", "useGlobalXaxisKey": False}
Names = Sequence[str]
_STATE, _ERROR = "state", "error"  # the tags of a trial's run


def tag(
    study: str,
    params: Sequence[str],
    objective: Sequence[str],
    maximize: bool,
    curves: Collection[str],
    numbers: Sequence[str] = (),
    errors_first: bool = False,
    lacking: Collection[str] = (),
) -> tuple[str, str]:
    """The experiment tag, as key and value, that holds the view of `study`.

    Args:
        params: the swept parameters, as MLflow names them.
        objective: the objectives; each trial has a metric best/<objective>. The first one sorts the list.
        maximize: whether more of the first objective is better.
        curves: the metrics that the trials report by step; the main ones get a chart, and the use of each GPU.
        numbers: those of the parameters that are numbers, the most important first.
        lacking: those of the parameters that some trials have not: MLflow would draw no line for such a trial.
        errors_first: whether the table shows why trials failed before what they tried.
    """
    best = [f"best/{name}" for name in objective]
    shared = [name for name in params if name not in lacking] or params
    names = {"params": params, "shared": shared, "best": best, "numbers": numbers}
    charts = _charts(**names, main=_main_curves(objective, curves), gpus=_gpus(curves))
    columns = [f"tags.`{_STATE}`", *(f"metrics.`{m}`" for m in best), *(f"params.`{p}`" for p in params[:12])]
    error = f"tags.`{_ERROR}`"
    columns.insert(1 if errors_first else len(columns), error)
    state = {  # what is not here is as on a page that nobody has changed
        "searchFilter": f"tags.study = {quote(study)} AND tags.role = 'trial'",
        "orderByKey": f"metrics.`{best[0]}`",
        "orderByAsc": not maximize,
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": {error: 600 if errors_first else 300},
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": charts,
        "compareRunSections": [
            one for one in _SECTIONS if one["name"] in {chart["metricSectionId"] for chart in charts}
        ],
        "isAccordionReordered": True,
    }
    packed = "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    content = {"name": study, "createdAt": int(time.time() * 1000), "state": packed}
    return tag_name(study), json.dumps(content)


def _charts(params: Names, shared: Names, best: Names, numbers: Names, main: Names, gpus: Names) -> list[Any]:
    """`main` and `gpus` are the metrics that get a curve each."""
    title = f"{', '.join(shared) or 'trials'} → {', '.join(best)}"
    side_by_side: dict[str, Any] = {"chartName": "Trials", "compareGroups": ["Model metrics", "Parameters", "Tags"]}
    side_by_side |= {"showChangeFromBaseline": False, "showDifferencesOnly": True, "baselineColumnUuid": ""}
    charts = [_chart("PARALLEL", "Sweep", title, selectedParams=shared, selectedMetrics=best, showAllRuns=True)]
    if len(numbers) > 1:
        x, y = ({"key": name, "type": "PARAM"} for name in numbers[:2])
        over = f"{numbers[0]}, {numbers[1]} → {best[0]}"
        charts.append(_chart("CONTOUR", "Parameters", over, xaxis=x, yaxis=y, zaxis=_metric(best[0])))
    for name in params[:3]:
        x = {"key": name, "type": "PARAM"}
        charts.append(_chart("SCATTER", "Parameters", f"{name} → {best[0]}", xaxis=x, yaxis=_metric(best[0])))
    for name in main:
        charts.append(_chart("LINE", "Curves", name, metricKey=name, selectedMetricKeys=[name], **_BY_STEP))
    for name in gpus:
        charts.append(_chart("LINE", "GPUs", name, metricKey=name, selectedMetricKeys=[name], **_BY_TIME))
    charts.append(_chart("DIFFERENCE", "Trials", "Trials", **side_by_side))
    return charts


def tag_name(study: str) -> str:
    """Under which tag an experiment has the study's view."""
    return f"mlflow.sharedViewState.{key(study)}"


def key(study: str) -> str:
    """The name of the study's view in tags and addresses: the same for the same study."""
    return hashlib.sha256(study.encode()).hexdigest()[:16]


def path(experiment_id: str, study: str, as_table: bool = False) -> str:
    """The view's address below that of the MLflow server: its charts, or the table with how each trial ended."""
    page = f"/#/experiments/{experiment_id}/runs?{_NOT_GENAI}"
    return f"{page}&viewStateShareKey={key(study)}&compareRunsMode={'TABLE' if as_table else 'CHART'}"


def quote(text: str) -> str:
    """As the filter of a search in MLflow takes it."""
    return f'"{text}"' if "'" in text else f"'{text}'"


def _metric(name: str) -> dict[str, str]:
    return {"key": name, "type": "METRIC"}


def _gpus(curves: Collection[str]) -> list[str]:
    return sorted(name for name in curves if name.startswith(GPU) and name.endswith(USE))


def _main_curves(objective: Sequence[str], curves: Collection[str]) -> list[str]:
    known = {name for name in curves if not name.startswith("system/")}
    usual = [name for name in dict.fromkeys([*objective, *_CURVES_FIRST]) if name in known]
    return usual[:_MOST_CURVES] or sorted(known)[:_MOST_CURVES]


def _chart(kind: str, section: str, title: str, **rest: Any) -> dict[str, Any]:
    named = {"uuid": f"{kind}-{title}", "displayName": title, "type": kind, "metricSectionId": section}
    return {**named, "deleted": False, "isGenerated": False, "runsCountToCompare": 100, **rest}
