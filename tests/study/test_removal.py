"""Putting a study away, also one whose folder is a link to another disk."""

import shlex
import subprocess
import tarfile
from pathlib import Path

import pytest

from sweeps.errors import UserError
from sweeps.record.definition import unpack_line
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


def test_what_it_says_to_type_unpacks_a_study_of_any_name(tmp_path: Path) -> None:
    study = tmp_path / "multi run" / "it's $HOME"
    study.mkdir(parents=True)
    (study / "study.json").write_text("{}")
    line = unpack_line(removal.pack(study))
    assert not study.exists()
    subprocess.run(["sh", "-c", line], check=True)
    assert (study / "study.json").read_text() == "{}" and shlex.split(line)[0] == "tar"


def test_a_study_that_was_named_as_the_packed_ones_are_is_not_removed_with_them(tmp_path: Path) -> None:
    study = tmp_path / "archive"
    study.mkdir()
    (study / "study.json").write_text("{}")
    (study / "mine.tar.gz").write_text("")
    with pytest.raises(UserError, match="holds packed studies"), removal.locked(study):
        pass
