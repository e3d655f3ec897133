"""What is kept of an app's code, and which other code is refused."""

import importlib
import importlib.metadata
import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweeps.base.errors import UserError
from sweeps.study.folder import code as module
from sweeps.study.folder.code import keep, packages
from sweeps.trial.run import copies
from sweeps.trial.run.copies import Copies

APP = {"app.py": "def main(cfg): ...\n", "lib/__init__.py": "", "lib/part.py": "VALUE = 1\n"}
Keep = Callable[..., tuple[Copies | None, str]]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def run_git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=me", "-c", "user.email=me@here", *words], cwd=folder, check=True)


def commit(folder: Path) -> None:
    run_git(folder, "init", "-q", "-b", "trunk")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "-m", "first")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Make an app that is in no git repository yet."""
    write(tmp_path / "repo", APP)
    return tmp_path / "repo"


@pytest.fixture
def keep_(repo: Path) -> Keep:
    """Return a function that begins or resumes the study in repo/multirun/s."""

    def begin(extend: bool = False, file: str = "app.py") -> tuple[Copies | None, str]:
        names: dict[str, object] = {}
        exec(compile("def main(cfg): ...", str(repo / file), "exec"), names)  # noqa: S102 - as Python runs the app
        return keep(repo / "multirun" / "s", names["main"], extend, "python app.py -m x=1,2")

    return begin


def kept_files(repo: Path, number: int = 1) -> set[str]:
    tree = repo / "multirun/s/code" / str(number) / module.SOURCE
    return {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}


@pytest.mark.parametrize("git", [True, False])
def test_files_that_count_as_the_apps_own(repo: Path, keep_: Keep, git: bool) -> None:
    more = {"new.py": "", "a b.py": "", "README.md": "", "data.csv": "1", ".env": "TOKEN=x", "tests/test_a.py": ""}
    more |= {"test_b.py": "", "conftest.py": "", "lib/tests/c.py": "", ".old/d.py": "", "docs/conf.py": ""}
    more |= {"venv/lib/site-packages/e.py": "", "multirun/other/code/1/.source/app.py": "", "lib/deeper/f.py": ""}
    write(repo, more)
    if git:
        commit(repo)
    write(repo, {"untracked.py": ""})
    _, note = keep_()
    assert note == ""
    assert kept_files(repo) == {*APP, "new.py", "a b.py", "lib/deeper/f.py", "untracked.py"}


def test_code_copy_of_an_app_among_tests_has_its_neighbours(repo: Path, keep_: Keep) -> None:
    write(repo, {"tests/apps/mine.py": "", "tests/apps/helper.py": "", "tests/test_a.py": ""})
    commit(repo)
    keep_(file="tests/apps/mine.py")
    assert kept_files(repo) == {*APP, "tests/apps/mine.py", "tests/apps/helper.py"}


def test_uncommitted_changes_are_part_of_the_code_copy(repo: Path, keep_: Keep) -> None:
    write(repo, {".env": "TOKEN=secret", "where.txt": ""})
    commit(repo)
    write(repo, {"lib/part.py": "VALUE = 2\n", ".env": "TOKEN=other", "where.txt": "postgres://me:pass@host/db\n"})
    keep_()
    folder = repo / "multirun/s/code/1"
    assert (folder / ".source/lib/part.py").read_text() == "VALUE = 2\n"
    diff = (folder / "diff.patch").read_text()
    assert "+VALUE = 2" in diff
    assert "+postgres://me:***@host/db" in diff
    assert "TOKEN" not in diff
    record = json.loads((folder / "code.json").read_text())
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=repo, text=True).strip()
    assert (record["commit"], record["trouble"]) == (head, "")
    status = subprocess.check_output(["git", "status", "--porcelain"], cwd=repo, text=True)
    assert "code" not in status.replace("multirun/", "")  # what is kept is none of the repository's business
    (repo / "lib/part.py").write_text(APP["lib/part.py"])


@pytest.mark.parametrize(
    "git, trouble",
    [
        (None, "git: [Errno 2] No such file or directory: 'git'"),
        ("echo fatal: detected dubious ownership >&2; exit 128", "git: fatal: detected dubious ownership"),
        ("sleep 9", "git: Command '"),
    ],
    ids=["missing", "refuses", "hangs"],
)
def test_without_git_the_folders_are_walked(
    repo: Path, keep_: Keep, git: str | None, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(repo)
    monkeypatch.setattr(module, "_GIT_S", 0.3 if git and "sleep" in git else 10.0)
    monkeypatch.setenv("PATH", str(repo.parent / "bin"))
    if git:
        write(repo.parent / "bin", {"git": f"#!/bin/sh\nPATH=/usr/bin:/bin\n{git}\n"})
        (repo.parent / "bin/git").chmod(0o755)
    keep_()
    assert kept_files(repo) == set(APP)
    assert json.loads((repo / "multirun/s/code/1/code.json").read_text())["trouble"].startswith(trouble)


def test_other_code_is_refused_until_the_study_is_extended(repo: Path, keep_: Keep) -> None:
    first, _ = keep_()
    write(repo, {"lib/part.py": "VALUE = 2\n", "new.py": ""})
    with pytest.raises(UserError) as refused:
        keep_()
    assert str(refused.value).startswith("study s was started with other code: lib/part.py. The code at its start: ")
    assert str(refused.value).endswith("the new code: python app.py -m x=1,2 hydra.sweeper.extend=true")
    second, note = keep_(extend=True)
    assert (note, kept_files(repo, 2)) == ("", {*APP, "new.py"})
    assert first and second and first.folder != second.folder
    assert keep_() == (second, "")
    assert keep_(extend=True) == (second, "")  # the same code: nothing more is kept
    (repo / "lib/part.py").unlink()
    with pytest.raises(UserError, match=r"with other code: lib/part\.py\."):
        keep_()


def test_new_or_rewritten_files_are_no_changed_code(repo: Path, keep_: Keep) -> None:
    first, _ = keep_()
    write(repo, APP | {"new.py": "", "README.md": "more"})
    assert keep_() == (first, "")


def test_moved_app_keeps_its_digest(repo: Path, keep_: Keep, tmp_path: Path) -> None:
    keep_()
    repo.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rename(repo)
    moved, note = keep_()
    assert note == ""
    assert moved == Copies(str(repo), str(repo / "multirun/s/code/1/.source"))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": {"../../x.py": "1"}}', '{"app": 1}', '{"more": 1}'])
def test_a_damaged_record_is_named_and_made_anew(repo: Path, keep_: Keep, content: str) -> None:
    first, _ = keep_()
    record = repo / "multirun/s/code/1/code.json"
    record.write_text(content)
    second, note = keep_()
    assert f"{record} cannot be read" in note
    assert second == first
    assert kept_files(repo) == set(APP)
    assert keep_() == (first, "")


@pytest.mark.parametrize("place", ["digest", "copy"])
def test_corrupt_cache_is_repaired(repo: Path, keep_: Keep, place: str) -> None:
    first, _ = keep_()
    record, copy = repo / "multirun/s/code/1/code.json", repo / "multirun/s/code/1/.source/lib/part.py"
    if place == "digest":
        content = json.loads(record.read_text())
        content["files"]["lib/part.py"] = "noise"
        record.write_text(json.dumps(content))
    else:
        copy.write_text("no")
    assert keep_() == (first, "")
    assert copy.read_text() == APP["lib/part.py"]


def test_large_code_is_not_copied(repo: Path, keep_: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 2)
    code_copies, note = keep_()
    assert code_copies is None
    assert note == (
        "the app's code is not saved: its folder has more than 2 modules or 20 MB of modules. "
        "Each trial runs the app's files as they are when the trial starts"
    )


def test_an_installed_app_is_a_package(repo: Path, keep_: Keep) -> None:
    write(repo, {"site-packages/app.py": ""})
    code_copies, note = keep_(file="site-packages/app.py")
    assert code_copies is None
    assert "the app has no file of its own" in note


def test_packages_are_the_installed_packages() -> None:
    lines = set(packages().splitlines()[1:])
    for name in ("optuna", "hydra_core"):
        assert f"{name}=={importlib.metadata.version(name)}" in lines


@pytest.fixture
def importing(repo: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(repo))
    before = set(sys.modules)
    yield
    copies.use(None)
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.usefixtures("importing")
def test_edited_and_removed_modules_come_from_their_copies(repo: Path, keep_: Keep) -> None:
    write(repo, {"lib/gone.py": "VALUE = 3\n", "alone.py": "from lib import part\nVALUE = part.VALUE\n"})
    code_copies, _ = keep_()
    copies.use(code_copies)
    assert copies.in_use() == code_copies
    write(repo, {"lib/part.py": "VALUE = 22\n", "later.py": "VALUE = 4\n"})
    (repo / "lib/gone.py").unlink()
    part, gone, alone, later = map(importlib.import_module, ["lib.part", "lib.gone", "alone", "later"])
    assert [module_.VALUE for module_ in (part, gone, alone, later)] == [1, 3, 1, 4]
    assert part.__file__ == str(repo / "lib/part.py")  # what lies beside it is found
    assert part.__spec__.loader.get_filename("lib.part") == str(repo / "multirun/s/code/1/.source/lib/part.py")
    assert alone.__spec__.loader.get_filename("alone") == str(repo / "alone.py")  # which nobody has edited


@pytest.mark.usefixtures("importing")
def test_copy_that_others_can_write_is_not_imported(repo: Path, keep_: Keep) -> None:
    (repo / "lib/part.py").chmod(0o664)
    code_copies, _ = keep_()
    copies.use(code_copies)
    copy = repo / "multirun/s/code/1/.source/lib/part.py"
    assert copy.stat().st_mode & 0o022 == 0
    write(repo, {"lib/part.py": "VALUE = 22\n"})
    copy.chmod(0o664)
    with pytest.raises(ImportError, match=f"{copy}: another user could have changed"):
        importlib.import_module("lib.part")


@pytest.mark.usefixtures("importing")
def test_bytecode_beside_a_copy_is_not_executed(repo: Path, keep_: Keep) -> None:
    previous_mask = os.umask(0o002)
    try:
        code_copies, _ = keep_()
    finally:
        os.umask(previous_mask)
    source = repo / "multirun/s/code/1/.source"
    assert not [folder for folder in (source, *source.rglob("*/")) if folder.stat().st_mode & 0o022]
    copy = source / "lib/part.py"
    original, times = copy.read_text(), (copy.stat().st_atime, copy.stat().st_mtime)
    copy.write_text(original.replace("1", "6"))
    os.utime(copy, times)
    py_compile.compile(str(copy))
    copy.write_text(original)
    os.utime(copy, times)
    copies.use(code_copies)
    write(repo, {"lib/part.py": "VALUE = 22\n"})
    assert importlib.import_module("lib.part").VALUE == 1


@pytest.mark.usefixtures("importing")
def test_a_module_that_comes_first_stays_first(repo: Path, keep_: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    write(repo, {"alone.py": "VALUE = 1\n"})
    code_copies, _ = keep_()
    write(repo, {"alone.py": "VALUE = 22\n"})
    write(repo.parent / "first", {"alone.py": "VALUE = 5\n"})
    monkeypatch.syspath_prepend(str(repo.parent / "first"))
    copies.use(code_copies)
    assert importlib.import_module("alone").VALUE == 5
