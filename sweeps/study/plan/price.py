"""The price of a study that has not started, from the measured durations of earlier trials."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from sweeps.base.files import CorruptFile
from sweeps.base.wording import counted
from sweeps.choose.warm_start import find_study
from sweeps.hydra.settings import SweeperConf
from sweeps.record import study_file
from sweeps.record.study import StudySnapshot
from sweeps.study.folder.reading import read_study
from sweeps.trial.job import Request, State


def measured_price(requests: Sequence[Request], settings: SweeperConf, folder: Path) -> str:
    """Return the price of the trials that are left, and the studies that it was measured in.

    Empty if neither the study in `folder` nor a study of `learn_from` has a completed trial with as
    many GPUs.
    """
    own = _read(folder)
    studies = list(own)
    for name in settings.learn_from:
        studies += _read(find_study(name, folder))
    hours = _hours_by_gpus(studies)
    if not requests or any(request.gpus not in hours for request in requests):
        return ""

    uses_gpus = any(request.gpus for request in requests)
    unit = "GPU-hours" if uses_gpus else "CPU core-hours"
    prices = []
    for request in requests:
        units = request.gpus if uses_gpus else request.cores or request.ranks
        prices.append(fmean(hours[request.gpus]) * units)
    left = max(0, len(requests) - sum(study.over() for study in own))
    price = fmean(prices) * left

    count = sum(len(trials) for trials in hours.values())
    return (
        f"About {price:.3g} {unit} left, for {counted(left, 'trial')}: measured in "
        f"{counted(count, 'completed trial')} of {', '.join(study.name for study in studies)}"
    )


def _hours_by_gpus(studies: Sequence[StudySnapshot]) -> dict[float, list[float]]:
    """Return the hours of each completed trial, by the number of GPUs."""
    hours: dict[float, list[float]] = {}
    for study in studies:
        for trial in study.rows:
            if trial.state is State.COMPLETED:
                seconds = sum(end.duration_s for end in trial.attempts)
                hours.setdefault(trial.attempts[-1].gpus, []).append(seconds / 3600)
    return hours


def _read(folder: Path) -> list[StudySnapshot]:
    """Return the study in a folder; none if there is no study, or if it is damaged."""
    try:
        return [read_study(folder, study_file.read(folder))]
    except (FileNotFoundError, CorruptFile):
        return []
