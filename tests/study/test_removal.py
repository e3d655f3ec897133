"""Archive and delete: nothing but the named study is removed."""

import os
import shlex
import subprocess
import tarfile
from pathlib import Path

import pytest

from sweeps.after import removal
from sweeps.base.errors import UserError
from sweeps.record.place import unpack_line


def test_archived_study_is_packed_whole_and_its_folder_is_removed(tmp_path: Path) -> None:
    study = tmp_path / "s"
    (study / "0").mkdir(parents=True)
    for name in ("study.json", "driver.lock", "0/trial.json"):
        (study / name).write_text("{}")
    with tarfile.open(removal.pack(study)) as tar:
        assert sorted(tar.getnames()) == ["s", "s/0", "s/0/trial.json", "s/study.json"]
    assert list(tmp_path.iterdir()) == [tmp_path / "archive"]


def make_study(folder: Path) -> Path:
    """Write a study's files."""
    folder.mkdir(parents=True)
    (folder / "study.json").write_text("{}")
    return folder


@pytest.mark.parametrize("name", ["../s", "../../x/s", "inner/s"])
def test_study_outside_of_the_root_is_not_removed(tmp_path: Path, name: str) -> None:
    root = tmp_path / "home" / "multirun"
    root.mkdir(parents=True)
    study = make_study(Path(os.path.normpath(root / name)))
    with pytest.raises(UserError, match=r"is not directly in .*\n.*--root "), removal.locked(root / name, root):
        pass
    with removal.locked(study, study.parent):
        pass


def test_link_to_a_study_is_not_removed(tmp_path: Path) -> None:
    study, link = make_study(tmp_path / "scratch" / "s"), tmp_path / "multirun" / "mine"
    link.parent.mkdir()
    link.symlink_to(study)
    answer = f"symbolic link to {study}.\n.*: s --root {study.parent};"
    with pytest.raises(UserError, match=answer), removal.locked(link, link.parent):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
@pytest.mark.parametrize("place", ["s", "s/0/data"])
def test_study_with_a_mounted_disk_is_not_removed(tmp_path: Path, place: str) -> None:
    study, other = make_study(tmp_path / "s"), tmp_path / "other"
    for folder in (tmp_path / place, other):
        folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", other, tmp_path / place], check=True)
    try:
        with pytest.raises(UserError, match=r"is a mount point.\n.*umount "), removal.locked(study, tmp_path):
            pass
    finally:
        subprocess.run(["umount", tmp_path / place], check=True)


def test_study_that_holds_another_study_is_not_removed(tmp_path: Path) -> None:
    study = make_study(tmp_path / "pilot")
    inner = make_study(study / "inner")
    answer = f"holds another study: {inner}.\n.*mv {inner} {tmp_path / 'inner'}"
    with pytest.raises(UserError, match=answer), removal.locked(study, tmp_path):
        pass


def test_printed_command_unpacks_a_study_of_any_name(tmp_path: Path) -> None:
    study = tmp_path / "multi run" / "it's $HOME"
    study.mkdir(parents=True)
    (study / "study.json").write_text("{}")
    line = unpack_line(removal.pack(study))
    assert not study.exists()
    subprocess.run(["sh", "-c", line], check=True)
    assert (study / "study.json").read_text() == "{}" and shlex.split(line)[0] == "tar"


def test_study_named_archive_is_not_removed_with_packed_studies(tmp_path: Path) -> None:
    study = tmp_path / "archive"
    study.mkdir()
    (study / "study.json").write_text("{}")
    (study / "mine.tar.gz").write_text("")
    with pytest.raises(UserError, match="holds packed studies"), removal.locked(study, tmp_path):
        pass
