"""Advice on requests that waste a resource, from the files of trials."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from sweeps.analysis.advice import examine, warn_idle_gpus
from sweeps.hydra.settings import SlurmLauncherConf, read
from sweeps.launchers.slurm.script.request import parameters, request
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.show.page import report
from sweeps.show.terminal.status import show_status
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.metrics import SYSTEM_METRICS, MetricsLine

START = 1e9
Sample = Mapping[str, float]


def sample(cores: float = 1.0, mem_gb: float = 3.0, *gpus: float) -> Sample:
    """Return a sample with the utilization of each GPU (%)."""
    used = {"system/cpu_utilization_percentage": 100 * cores, "system/memory_usage_megabytes": mem_gb * 2**30 / 1e6}
    return used | {f"system/gpu_{gpu}_utilization_percentage": use for gpu, use in enumerate(gpus)}


def trial(
    folder: Path,
    number: int,
    settings: SlurmLauncherConf,
    nodes: Iterable[Sample],
    minutes: float = 50,
    state: State = State.COMPLETED,
) -> TrialRecord:
    """Return a trial that ran with these settings, and used as much on each of its nodes."""
    files = TrialFolder(folder / str(number))
    (files.path / ".hydra").mkdir(parents=True)
    (files.path / ".hydra" / "config.yaml").write_text("gpus: 1\n")
    launcher = yaml.safe_dump({"hydra": {"launcher": vars(settings)}})
    (files.path / ".hydra" / "hydra.yaml").write_text(launcher)
    attempt = files.new_attempt(START, request(settings), launcher="slurm")
    attempt.begin(START)
    for node, used in enumerate(nodes):
        name = f"system_metrics.{node}.jsonl" if node else SYSTEM_METRICS
        for step in (1, 2):
            files.append_metrics(MetricsLine(step, START + step * minutes * 30, dict(used)), name)
    row = TrialRecord(number, {"lr": 0.1}, State.QUEUED, files.path)
    return row.with_end(attempt.close(Outcome(state, objective=[1.0]), START + minutes * 60))


WASTES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "memory": ({"mem_gb": 32}, {"nodes": [sample(mem_gb=2.1)]}, "hydra.launcher.mem_gb=3"),
    "memory by core": (
        {"mem_per_cpu": "8G", "cpus_per_task": 2},
        {"nodes": [sample(cores=1.9, mem_gb=5.5)]},
        "hydra.launcher.mem_gb=7 hydra.launcher.mem_per_cpu=null",
    ),
    "memory by GPU": (
        {"mem_per_gpu": "64G", "gpus_per_node": 1},
        {"nodes": [sample(1, 9, 90)]},
        "hydra.launcher.mem_gb=11 hydra.launcher.mem_per_gpu=null",
    ),
    "memory of two nodes": (
        {"mem_gb": 64, "nodes": 2},
        {"nodes": [sample(mem_gb=4), sample(mem_gb=10)]},
        "hydra.launcher.mem_gb=12",
    ),
    "time": ({"timeout_min": 600}, {"minutes": 20}, "hydra.launcher.timeout_min=26"),
    "cores": ({"cpus_per_task": 16}, {"nodes": [sample(cores=2.4)]}, "hydra.launcher.cpus_per_task=3"),
    "cores by GPU": (
        {"cpus_per_gpu": 16, "gpus_per_node": 1},
        {"nodes": [sample(4, 3, 90)]},
        "hydra.launcher.cpus_per_task=5 hydra.launcher.cpus_per_gpu=null",
    ),
    "cores that bring the memory": (
        {"cpus_per_task": 8, "mem_per_cpu": "1G"},
        {"nodes": [sample(cores=1, mem_gb=6)]},
        "hydra.launcher.cpus_per_task=2 hydra.launcher.mem_gb=8 hydra.launcher.mem_per_cpu=null",
    ),
    "GPU": ({"gpus_per_node": 1}, {"nodes": [sample(1, 3, 0)]}, "gpus=0"),
    "one of four GPUs busy": ({"gpus_per_node": 4}, {"nodes": [sample(1, 3, 95, 0, 0, 0)]}, "gpus=1"),
    "input": (
        {"gpus_per_node": 1, "cpus_per_task": 4},
        {"nodes": [sample(3.9, 3, 30)]},
        "hydra.launcher.cpus_per_task=8",
    ),
    "batch": ({"gpus_per_node": 1, "cpus_per_task": 2}, {"nodes": [sample(0.9, 3, 30)]}, "Enlarge the batch"),
    "batch, with a job for each trial": (
        {"gpus_per_node": 1, "cpus_per_task": 2, "trials_per_job": 1},
        {"nodes": [sample(0.9, 3, 30)]},
        "hydra.launcher.trials_per_gpu=2 hydra.launcher.trials_per_job=null",
    ),
    "time, with a limit of short trials": (
        {"timeout_min": 600, "trials_per_job": 1, "short_trial_min": 30},
        {"minutes": 10},
        "hydra.launcher.timeout_min=30",
    ),
    "a shared GPU": (
        {"gpus_per_node": 1, "cpus_per_task": 2, "trials_per_gpu": 4, "trials_per_job": None},
        {"nodes": [sample(0.9, 3, 2)]},
        "Enlarge the batch",
    ),
}
"""Settings of the launcher, use, and what is advised."""


@pytest.mark.parametrize("waste", WASTES)
def test_waste_is_advised_against_with_settings_that_work(tmp_path: Path, waste: str) -> None:
    changes, used, expected = WASTES[waste]
    settings = SlurmLauncherConf(**changes)
    uses, advice = examine([trial(tmp_path, number, settings, **{"nodes": [sample()], **used}) for number in range(3)])
    assert uses
    assert len(advice) == 1, [*map(str, advice)]
    assert expected in str(advice[0])
    typed = re.findall(r"hydra\.launcher\.(\w+=\w+)", advice[0].remedy)
    changed = read(OmegaConf.merge(OmegaConf.structured(settings), OmegaConf.from_dotlist(typed)), SlurmLauncherConf)
    wants = parameters(tmp_path / "s" / "0" / "attempts" / "1", changed)
    assert sum(option in wants for option in ("mem", "mem_per_cpu", "mem_per_gpu")) == 1


THRIFT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {"nodes": [sample(cores=0.5, mem_gb=0.2)], "minutes": 24}),
    "tight": ({"mem_gb": 16, "cpus_per_task": 4}, {"nodes": [sample(cores=3, mem_gb=8)]}),
    "busy GPUs": ({"gpus_per_node": 2, "cpus_per_gpu": 2}, {"nodes": [sample(2, 3, 80, 85)]}),
    "less than half, but more with a margin": ({"mem_gb": 10}, {"nodes": [sample(mem_gb=4.9)]}),
    "a minute, in which imports dominate": (
        {"gpus_per_node": 1, "cpus_per_task": 8, "timeout_min": 5},
        {"nodes": [sample(0.9, 3, 3)], "minutes": 0.5},
    ),
    "several ranks on a node, of which one is sampled": (
        {"tasks_per_node": 4, "cpus_per_task": 2, "mem_gb": 32},
        {"nodes": [sample(cores=0.4, mem_gb=2)]},
    ),
    "the limit of a worker": ({"timeout_min": 600, "trials_per_job": 8}, {"minutes": 20}),
    "memory as an option of sbatch": ({"additional_parameters": {"mem": "64G"}}, {"nodes": [sample(mem_gb=2)]}),
    "a trial out of memory": ({"mem_gb": 16}, {"nodes": [sample(mem_gb=2)], "state": State.OUT_OF_MEMORY}),
    "a trial at its limit": ({"timeout_min": 600}, {"minutes": 20, "state": State.TIMED_OUT}),
}


@pytest.mark.parametrize("thrift", THRIFT)
def test_nothing_is_advised_where_nothing_is_wasted(tmp_path: Path, thrift: str) -> None:
    changes, used = THRIFT[thrift]
    used = {"nodes": [sample()], **used}
    last = trial(tmp_path, 2, SlurmLauncherConf(**changes), **used)
    used.pop("state", None)
    rows = [trial(tmp_path, number, SlurmLauncherConf(**changes), **used) for number in range(2)]
    assert examine([*rows, last])[1] == []


def test_trials_of_earlier_versions_bring_no_advice(tmp_path: Path) -> None:
    row = trial(tmp_path, 0, SlurmLauncherConf(mem_gb=64), [sample(mem_gb=1)])
    assert examine([row])[1]
    assert examine([replace(row, attempts=tuple(replace(end, requested={}) for end in row.attempts))]) == ([], [])


def test_terminal_and_page_show_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [trial(tmp_path, number, SlurmLauncherConf(mem_gb=32), [sample(mem_gb=2 + number)]) for number in range(3)]
    study = StudySnapshot("s", tmp_path, ("loss",), ("minimize",), rows, 3)
    show_status(study, "", "", "", "")
    line = "memory of a node: 4 GB used at most (median 3), of 32 GB requested. Type: hydra.launcher.mem_gb=5"
    assert line in capsys.readouterr().out
    page = report.write(study).read_text()
    assert line in page
    assert "memory of a node (GB)" in page


@pytest.mark.parametrize(
    ("uses", "warns"),
    [
        ([50, 0, 0, 0, 0], True),
        ([0, 0, 0, 0, 50], False),
        ([0, 0, 0, 50, 0], False),
        ([0, 0, 0], False),  # the samples cover too little time
    ],
)
def test_running_trial_with_an_idle_gpu_is_warned_about(tmp_path: Path, uses: list[float], warns: bool) -> None:
    files, now = TrialFolder(tmp_path / "7"), time.time()
    files.path.mkdir()
    files.append_metrics(MetricsLine(0, now - 9000, dict(sample(1, 3, 0, 0))), SYSTEM_METRICS)  # of an earlier attempt
    attempt = files.new_attempt()
    attempt.begin(now - 8000)
    for step, use in enumerate(uses):
        files.append_metrics(
            MetricsLine(step, now - 600 * (len(uses) - step), dict(sample(1, 3, 90, use))), SYSTEM_METRICS
        )
    with (files.path / SYSTEM_METRICS).open("a") as file:
        file.write('{"step": 9, "ti')  # a line that is being written
    row = TrialRecord(7, {}, State.RUNNING, files.path)
    shown = "trial 7: its GPU 1 has been idle for 30 minutes or more. See what the trial does: tail "
    assert warn_idle_gpus(row, 30).startswith(shown) is warns
    assert warn_idle_gpus(row, None) == ""
