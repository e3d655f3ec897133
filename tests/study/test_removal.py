"""Putting a study away, also one whose folder is a link to another disk."""

import tarfile
from pathlib import Path

import pytest

from sweeps.study import removal


@pytest.mark.parametrize("linked", [False, True])
def test_a_study_is_packed_whole_and_then_gone(tmp_path: Path, linked: bool) -> None:
    study, folder = tmp_path / "multirun" / "s", tmp_path / ("scratch" if linked else "multirun") / "s"
    (folder / "0").mkdir(parents=True)
    for name in ("study.json", "driver.lock", "0/trial.json"):
        (folder / name).write_text("{}")
    if linked:
        study.parent.mkdir()
        study.symlink_to(folder)
    with tarfile.open(removal.pack(study)) as tar:
        assert sorted(tar.getnames()) == ["s", "s/0", "s/0/trial.json", "s/study.json"]
    assert not study.is_symlink() and not study.exists()
    assert list(folder.parent.iterdir()) == ([] if linked else [study.parent / "archive"])
