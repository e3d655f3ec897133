"""What is kept of an app's code, what git tells of it, and which other code is refused."""

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode

from sweeps.errors import UserError
from sweeps.study import code as module
from sweeps.study import git
from sweeps.study.code import Kept, keep, newest, packages, select, watching

TABLE = {
    "what git tracks, and what it does not": (["app.py", "lib/a.py"], ["new.py"], ["app.py", "lib/a.py", "new.py"]),
    "nothing else that git tracks": (["README.md", "data.csv", ".env", "Makefile", "notes.yaml", "lib.pyx"], [], []),
    "YAML where Hydra reads it": (["conf/lr/a.yaml", "conf/b.txt"], ["conf/c.yaml"], ["conf/c.yaml", "conf/lr/a.yaml"]),
    "no tests, nor what documents": (
        ["tests/a.py", "lib/tests/b.py", "docs/conf.py", "test_c.py", "conftest.py"],
        [],
        [],
    ),
    "nothing hidden": ([".ci/a.py", "lib/.old/b.py"], [".venv/c.py", "conf/.hydra/d.yaml"], []),
    "no packages of others, unless they are tracked": (
        ["node_modules/own.py"],
        ["venv/lib/site-packages/a.py", "node_modules/b.py", "lib/__pycache__/c.py"],
        ["node_modules/own.py"],
    ),
    "not the engine": (["engine/a.py", "engine_of_mine/b.py"], ["engine/conf/c.yaml"], ["engine_of_mine/b.py"]),
    "a submodule's files; a repository in the repository is one name": (["sub/a.py"], ["nested/"], ["sub/a.py"]),
    "names of any kind": (["a b.py", "ü.py", "x\udcff.py"], [], ["a b.py", "x\udcff.py", "ü.py"]),
}


@pytest.mark.parametrize("tracked, untracked, wanted", TABLE.values(), ids=TABLE)
def test_what_counts_as_source(tracked: list[str], untracked: list[str], wanted: list[str]) -> None:
    assert select(tracked, untracked, ["."], ["conf"], "engine") == sorted(wanted)


def test_source_lies_in_the_roots_and_a_root_may_be_among_tests() -> None:
    files = ["scripts/a.py", "src/lib/b.py", "tools/c.py", "tests/apps/d.py", "tests/apps/tests/e.py"]
    assert select(files, [], ["scripts", "src", "tests/apps"], []) == [
        "scripts/a.py",
        "src/lib/b.py",
        "tests/apps/d.py",
    ]


APP = {"app.py": "def main(cfg): ...\n", "lib/__init__.py": "", "lib/part.py": "VALUE = 1\n"}
CONF = {"conf/config.yaml": "defaults: [lr: low]\n", "conf/lr/low.yaml": "lr: 0.1\n", "conf/lr/high.yaml": "lr: 1\n"}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def run_git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=me", "-c", "user.email=me@here", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    run_git(folder, "init", "-q", "-b", "trunk")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "--allow-empty", "-m", "first")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app on sys.path, in no repository yet."""
    folder = tmp_path / "repo"
    write(folder, APP | CONF | {"README.md": "", ".gitignore": "made.py\n", "data.csv": "1", ".env": "TOKEN=secret"})
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return folder


Keep = Callable[..., tuple[Kept, str]]


@pytest.fixture
def loader(repo: Path) -> ConfigLoaderImpl:
    return ConfigLoaderImpl(create_config_search_path(str(repo / "conf")))


@pytest.fixture
def keep_(repo: Path, loader: ConfigLoaderImpl) -> Keep:
    """keep_(extend): the study in repo/multirun/s begins, or goes on."""

    def begin(extend: bool = False, file: str = "app.py", package: str = "") -> tuple[Kept, str]:
        main = types.FunctionType((lambda cfg: None).__code__, {"__file__": str(repo / file), "__package__": package})
        return keep(repo / "multirun" / "s", main, loader, extend, {"config", "lr/low"})

    return begin


def kept_files(kept: Kept) -> set[str]:
    tree = kept.folder / module.SOURCE
    return {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file() and not path.is_symlink()}


def test_a_commit_with_changes_is_kept_as_it_is_now(repo: Path, keep_: Keep) -> None:
    write(repo, {"sub/inner.py": ""})
    commit(repo / "sub")
    run_git(repo / "sub", "branch", "-m", "main")
    run_git(repo, "init", "-q", "-b", "trunk")
    run_git(repo, "submodule", "add", "-q", str(repo / "sub"), "sub")
    commit(repo)
    run_git(repo, "remote", "add", "origin", "https://me:pass@host/repo.git")
    write(repo, {"lib/part.py": "VALUE = 2\n", ".env": "TOKEN=other", "new.py": "", "made.py": "", "nested/x.py": ""})
    commit(repo / "nested")
    write(repo, {"multirun/other/study.json": "", "multirun/other/script.py": ""})
    kept, said = keep_()
    assert said == ""
    assert kept_files(kept) == {*APP, *CONF, "new.py", "sub/inner.py"}
    assert (kept.folder / ".source/lib/part.py").read_text() == "VALUE = 2\n"
    links = {path.name for path in (kept.folder / ".source").iterdir() if path.is_symlink()}
    assert links == {"README.md", ".gitignore", ".gitmodules", "data.csv", ".env", "made.py", "nested"}
    diff = (kept.folder / "diff.patch").read_text()
    assert "+VALUE = 2" in diff
    assert "TOKEN" not in diff
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=repo, text=True).strip()
    assert kept.tags() == {
        "commit": head,
        "branch": "trunk",
        "repoURL": "https://me:***@host/repo.git",
        "dirty": "true",
    }
    record = json.loads((kept.folder / "code.json").read_text())
    assert (record["commit"], record["dirty"], record["trouble"]) == (head, True, "")
    assert newest(repo / "multirun" / "s") == (1, kept.code)


def test_a_clean_commit_has_no_diff_and_a_detached_one_no_branch(repo: Path, keep_: Keep) -> None:
    commit(repo)
    run_git(repo, "checkout", "-q", "--detach")
    kept, _ = keep_()
    assert not (kept.folder / "diff.patch").exists()
    assert (kept.code.branch, kept.code.dirty, kept.tags()["dirty"]) == ("", False, "false")


def fake_git(folder: Path, script: str) -> str:
    write(folder, {"git": f"#!/bin/sh\n{script}\n"})
    (folder / "git").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


OWNER = "echo \"fatal: detected dubious ownership in repository at '/repo'\" >&2; exit 128"


@pytest.mark.parametrize(
    "how, trouble",
    [
        ("none", "the app is in no git repository"),
        ("before the first commit", ""),
        ("no git on PATH", "git cannot be run: No such file or directory"),
        (OWNER, "git does not tell the tracked files: fatal: detected dubious ownership in repository at '/repo'"),
        ("sleep 60", "git does not tell the tracked files within 0.3 s"),
    ],
)
def test_git_that_does_not_tell_is_no_failure(
    repo: Path, keep_: Keep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str, trouble: str
) -> None:
    write(repo, {"other/deep/far.py": "", "lib/deep/near.py": "", "venv/lib/site-packages/theirs.py": ""})
    monkeypatch.setattr(git, "_LIMIT_S", 0.3)
    if how != "none":
        run_git(repo, "init", "-q")
    if how == "no git on PATH":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif " 60" in how or how == OWNER:
        monkeypatch.setenv("PATH", fake_git(tmp_path / "bin", how))
    elif how != "none":
        monkeypatch.setattr(git, "_LIMIT_S", 3.0)
    kept, said = keep_()
    assert (kept.code.trouble, kept.code.commit, said) == (trouble, "", "")
    assert kept.tags() == {}
    far = {"other/deep/far.py"} if how == "before the first commit" else set()  # git lists it; who looks for it stops
    assert kept_files(kept) == {*APP, *CONF, "lib/deep/near.py", *far}


@pytest.mark.parametrize("name, most", [("_MOST_FILES", 3), ("_MOST_MB", 1e-5)])
def test_what_is_too_much_is_not_kept_and_that_is_said(
    repo: Path, keep_: Keep, monkeypatch: pytest.MonkeyPatch, name: str, most: float
) -> None:
    commit(repo)
    monkeypatch.setattr(module, name, most)
    kept, said = keep_()
    assert "its source is more than" in said
    assert "Trials run what its files hold when they start" in said
    assert (kept_files(kept), kept.code.files) == (set(), {})
    assert kept.tags()["branch"] == "trunk"
    (repo / "app.py").write_text("other\n")
    assert keep_()[0].code == kept.code


def test_an_app_that_is_installed_has_no_code_of_its_own(repo: Path, keep_: Keep) -> None:
    write(repo, {"venv/lib/site-packages/theirs.py": ""})
    kept, said = keep_(file="venv/lib/site-packages/theirs.py")
    assert (kept.code.files, said) == ({}, "")
    assert (kept.folder / "packages.txt").exists()


def test_a_module_of_a_package_belongs_to_what_its_package_is_imported_from(repo: Path, keep_: Keep) -> None:
    kept, _ = keep_(file="lib/part.py", package="lib")
    assert kept_files(kept) == {*APP, *CONF}


def test_packages_are_those_that_are_installed() -> None:
    def plain(name: str) -> str:
        return name.lower().replace("_", "-").replace(".", "-")

    python, *lines = packages().splitlines()
    told = {plain(line.split("==")[0]): line.split("==")[1] for line in lines}
    assert python.startswith("# Python 3.")
    for name in ("hydra-core", "optuna", "mlflow", "numpy", "pytest"):
        assert told[name] == importlib.metadata.version(name)


def fresh(name: str) -> Any:
    """The module as a new process would import it."""
    forget()
    importlib.invalidate_caches()
    return importlib.import_module(name)


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in {"lib", "later"}]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def no_module_is_left() -> Iterator[None]:
    yield
    forget()


def test_what_is_edited_later_is_neither_imported_nor_composed(
    repo: Path, keep_: Keep, loader: ConfigLoaderImpl
) -> None:
    write(repo, {"lib/made.py": "MADE = 1\n", ".gitignore": "lib/made.py\n", "lib/words.txt": "hello"})
    commit(repo)
    kept, _ = keep_()
    before = list(sys.path)
    write(repo, {"lib/part.py": "VALUE = 2\n", "conf/lr/high.yaml": "lr: 2\n", "later.py": ""})

    def lr() -> float:
        words = ["lr=high"]
        config = loader.load_configuration("config", words, run_mode=RunMode.RUN)
        return float(config.lr.lr)

    with kept.in_place(loader):
        part = fresh("lib.part")
        assert (part.VALUE, fresh("lib.made").MADE, lr()) == (1, 1, 1)
        assert Path(part.__file__).with_name("words.txt").read_text() == "hello"
        assert Path(part.__file__).is_relative_to(kept.folder)
        assert fresh("later").__file__ == str(repo / "later.py")
    assert (fresh("lib.part").VALUE, lr(), sys.path) == (2, 2, before)


def test_the_configs_that_are_read_are_known(repo: Path, loader: ConfigLoaderImpl) -> None:
    with watching(loader) as read:
        loader.load_configuration("config", [], run_mode=RunMode.RUN)
    assert read >= {"config", "lr/low"}
    assert "lr/high" not in read
    assert "load_config" not in vars(loader.repository)


def test_other_code_is_refused_with_the_first_files_that_differ(repo: Path, keep_: Keep) -> None:
    commit(repo)
    first, _ = keep_()
    write(repo, {"README.md": "more", "tests/test_it.py": "", "conf/lr/new.yaml": "", "new.py": "", "data.csv": "2"})
    write(repo, {"conf/lr/high.yaml": "lr: 5\n"})  # which the study does not read
    run_git(repo, "add", "-A")
    run_git(repo, "commit", "-q", "-m", "what changes no trial")
    assert keep_()[0].code == first.code
    write(repo, {"lib/part.py": "VALUE = 2\n", "app.py": "other\n", "conf/lr/low.yaml": "lr: 3\n"})
    (repo / "conf/config.yaml").unlink()
    with pytest.raises(UserError) as refused:
        keep_()
    lines = str(refused.value).splitlines()
    assert len(lines) == 2
    assert "app.py, conf/config.yaml, conf/lr/low.yaml and 1 more" in lines[0]
    assert str(first.folder / ".source") in lines[0]
    assert lines[1].endswith("add hydra.sweeper.extend=true")


def test_extending_keeps_both_and_the_newest_counts(repo: Path, keep_: Keep) -> None:
    commit(repo)
    first, _ = keep_()
    assert keep_(extend=True)[0].folder == first.folder
    write(repo, {"lib/part.py": "VALUE = 2\n", "conf/lr/new.yaml": "lr: 5\n"})
    second, said = keep_(extend=True)
    assert (said, first.folder.name, second.folder.name) == ("", "1", "2")
    texts = [(one.folder / ".source/lib/part.py").read_text() for one in (first, second)]
    assert texts == ["VALUE = 1\n", "VALUE = 2\n"]
    assert keep_()[0].code == second.code
    write(repo, {"lib/part.py": "VALUE = 1\n"})
    with pytest.raises(UserError, match=r"lib/part\.py"):
        keep_()


def test_the_same_code_elsewhere_is_the_same_code(
    repo: Path, keep_: Keep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, _ = keep_()
    run_git(tmp_path, "init", "-q")  # around it: the top of the tree is another one now
    assert keep_()[0].code == first.code
    (repo / "app.py").write_text("other\n")
    with pytest.raises(UserError, match=r"other code: app\.py;"):
        keep_()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": 3}', '{"other": 1}', '{"files": {}, "app": 1}'])
def test_a_record_that_cannot_be_read_is_set_aside(repo: Path, keep_: Keep, content: str) -> None:
    first, _ = keep_()
    (first.folder / "code.json").write_text(content)
    (repo / "app.py").write_text("other\n")
    again, said = keep_()
    assert "code.json cannot be read" in said
    assert "1.damaged-" in said
    assert (again.folder, (again.folder / ".source/app.py").read_text()) == (first.folder, "other\n")


def test_kept_files_that_were_cut_are_made_anew(repo: Path, keep_: Keep) -> None:
    commit(repo)
    (repo / "app.py").write_text("other\n")
    first, _ = keep_()
    cut = first.folder / ".source/lib/part.py"
    cut.chmod(0o644)
    cut.write_text("")
    again, said = keep_()
    assert "damaged" in said
    assert (cut.read_text(), again.code) == ("VALUE = 1\n", first.code)
    assert "+other" in (again.folder / "diff.patch").read_text()
    cut.chmod(0o644)
    cut.write_text("")
    (repo / "app.py").write_text("another\n")
    with pytest.raises(UserError, match=r"app\.py"):
        keep_()


def test_what_a_killed_driver_left_half_made_is_replaced(
    repo: Path, keep_: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_killed() -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(module, "packages", is_killed)
        keep_()
    study = repo / "multirun" / "s"
    assert newest(study) == (0, None)
    assert (study / "code" / ".1").exists()
    kept, _ = keep_()
    assert (newest(study), sorted(path.name for path in (study / "code").iterdir())) == (
        (1, kept.code),
        [".gitignore", "1"],
    )


def test_a_disk_without_links_runs_what_lies_there(repo: Path, keep_: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    kept, said = keep_()
    assert "Operation not permitted" in said
    assert kept.code.files == {}
