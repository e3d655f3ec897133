"""What a driver shows while its trials run."""

from pathlib import Path

from omegaconf import OmegaConf

from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.study.run.attempt import Attempt
from sweeps.study.run.watchers import Watchers
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Request, State
from sweeps.trial.metrics import SYSTEM_METRICS, MetricsLine
from sweeps.trial.run.sent_job import Job
from tests.study.fake_launcher import FakeLauncher, Said, fake_time, trains


def test_idle_gpu_is_warned_about_once_a_trial(tmp_path: Path) -> None:
    with fake_time() as clock:
        files, config = TrialFolder(tmp_path / "0"), OmegaConf.create({"hydra": {"launcher": {"idle_gpu_min": 1}}})
        attempt = files.new_attempt()
        attempt.begin(clock.now - 150)
        for age_s in (120, 60, 0):
            metrics = {"system/gpu_0_utilization_percentage": 0.0}
            files.append_metrics(MetricsLine(-age_s, clock.now - age_s, metrics), SYSTEM_METRICS)
        row = TrialRecord(0, {}, State.RUNNING, files.path)
        study = StudySnapshot("s", tmp_path, ("y",), ("minimize",), [row], 1)
        running = {0: Attempt(Job("s", 0, 1, config, Request(1), files, b""), row, clock.now, clock.now - 150)}
        view = Said()
        watchers = Watchers(view, FakeLauncher(trains(), clock), clock=clock)
        for _ in range(4):
            watchers.show(study, running, True, "")
            clock.now += 61
    assert [line for line in view.lines if "idle" in line] == [
        f"trial 0: its GPU 0 has been idle for 1 minutes or more. See what the trial does: tail {attempt.log}"
    ]
