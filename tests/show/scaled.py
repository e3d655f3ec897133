"""Trials on one or more GPUs, with their folders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, Point, Request, State
from sweeps.trial.metrics import MetricsLine


def trial(
    folder: Path,
    point: Point,
    *attempts: Sequence[float],
    objectives: Sequence[float] = (),
    state: State = State.COMPLETED,
    reports_times: bool = True,
    use: dict[str, dict[str, float]] | None = None,
    gpus: int = 0,
    **metrics: float,
) -> TrialRecord:
    """Return a trial whose attempts have epochs of these seconds; each attempt begins 100 s before its first epoch.

    If `reports_times`, the trainer reports epoch times. `use` has the system metrics of each epoch, by file.
    """
    number, files = int(folder.name), TrialFolder(folder)
    folder.mkdir(parents=True)
    now, step = 1000.0, 0
    for i, epochs in enumerate(attempts):
        attempt = files.new_attempt(now, Request(gpus))
        attempt.begin(now)
        now += 100
        for seconds in epochs:
            now += seconds
            values = {"acc": objectives[step]} if objectives else {}
            values |= {"epoch_time": seconds, "images_per_second": 1000 / (seconds or 1)} if reports_times else {}
            files.append_metrics(MetricsLine(step, now, values))
            for name, values in (use or {}).items():
                files.append_metrics(MetricsLine(step, now, values), name)
            step += 1
        last = i == len(attempts) - 1
        best = [max(objectives)] if objectives and last and state is State.COMPLETED else []
        error = "" if state is State.COMPLETED else "no memory\nat all"
        attempt.close(Outcome(state if last else State.LOST, error, best, metrics), now)
    ends = files.ends()
    return TrialRecord(number, point, state, folder, tuple(ends), ends[-1].metrics if ends else {})


def study(folder: Path, rows: list[TrialRecord], **changes: Any) -> StudySnapshot:
    return StudySnapshot("demo", folder, ("acc",), (changes.pop("direction", "maximize"),), rows, **changes)
