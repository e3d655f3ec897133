"""The number of trials that share a GPU, by the memory of earlier trials."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from sweeps.hydra.settings import LocalLauncherConf
from sweeps.launchers.local.machine import Machine
from sweeps.record.study import TrialRecord
from sweeps.study.run.jobs import GpuSharing
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job


def make_job(machine: Machine, trials_per_gpu: int) -> Job:
    launcher = OmegaConf.structured(LocalLauncherConf(gpus_per_node=1, trials_per_gpu=trials_per_gpu))
    config: Any = OmegaConf.create({"hydra": {"launcher": launcher}})
    assert isinstance(config, DictConfig)
    return Job("s", 9, 0, config, machine.request(config), TrialFolder(Path("9")), b"")


@pytest.mark.parametrize(
    ("typed", "memory", "count"),
    [
        (4, [], 4),
        (4, [(0.25, None)], 4),
        (4, [(0.25, 0.2), (0.25, 0.25)], 4),
        (4, [(0.25, 0.1), (0.25, 0.3)], 3),
        (4, [(0.25, 0.34), (0.5, 0.5)], 2),
        (4, [(0.25, 0.51)], 1),
        (2, [(0.25, 0.1)], 2),
        (4, [(1, 0.9)], 4),  # because a trial with a whole GPU may use more than it needs
    ],
)
def test_trials_on_a_gpu(typed: int, memory: list[tuple[float, float | None]], count: int) -> None:
    machine, lines = Machine(tuple(range(8)), ("0",), 64.0), list[str]()
    ends = [Outcome(State.COMPLETED, gpus=gpus, used={"gpu_memory": used} if used else {}) for gpus, used in memory]
    trials = [TrialRecord(n, {}, end.state, Path(str(n)), (end,)) for n, end in enumerate(ends)]
    resumed, live = (GpuSharing(machine, earlier) for earlier in (trials, []))  # type: ignore[arg-type]
    for trial in trials:
        lines += filter(None, [live.note(trial)])
    for sharing in (live, resumed):
        job = sharing.fit(make_job(machine, typed))
        assert (job.request.gpus, job.config.hydra.launcher.trials_per_gpu) == (1 / count, count)
    words = [line.partition(": ")[2] for line in lines]
    how = "each trial has a whole GPU" if count == 1 else f"{count}, not 4, trials share a GPU"
    assert words == ([f"from now on {how}"] if count < typed else [])
