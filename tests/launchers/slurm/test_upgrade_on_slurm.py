"""A study that the former version began on a cluster, resumed; for other studies: tests/record/test_upgrade.py."""

from pathlib import Path

import pytest

from sweeps.trial.folder import TrialFolder
from tests import command_lines as lines
from tests import old_studies

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.long
def test_study_of_the_previous_version_resumes_in_jobs(tmp_path: Path) -> None:
    study = old_studies.unpack(tmp_path, "slurm")
    done = lines.run([*old_studies.command(study), "hydra.launcher.trials_per_job=1"], tmp_path)
    assert done.code == 0, done.said
    trials = [[row.number, str(row.state), row.params, row.objective, len(row.attempts)] for row in lines.rows(study)]
    assert trials == old_studies.expected()["slurm"]["after"]
    jobs = [(study / f"{number}/attempts/1/job.json").exists() for number in range(4)]
    assert jobs == [True] * 4
    assert [end.state for end in TrialFolder(study / "1").ends()] == ["completed"]  # after its driver's end
