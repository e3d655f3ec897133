"""A job whose configuration names modules that conf/ formerly contained."""

import json
from pathlib import Path

import pytest

from tests.command_lines import SLURM, SWEEP, run
from tests.trainers.config.test_former import FORMERLY, MINE

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.long
def test_a_trial_of_an_older_study_runs_in_a_job(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    done = run([SWEEP, "-m", *FORMERLY, *SLURM, "seed=1"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.said
    (end,) = (json.loads(file.read_text()) for file in done.study().glob("*/attempts/1/end.json"))
    assert end["metrics"] == {"val_accuracy": 7.0, "moved": 1.0}
