"""Flags of a command line: a command to which words are appended has its flags before its overrides."""

from pathlib import Path

import pytest

from sweeps.hydra.shell_words import flags_first
from tests.command_lines import SWEEP, run


@pytest.mark.parametrize(
    "typed, ordered",
    [
        ("python app.py -m x=1,2", "python app.py -m x=1,2"),
        ("python app.py x=1,2 -m", "python app.py -m x=1,2"),
        ("python app.py x=1,2 ~y +z=3 --multirun", "python app.py --multirun x=1,2 ~y +z=3"),
        ("python app.py x=1,2 -m --config-name other", "python app.py -m --config-name other x=1,2"),
        ("python app.py x=1,2 --config-dir=conf -m", "python app.py --config-dir=conf -m x=1,2"),
        ("python app.py -cn other x=1,2 -m", "python app.py -cn other -m x=1,2"),
        ("python -m pkg.app x=1,2 -m", "python -m pkg.app -m x=1,2"),
        ("python a=b/app.py -m", "python a=b/app.py -m"),
        ("python -X utf8=1 app.py -m", "python -X utf8=1 app.py -m"),
        ("python app.py -m", "python app.py -m"),
        ("python app.py", "python app.py"),
    ],
)
def test_flags_come_before_overrides(typed: str, ordered: str) -> None:
    assert flags_first(typed.split()) == ordered.split()


def test_study_typed_with_the_flag_last_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        "def train(cfg, trial):\n"
        "    if not Path('repaired').exists():\n"
        "        raise ValueError('no data')\n"
        "    return {'val_accuracy': cfg.lr}\n"
    )
    own = ["trainer=own", "trainer._target_=mine.train", "tracking=none", "lr=0.1,0.2"]
    path = {"PYTHONPATH": str(tmp_path)}
    failed = run([SWEEP, *own, "hydra.sweeper.study_name=s", "-m"], tmp_path, path)
    assert "2 failed" in failed.out + failed.err

    (tmp_path / "repaired").touch()
    retried = run(["-m", "sweeps", "resume", "s", "--retry", "failed"], tmp_path, path)
    assert retried.code == 0, retried.err
    assert "2 completed" in retried.out + retried.err
