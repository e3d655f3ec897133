"""The program of a user as `__main__` of each trial, compared with Hydra's own launcher."""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from sweeps.trial.run.program import Program
from tests.command_lines import APPS, GRID, Done, end, finish, run, run_all, start_afresh

APP = str(APPS / "program_app.py")
OURS = [*GRID, "hydra.sweeper.tracking=false"]
HEAD = '@hydra.main(version_base="1.3", config_path=None)\n'
MAIN = f"import hydra\n{HEAD}def main(cfg):\n    return {{}}\n"


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.setattr(sys, "argv", [])
    yield


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize(
    ("source", "line", "values"),
    [
        ("a = 1\nif __name__ == '__main__':\n    b = 2\n", 3, {"a": 1}),
        ("if __name__ == '__main__':\n    a = 1\nelse:\n    b = 2\nc = 3\n", 9, {"b": 2, "c": 3}),
        ("if '__main__' == __name__ and a:\n    b = 1\nc = 2\n", 9, {"c": 2}),
        ("if __name__ in ('__main__', '__mp_main__'):\n    b = 1\nc = 2\n", 9, {"c": 2}),
        ("if __name__ != '__main__':\n    a = 1\nelse:\n    b = 2\n", 9, {"a": 1}),
        ("try:\n    if __name__ == '__main__':\n        b = 1\nfinally:\n    c = 2\n", 9, {"c": 2}),
        ("def f():\n    if __name__ == '__main__':\n        return 1\na = f()\n", 9, {"a": 1}),
        ("a = 1\nmain(\n  a)\nb = 1\n", 3, {"a": 1}),
        ("from __future__ import annotations\ndef f(x: missing): ...\na = 1", 9, {"a": 1}),
        ("# coding: latin-1\na = '\xe4'\n", 9, {"a": "\xe4"}),
        (f"{MAIN}a = 1\nmain()\nb = 2\n", 99, {"a": 1}),  # as if an earlier line had started another app
    ],
)
def test_statements_that_a_trial_runs(tmp_path: Path, source: str, line: int, values: dict[str, Any]) -> None:
    Program(str(tmp_path / "app.py"), None, source, line, ["app.py", "-m"], str(tmp_path)).run()
    names = vars(sys.modules["__main__"])
    assert {name: value for name, value in names.items() if name in {"a", "b", "c"}} == values
    assert (names["__name__"], names["__file__"], sys.argv) == ("__main__", str(tmp_path / "app.py"), ["app.py", "-m"])


@pytest.mark.long
def test_trial_has_the_program_of_hydras_own_launcher(tmp_path: Path) -> None:
    for name, words in {"hydra": [], "ours": OURS}.items():
        line = [APP, "-m", "x=1,2", f"hydra.sweep.dir={name}", *words]
        done = finish(start_afresh(line, tmp_path), tmp_path)
        assert done.code == 0, done.said
    for number in range(2):
        expected, facts = ((tmp_path / name / f"{number}/facts.json").read_text() for name in ("hydra", "ours"))
        assert json.loads(facts) == json.loads(expected)


@pytest.mark.long
def test_work_that_is_left_to_the_end_of_a_process(tmp_path: Path) -> None:
    done = run([APP, "-m", "x=1,2", "ending=true", "hydra.sweep.dir=ours", *OURS], tmp_path)
    assert done.code == 0, done.said
    for folder in (tmp_path / "ours/0", tmp_path / "ours/1"):
        texts = {"open": "1,2\n", "handler": "called", "finalized": "called", "deleted": "flushed"}
        texts |= {"thread": "ended", "pool": "ended"}
        assert {name: (folder / name).read_text() for name in texts} == texts
        assert gzip.decompress((folder / "open.gz").read_bytes()) == b"1,2\n"
        assert not [path for path in folder.glob("tmp*") if path.is_dir()]
        assert "Exception ignored in atexit callback" in (folder / "attempts/1/log").read_text()
    assert not [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(tmp_path)]


PROGRAMS = {
    "a program without a guard": ("import hydra, pickle\nclass Net: ...\n" + HEAD
        + "def main(cfg):\n    pickle.dumps(Net())\n    return 1.0\ntry:\n    main()\nfinally:\n    print('ended')\n"),
    "a wrapped task function": ("import functools, hydra\ndef wrap(f):\n    @functools.wraps(f)\n"
        + f"    def g(cfg):\n        return f(cfg) + 1\n    return g\n{HEAD}@wrap\ndef main(cfg):\n    return 0.0\n"
        + "if __name__ == '__main__':\n    main()\n"),
    "a task function made in the guard": ("import hydra\nN = 1.0\ndef make(n):\n    def f(cfg):\n"
        + "        return N * n\n    return f\nif __name__ == '__main__':\n    N = 2.0\n"
        + "    hydra.main(version_base='1.3', config_path=None)(make(0.5))()\n"),
    "a callback with a lock": ("import threading, hydra\nfrom hydra.experimental.callback import Callback\n"
        + "class Calls(Callback):\n    def __init__(self):\n        self.lock = threading.Lock()\n"
        + "    def on_job_start(self, config, **_):\n        global started\n        started = self.lock\n"
        + f"{HEAD}def main(cfg):\n    return float(started is not None)\n"
        + "if __name__ == '__main__':\n    main()\n"),
}  # fmt: skip


@pytest.mark.long
def test_programs_run(tmp_path: Path) -> None:
    callbacks = "+hydra.callbacks.calls._target_=__main__.Calls"
    lines = {}
    for i, (name, source) in enumerate(PROGRAMS.items()):
        (tmp_path / f"{i}.py").write_text(source)
        words = [callbacks] if "callback" in name else []
        lines[name] = [str(tmp_path / f"{i}.py"), "-m", *OURS, *words, "+x=1,2", "hydra.sweep.dir=s"]
    for name, done in run_all(lines, tmp_path).items():
        assert done.code == 0, (name, done.said)
        assert [end(done.folder / "s" / str(number)).objective for number in range(2)] == [[1.0], [1.0]], name


@pytest.mark.long
def test_modules_of_a_package_run_by_name(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").write_text("")
    (tmp_path / "pkg/lib.py").write_text("VALUE = 2.0\n")
    body = "    import sys\n    assert sys.modules['__main__'].__spec__.name == 'pkg.train'\n    return lib.VALUE\n"
    guard = "if __name__ == '__main__':\n    main()\n"
    (tmp_path / "pkg/train.py").write_text(f"import hydra\nfrom . import lib\n{HEAD}def main(cfg):\n{body}{guard}")
    done = run(["-m", "pkg.train", "-m", *OURS, "+x=1,2", "hydra.sweep.dir=s"], tmp_path)
    assert done.code == 0, done.said
    assert end(tmp_path / "s/1").objective == [2.0]


def refused_or_failed(folder: Path, source: str) -> Done:
    (folder / "app.py").write_text(source)
    return run([str(folder / "app.py"), "-m", *OURS, "+x=1", "hydra.sweep.dir=s"], folder)


def test_error_of_a_programs_own_statement_is_the_trials(tmp_path: Path) -> None:
    early = "import os\nif os.environ.get('SEEN'):\n    raise ValueError('no such place')\nos.environ['SEEN'] = 'yes'\n"
    done = refused_or_failed(tmp_path, f"{early}{MAIN}if __name__ == '__main__':\n    main()\n")
    assert done.code == 1, done.said
    assert end(tmp_path / "s/0").error == "ValueError: no such place"
    assert f'File "{tmp_path}/app.py", line 3' in (tmp_path / "s/0/attempts/1/log").read_text()


def test_lock_that_only_the_guard_makes_is_refused(tmp_path: Path) -> None:
    source = f"import hydra, threading\n{HEAD}def main(cfg):\n    with lock:\n        return 1.0\n"
    done = refused_or_failed(tmp_path, f"{source}if __name__ == '__main__':\n    lock = threading.Lock()\n    main()\n")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("the task function cannot be sent to another process: cannot pickle '_thread.lock'")


@pytest.mark.long
def test_edited_program_changes_no_trial(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    edit = f"    if cfg.x == 1:\n        open({str(app)!r}, 'w').write('raise ValueError(2)')\n"
    show = "    import inspect\n    assert 'def main' in inspect.getsource(main)\n"
    source = f"import hydra\n{HEAD}def main(cfg):\n{edit}{show}    return 1.0\nif __name__ == '__main__':\n    main()\n"
    app.write_text(source)
    words = [str(app), "-m", *OURS, "+x=1,2", "hydra.sweep.dir=s", "hydra.sweeper.n_jobs=1"]
    done = run(words, tmp_path)
    assert done.code == 0, done.said
    app.write_text(source.replace("1.0", "2.0"))
    assert "was started with other code: app.py" in run(words, tmp_path).err
    done = run([word.replace("+x=1,2", "+x=1,2,3") for word in words] + ["hydra.sweeper.extend=true"], tmp_path)
    assert done.code == 0, done.said
    assert [end(tmp_path / f"s/{number}").objective for number in range(3)] == [[1.0], [1.0], [2.0]]
