"""Warm workers that reach their time limit within a trial."""

from pathlib import Path

import pytest

from sweeps.record.study_file import find
from sweeps.study.folder.reading import read_study
from sweeps.trial.job import State
from tests.chaos.faults import TRIALS, Study
from tests.chaos.oracle import check
from tests.chaos.slurm.test_random_faults_on_slurm import LAUNCHERS

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.long]
EPOCHS = 375
LIMITS = ["hydra.launcher.timeout_min=1", "hydra.launcher.signal_delay_s=30", "hydra.sweeper.n_jobs=2"]


def test_trials_resume_in_another_worker_after_a_time_limit(tmp_path: Path, store: str) -> None:
    study = Study(tmp_path / "work", store, EPOCHS)
    done = study.finish(study.start([*LAUNCHERS["workers"], *LIMITS]), timeout_s=450)
    assert done.code == 0
    check(study.path, store, TRIALS, EPOCHS)
    attempts = [attempt for trial in read_study(*find("s", study.path.parent)).rows for attempt in trial.attempts]
    assert State.TIMED_OUT in [attempt.state for attempt in attempts]
