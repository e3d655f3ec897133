"""Nodes whose clock is ten minutes ahead or behind."""

from pathlib import Path

import pytest

from sweeps.record.study_file import find
from sweeps.study.folder.reading import read_study
from tests.chaos.faults import TRIALS, Study
from tests.chaos.oracle import check
from tests.chaos.slurm.test_random_faults_on_slurm import LAUNCHERS

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.long]
SHIM = Path(__file__).parents[1] / "shims" / "clock"
EPOCHS = 5


@pytest.mark.parametrize(("launcher", "ahead_s"), [("jobs", 600), ("workers", -600), ("ranks", 600)])
def test_clock_of_nodes_may_be_wrong(tmp_path: Path, store: str, launcher: str, ahead_s: int) -> None:
    study = Study(tmp_path / "work", store, EPOCHS)
    setup = f"hydra.launcher.setup=['export PYTHONPATH={SHIM} AHEAD_S={ahead_s}']"
    done = study.finish(study.start([*LAUNCHERS[launcher], setup]))
    assert done.code == 0
    check(study.path, store, TRIALS, EPOCHS)
    for trial in read_study(*find("s", study.path.parent)).rows:
        seconds = trial.attempts[-1].seconds
        assert 0 <= seconds["queued"] < 660
        assert 0 <= seconds["training"] < 60


def test_driver_dies_while_the_clock_of_a_node_is_wrong(tmp_path: Path, store: str) -> None:
    study = Study(tmp_path / "work", store, 40)
    line = [*LAUNCHERS["jobs"], f"hydra.launcher.setup=['export PYTHONPATH={SHIM} AHEAD_S=600']"]
    driver = study.start(line)
    study.wait_for_epochs(3)
    driver.kill()
    driver.communicate()
    assert study.finish(study.start(line)).code == 0
    check(study.path, store, TRIALS, 40)
