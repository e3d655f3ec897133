"""Figures of the use of GPUs, CPU and memory."""

from pathlib import Path

from sweeps.record.study import StudySnapshot
from sweeps.show.figures.drawing import Figures
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.figures.figures import build_figures
from sweeps.show.findings import Findings
from sweeps.show.trials import TrialFiles
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from sweeps.trial.metrics import SYSTEM_METRICS, MetricsLine
from tests.show import pages

HOST = {"system/cpu_utilization_percentage": 150.0, "system/memory_usage_megabytes": 2000.0}


def gpu(number: int, use: float) -> dict[str, float]:
    name = f"system/gpu_{number}"
    return {f"{name}_utilization_percentage": use, f"{name}_memory_usage_megabytes": 4000.0}


def figures_of(folder: Path, *samples: dict[str, float]) -> Figures:
    """Return the figures of a trial with these samples, ten seconds apart."""
    trial = pages.trial(folder, 0, {"lr": 0.1}, [0.5, 0.6], State.COMPLETED)
    for step, metrics in enumerate(samples):
        TrialFolder(trial.folder).append_metrics(MetricsLine(step, 1.7e9 + 10 * step, metrics), SYSTEM_METRICS)
    findings = Findings(StudySnapshot("s", folder, ("accuracy",), ("maximize",), [trial], 1))
    files = TrialFiles(("accuracy",))
    files.look(findings)
    return build_figures(FigureData(findings, files.curves(), files.usage())).get("Resources", {})


def test_gpus_of_a_trial_together(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, *[{**HOST, **gpu(0, use), **gpu(1, 50)} for use in (30, 70, 90)])
    (use,), (memory,) = (figure["data"] for figure in figures.values())
    assert [*figures] == ["GPU use (%), mean of the trial's GPUs", "GPU memory (GB)"]
    assert (use["x"], use["y"], use["meta"]) == ([0, 10, 20], [40, 60, 70], 0)
    assert memory["y"] == [8, 8, 8]


def test_without_gpus(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, HOST, HOST)
    assert [figure["data"][0]["y"] for figure in figures.values()] == [[150, 150], [2, 2]]


def test_a_single_sample_makes_no_figure(tmp_path: Path) -> None:
    assert figures_of(tmp_path, HOST) == {}
