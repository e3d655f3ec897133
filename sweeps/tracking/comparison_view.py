"""A ready-made comparison of a study's trials in MLflow's web page.

MLflow keeps a shared view of an experiment's page in an experiment tag, as the page's own "Share" button
writes it. The content is not documented: this is what MLflow 3.17 reads, and tests/tracking/test_dashboard.py checks.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

_CURVES_FIRST = ("val_accuracy", "val_loss", "accuracy", "loss")
_RUNS_SHOWN = 100
_MOST_COLUMNS = 12
_MOST_CURVES = 4
_OURS = {"deleted": False, "isGenerated": False}
_BY_STEP: dict[str, Any] = {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""}
_LINE: dict[str, Any] = {"xAxisScaleType": "linear", "scaleType": "linear", "range": {}, "yAxisKey": "metric"}
_LINE |= {"yAxisExpressions": [], "ignoreOutliers": False, "useGlobalXaxisKey": True, "useGlobalLineSmoothing": True}


def tag(
    study: str,
    *,
    params: Sequence[str],
    objective: Sequence[str],
    directions: Sequence[str],
    curves: Iterable[str],
    now_ms: int,
) -> tuple[str, str]:
    """The experiment tag, as key and value, that holds the view of `study`.

    Args:
        params: the swept parameters, as MLflow names them.
        objective: the objectives; each trial has a metric best/<objective>. The first one sorts the list.
        curves: the metrics that the trials report by step; the main ones get a chart.
        now_ms: milliseconds since 1970, shown as the time of the last change.
    """
    best = [f"best/{name}" for name in objective]
    charts = [_parallel_coordinates(params, best), *_scatter(params, best[0])]
    charts += [_curve(name) for name in _main_curves(objective, curves)]
    columns = [*(f"metrics.`{name}`" for name in best), *(f"params.`{p}`" for p in params[:_MOST_COLUMNS])]
    state = {
        "searchFilter": f"tags.study = '{_quoted(study)}' AND tags.role = 'trial'",
        "orderByKey": f"metrics.`{best[0]}`",
        "orderByAsc": directions[0] == "minimize",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "columnOrder": [],
        "columnWidths": {},
        "runsHiddenMode": "SHOWALL",
        "compareRunCharts": charts,
        "compareRunSections": [
            _section("Sweep", columns=1, height=380),
            _section("Curves", columns=2, height=300),
            _section("Parameters", columns=2, height=300),
        ],
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": True,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "globalLineChartConfig": _BY_STEP,
    }
    packed = "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    content = {"name": study, "createdAt": now_ms, "updatedAt": now_ms, "state": packed}
    return f"mlflow.sharedViewState.{key(study)}", json.dumps(content)


def key(study: str) -> str:
    """The name of the study's view in tags and addresses: the same for the same study."""
    return hashlib.sha256(study.encode()).hexdigest()[:16]


def path(experiment_id: str, study: str) -> str:
    """The view's address below that of the MLflow server."""
    return (
        f"/#/experiments/{experiment_id}/runs?workflowType=machine_learning"
        f"&viewStateShareKey={key(study)}&compareRunsMode=CHART"
    )


def _main_curves(objective: Sequence[str], curves: Iterable[str]) -> list[str]:
    known = set(curves)
    usual = [name for name in dict.fromkeys([*objective, *_CURVES_FIRST]) if name in known]
    return usual[:_MOST_CURVES] or sorted(known)[:_MOST_CURVES]


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")


def _section(name: str, columns: int, height: int) -> dict[str, Any]:
    place = {"uuid": f"section-{name}", "name": name, "columns": columns, "cardHeight": height}
    return {**place, **_OURS, "display": True, "isReordered": True}


def _chart(kind: str, section: str, title: str, **rest: Any) -> dict[str, Any]:
    place = {"uuid": f"{kind}-{title}", "displayName": title, "type": kind, "metricSectionId": f"section-{section}"}
    return {**place, **_OURS, "runsCountToCompare": _RUNS_SHOWN, **rest}


def _parallel_coordinates(params: Sequence[str], best: Sequence[str]) -> dict[str, Any]:
    title = f"{', '.join(params) or 'trials'} → {', '.join(best)}"
    shown = {"selectedParams": list(params), "selectedMetrics": list(best)}
    return _chart("PARALLEL", "Sweep", title, **shown, showAllRuns=True)


def _scatter(params: Sequence[str], best: str) -> list[dict[str, Any]]:
    y = {"key": best, "type": "METRIC"}
    return [
        _chart("SCATTER", "Parameters", f"{name} → {best}", xaxis={"key": name, "type": "PARAM"}, yaxis=y)
        for name in params[:3]
    ]


def _curve(metric: str) -> dict[str, Any]:
    return _chart("LINE", "Curves", metric, metricKey=metric, selectedMetricKeys=[metric], **_BY_STEP, **_LINE)
