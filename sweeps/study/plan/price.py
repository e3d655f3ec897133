"""The price of a study that has not started, from the measured durations of earlier trials."""

from collections.abc import Sequence
from itertools import chain
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
    studies = [
        *own,
        *(study for name in settings.learn_from for study in _read(find_study(name, folder))),
    ]
    hours: dict[float, list[float]] = {}  # of completed trials, by the number of GPUs
    trials = chain.from_iterable(study.rows for study in studies)
    for trial in trials:
        if trial.state is not State.COMPLETED:
            continue
        hours.setdefault(trial.attempts[-1].gpus, []).append(
            sum(end.duration_s for end in trial.attempts) / 3600
        )
    if not requests or any(request.gpus not in hours for request in requests):
        return ""
    left = max(0, len(requests) - sum(study.over() for study in own))
    uses_gpus = any(request.gpus for request in requests)
    prices = [
        fmean(hours[request.gpus]) * (request.gpus if uses_gpus else request.cores or request.ranks)
        for request in requests
    ]
    unit = "GPU-hours" if uses_gpus else "CPU core-hours"
    count = sum(map(len, hours.values()))
    source = f"{counted(count, 'completed trial')} of {', '.join(study.name for study in studies)}"
    price = fmean(prices) * left
    return f"About {price:.3g} {unit} left, for {counted(left, 'trial')}: measured in {source}"


def _read(folder: Path) -> list[StudySnapshot]:
    """Return the study in a folder; none if there is no study, or if it is damaged."""
    try:
        return [read_study(folder, study_file.read(folder))]
    except (FileNotFoundError, CorruptFile):
        return []
