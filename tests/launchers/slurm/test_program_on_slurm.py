"""The program of a user as `__main__` of trials on a cluster, compared with Hydra's own launcher."""

import json
from pathlib import Path

import pytest

from tests.command_lines import APPS, SLURM, finish, run, start_afresh, wait_until

pytestmark = pytest.mark.usefixtures("cluster")

APP = str(APPS / "program_app.py")
WAYS = {
    "jobs": ["hydra.launcher.trials_per_job=1"],
    "workers": ["hydra.launcher.trials_per_job=2"],
    "ranks": ["hydra.launcher.trials_per_job=1", "hydra.launcher.tasks_per_node=2"],
}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_program_and_the_end_of_its_process(tmp_path: Path, way: str) -> None:
    words = ["hydra/sweeper=grid", *SLURM, *WAYS[way], "hydra.launcher.timeout_min=5", "hydra.sweeper.tracking=false"]
    done = run([APP, "-m", "x=1", "ending=false,true", "hydra.sweep.dir=s", *words], tmp_path)
    assert done.code == 0, done.said
    expected = finish(start_afresh([APP, "-m", "x=1", "hydra.sweep.dir=hydra"], tmp_path), tmp_path)
    assert expected.code == 0, expected.said
    facts, expected_facts = (json.loads((tmp_path / f"{name}/0/facts.json").read_text()) for name in ("s", "hydra"))
    assert facts == expected_facts
    texts = {"open": "1,2\n", "handler": "called", "finalized": "called", "deleted": "flushed"}
    texts |= {"thread": "ended", "pool": "ended"}
    wait_until(lambda: {name: _read(tmp_path / "s/1" / name) for name in texts} == texts)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""
