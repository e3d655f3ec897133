"""Who may import what: read from the files, and seen in a driver that really ran."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("sweep.py", "conf", "sweeps", "trainers")


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(module: str) -> set[str]:
    """The files that import `module` or something in it."""
    found = set()
    for room in ROOMS:
        path = ROOT / room
        for file in [path] if path.is_file() else path.rglob("*.py"):
            if any(name == module or name.startswith(f"{module}.") for name in imports(file)):
                found.add(str(file.relative_to(ROOT)))
    return found


@pytest.mark.parametrize(
    "module, allowed",
    [
        ("tensorflow", ("trainers/",)),
        ("keras", ("trainers/",)),
        ("optuna", ("sweeps/study.py", "sweeps/study_storage.py")),
        ("submitit", ("sweeps/launchers/slurm",)),
        ("mlflow", ("sweeps/mlflow_study.py", "sweeps/mlflow_trial.py")),
        ("trainers", ("trainers/",)),
        ("conf", ("conf/", "trainers/", "sweep.py")),
        ("sweeps.driver", ("sweeps/hydra_plugins/",)),
    ],
)
def test_who_imports_it(module: str, allowed: tuple[str, ...]) -> None:
    found = importers(module)
    assert found
    assert all(file.startswith(allowed) for file in found), found


def test_trainers_know_the_trial_alone() -> None:
    of_sweeps = {
        name
        for file in (ROOT / "trainers").glob("*.py")
        for name in imports(file)
        if name.partition(".")[0] == "sweeps"
    }
    assert all(name.startswith("sweeps.trial") for name in of_sweeps)


SHOWN = """
import runpy, sys, atexit
sys.argv = ["sweep.py", *sys.argv[1:]]
atexit.register(lambda: print("LOADED", sorted({"tensorflow", "keras", "sweeps", "optuna"} & set(sys.modules))))
runpy.run_path(%r, run_name="__main__")
"""


@pytest.mark.parametrize(
    "arguments, loaded",
    [
        (["--help"], "['sweeps']"),
        (["-m", "seed=1,2", "epochs=1", "tracking=none"], "['optuna', 'sweeps']"),
    ],
)
def test_the_driver_never_loads_tensorflow(tmp_path: Path, arguments: list[str], loaded: str) -> None:
    code = SHOWN % str(ROOT / "sweep.py")
    sys_path = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", sys_path + code, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"LOADED {loaded}" in done.stdout, done.stdout + done.stderr
