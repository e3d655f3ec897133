"""Bundles that other people send: damaged, foreign, hostile, or already unpacked."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from sweeps.after.bundle import Bundle, configuration, describe_package_differences, unpack
from sweeps.base.errors import UserError
from sweeps.study.folder.code import tracked_files

DESCRIBED = {"name": "s", "command": ["python", "app.py"], "folder": "."}


def write_bundle(file: Path, contents: dict[str, str]) -> Path:
    with zipfile.ZipFile(file, "w") as packed:
        for name, content in contents.items():
            packed.writestr(name, content)
    return file


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    packages = "# Python 2.7.18\nkeras==1.0\n"
    contents = {"s/bundle.json": json.dumps(DESCRIBED), "s/app/app.py": "pass", "s/packages.txt": packages}
    return write_bundle(tmp_path / "s.zip", contents)


def test_a_bundle_is_unpacked_once(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    assert unpack(bundle, folder) == (Bundle("s", ["python", "app.py"]), folder)
    assert {path.name for path in folder.iterdir()} == {".gitignore", "bundle.json", "app", "packages.txt"}
    (folder / "app" / "result").touch()
    unpack(bundle, folder)
    assert (folder / "app" / "result").exists()  # because the study resumes in this folder
    first, second, *_ = describe_package_differences(folder)
    assert first.startswith("Python 3.")
    assert first.endswith("(was 2.7.18)")
    assert "(was 1.0)" in second


def test_only_tracked_files_join_the_modules(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    for name in ("app.py", "pkg/table.csv", "token.txt", ".env", "tests/data.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert tracked_files(tmp_path, tmp_path / "app.py") == []
    for words in (["init", "-q"], ["add", "app.py", "pkg", ".env", "tests"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    names = [file.relative_to(tmp_path).as_posix() for file in tracked_files(tmp_path, tmp_path / "app.py")]
    assert names == ["app.py", "pkg/table.csv"]


def test_a_bundle_that_was_zipped_again_is_a_bundle(bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle, "a") as packed:
        packed.mkdir("s/app/data")
        packed.writestr("s/app/bundle.json", "[]")  # of the app
    assert (unpack(bundle, tmp_path / "here")[1] / "app" / "bundle.json").read_text() == "[]"
    assert (tmp_path / "here" / ".gitignore").read_text() == "*\n"  # or it would be copied as the app's code


def test_a_flipped_byte_is_found(bundle: Path, tmp_path: Path) -> None:
    content = bytearray(bundle.read_bytes())
    content[60] ^= 0xFF
    bundle.write_bytes(bytes(content))
    with pytest.raises(UserError, match="not a bundle"):
        unpack(bundle, tmp_path / "here")


def test_configuration_without_secrets(tmp_path: Path) -> None:
    for name in ("conf/a.yaml", "conf/.hidden/b.yaml", "conf/secret.yaml", "multirun/s/c.yaml"):
        (tmp_path / "top" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / name).touch()
    (tmp_path / "other.yaml").touch()
    (tmp_path / "top/conf/link.yaml").symlink_to(tmp_path / "other.yaml")
    (tmp_path / "top/.gitignore").write_text("secret.yaml\n")
    subprocess.run(["git", "init", "-q", str(tmp_path / "top")], check=True)
    files = configuration(tmp_path / "top", tmp_path / "top", tmp_path / "top" / "multirun")
    assert [file.name for file in files] == ["a.yaml"]


@pytest.mark.parametrize(
    "contents",
    [
        {},
        {"s/app/app.py": "pass"},
        {"s/bundle.json": "{"},
        {"s/bundle.json": "[]"},
        {"s/bundle.json": '{"name": "s"}'},
        {"s/bundle.json": json.dumps(DESCRIBED), "s/../../evil": "x"},
        {"s/bundle.json": json.dumps(DESCRIBED), "/etc/evil": "x"},
        {"s/bundle.json": json.dumps(DESCRIBED), "t/app/app.py": "x"},
        {"s/bundle.json": json.dumps({**DESCRIBED, "folder": "../.."})},
        {"s/bundle.json": json.dumps({**DESCRIBED, "name": "../s"})},
        {"s/bundle.json": json.dumps({**DESCRIBED, "folder": "/tmp"})},
        {"s/bundle.json": json.dumps({**DESCRIBED, "folder": None})},
        {"s/bundle.json": json.dumps({**DESCRIBED, "command": [1]})},
        {"s/bundle.json": json.dumps({**DESCRIBED, "command": None})},
        {"s/bundle.json": json.dumps({**DESCRIBED, "command": ["python", "a\0b"]})},
    ],
)
def test_other_zip_files_are_refused(contents: dict[str, str], tmp_path: Path) -> None:
    file = write_bundle(tmp_path / "other.zip", contents)
    with pytest.raises(UserError, match="not a bundle"):
        unpack(file, tmp_path / "here")
    assert [path.name for path in tmp_path.iterdir()] == ["other.zip"]


def test_a_damaged_file_is_refused(bundle: Path, tmp_path: Path) -> None:
    bundle.write_bytes(bundle.read_bytes()[:-30])
    with pytest.raises(UserError, match=r"s\.zip: not a bundle .*\nMake one from a study"):
        unpack(bundle, tmp_path / "here")


def test_a_folder_of_something_else_stays(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "thesis.tex").touch()
    with pytest.raises(UserError, match="holds something else"):
        unpack(bundle, tmp_path / "here")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["thesis.tex"]
