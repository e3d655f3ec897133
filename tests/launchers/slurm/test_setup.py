"""Setup lines with a secret of the environment reach the job, and no file keeps the secret."""

from pathlib import Path

import pytest

from tests import command_lines as lines
from tests.launchers.slurm.test_driver_on_slurm import APP, SLURM, WARM

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.long]


@pytest.mark.parametrize("settings", [[], [WARM]], ids=["jobs", "workers"])
def test_secret_in_setup_is_in_no_file(tmp_path: Path, settings: list[str]) -> None:
    (tmp_path / "app.py").write_text(APP)
    setup = """hydra.launcher.setup=["export KEY='${key}'", 'test $(printenv KEY | wc -c) = 7']"""
    line = [
        "app.py",
        "-m",
        *SLURM,
        *settings,
        setup,
        "+key=${oc.env:WANDB}",
        "+x=1",
        "+epochs=1",
        "hydra.sweeper.study_name=s",
    ]
    done = lines.run([*line, "hydra.sweeper.tracking=false"], tmp_path, {"WANDB": "sesame"})
    assert done.code == 0, done.said
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"sesame" in file.read_bytes()]
    assert "export KEY='${key}'" in (tmp_path / "multirun/s/0/.hydra/hydra.yaml").read_text()
