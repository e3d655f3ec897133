"""Who may import what: read from the files, and seen in a driver that really ran."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_lines import ROOT, SWEEP, run

_ABOVE = ("__init__", "__main__", "app")
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
        ("optuna", tuple(f"sweeps/study/{name}.py" for name in ("search", "learner", "sampling", "storage"))),
        ("submitit", ("sweeps/launchers/slurm/",)),
        ("mlflow", ("sweeps/tracking/", "trainers/networks.py")),  # where a model is kept as MLflow has it
        ("fcntl", ("sweeps/files.py", "trainers/")),
        ("trainers", ("trainers/",)),
        ("conf", ("conf/", "trainers/", "sweep.py")),
        (
            "sweeps.study",
            ("sweeps/study/", "sweeps/hydra_plugins/", "sweeps/commands/", "sweeps/app.py", "sweeps/__init__.py"),
        ),
        ("pandas", ("sweeps/study/loaded.py",)),
    ],
)
def test_who_imports_it(module: str, allowed: tuple[str, ...]) -> None:
    found = importers(module)
    assert found
    assert all(file.startswith(allowed) for file in found), found


@pytest.mark.parametrize(
    "room, allowed",
    [
        ("hydra_plugins", {"study", "launchers", "settings", "errors"}),
        ("study", {"launchers", "tracking", "results", "trial", "files", "settings", "signals", "errors", "secrets"}),
        ("launchers", {"trial", "files", "settings", "errors"}),
        ("tracking", {"results", "trial", "files", "settings", "errors", "secrets"}),
        ("results", {"trial", "files", "settings", "errors", "secrets"}),
        ("trial", {"files", "errors"}),
        ("files", {"errors"}),
        ("secrets", {"errors"}),
    ],
)
def test_arrows_run_one_way(room: str, allowed: set[str]) -> None:
    path = ROOT / "sweeps" / room
    wrong = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in (path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")])
        for name in imports(file)
        if name.startswith("sweeps.") and name.split(".")[1] not in {room, *allowed}
    }
    assert not wrong


def test_trainers_know_the_trial_alone() -> None:
    statements = [
        node
        for file in (ROOT / "trainers").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom) and "sweeps" in ast.unparse(node)
    ]
    assert {ast.unparse(node).split(" import ")[0] for node in statements} == {"from sweeps.trial"}


SHOWN = """
import runpy, sys, atexit
sys.argv = ["sweep.py", *sys.argv[1:]]
slow = {"tensorflow", "keras", "sweeps", "optuna", "plotly", "mlflow", "pandas"}
atexit.register(lambda: print("LOADED", sorted(slow & set(sys.modules))))
runpy.run_path(%r, run_name="__main__")
"""


@pytest.mark.parametrize(
    "arguments, loaded",
    [
        (["--help"], "['sweeps']"),
        (["-m", "seed=1,2", "hydra.sweeper.preview=true"], "['optuna', 'sweeps']"),
        (["-m", "seed=1,2", "epochs=1", "tracking=none"], "['optuna', 'sweeps']"),
    ],
)
def test_a_driver_loads_nothing_that_it_does_not_need_yet(tmp_path: Path, arguments: list[str], loaded: str) -> None:
    code = SHOWN % str(ROOT / "sweep.py")
    sys_path = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", sys_path + code, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"LOADED {loaded}" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("trainer, loaded", [("own", 0.0), ("keras", 1.0)])
def test_a_trainer_of_ones_own_runs_without_tensorflow(tmp_path: Path, trainer: str, loaded: float) -> None:
    (tmp_path / "mine.py").write_text(
        "import sys\n"
        "def train(cfg, trial):\n"
        "    return {'val_accuracy': 0.5, 'loaded': float('tensorflow' in sys.modules)}\n"
    )
    mine = [f"trainer={trainer}", "trainer._target_=mine.train", "seed=1,2", "tracking=none"]
    done = run([SWEEP, "-m", *mine], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.err
    ends = [json.loads(file.read_text()) for file in done.study().glob("*/attempts/1/end.json")]
    assert [end["metrics"]["loaded"] for end in ends] == [loaded, loaded]
