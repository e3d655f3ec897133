"""The modules that may import each library, in the source files and in drivers that ran."""

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.command_lines import ROOT, SWEEP, run

_ABOVE = ("__init__", "__main__", "app")
PLACES = ("sweep.py", "sweeps", "trainers")
MOST_FILES = 20
STUDYING = ("study/", "hydra_plugins/", "commands/", "after/", "app.py", "api.py")


@cache
def imports(file: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def importers(module: str) -> set[str]:
    """Return the files that import `module` or a part of `module`."""
    files = set()
    for place in PLACES:
        path = ROOT / place
        for file in [path] if path.is_file() else path.rglob("*.py"):
            if any(name == module or name.startswith(f"{module}.") for name in imports(file)):
                files.add(str(file.relative_to(ROOT)))
    return files


@pytest.mark.parametrize(
    "module, allowed",
    [
        ("tensorflow", ("trainers/",)),
        ("keras", ("trainers/", "sweeps/integrations/keras.py")),
        ("optuna", ("sweeps/choose/sampler/",)),
        ("submitit", ("sweeps/launchers/slurm/",)),
        ("matplotlib", ("sweeps/show/figures/picture",)),
        ("mlflow", ("sweeps/tracking/", "trainers/networks.py")),  # because models are saved in MLflow's format
        ("fcntl", ("sweeps/base/files.py", "trainers/")),
        ("hydra._internal", ("sweeps/hydra/parts.py",)),
        ("trainers", ("trainers/", "sweep.py")),
        ("sweeps.study", tuple(f"sweeps/{place}" for place in STUDYING)),
        ("pandas", ("sweeps/api.py", "sweeps/show/print/print_table.py")),
    ],
)
def test_heavy_library_is_imported_by_allowed_files_only(module: str, allowed: tuple[str, ...]) -> None:
    files = importers(module)
    assert files
    assert all(file.startswith(allowed) for file in files), files


ALLOWED = {
    "hydra_plugins": "study launchers hydra base",
    "commands": "after study choose show tracking launchers analysis record space trial hydra base",
    "after": "study launchers analysis record space trial hydra base",
    "study": "choose launchers tracking show analysis record space trial hydra base",
    "choose": "analysis record space trial hydra base",
    "launchers": "trial hydra base",
    "tracking": "show analysis record space trial hydra base",
    "show": "analysis record space trial hydra base",
    "analysis": "record space trial hydra base",
    "record": "space trial hydra base",
    "space": "trial hydra base",
    "integrations": "trial",
    "trial": "hydra base",
    "hydra": "base",
    "base": "",
}


@pytest.mark.parametrize("package", ALLOWED)
def test_package_imports_allowed_packages_only(package: str) -> None:
    path = ROOT / "sweeps" / package
    wrong = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in (path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")])
        for name in imports(file)
        if name.startswith("sweeps.")
        and name.split(".")[1] not in {package, *ALLOWED[package].split()}
        and "project" not in file.parts  # a user's own, which `sweepyard init` writes
    }
    assert not wrong


def statements(file: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements that run, without the statements under TYPE_CHECKING."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def package_of(file: Path) -> str:
    return file.relative_to(ROOT / "sweeps").parts[0].removesuffix(".py")


def packages_imported(statement: ast.Import | ast.ImportFrom) -> set[str]:
    names = [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        names = [f"{statement.module}.{name}" for name in names]
    return {name.split(".")[1] for name in names if name.startswith("sweeps.")}


def import_counts() -> dict[str, Counter[str]]:
    """Count the import statements in each package of sweeps, by the imported package."""
    counts: dict[str, Counter[str]] = {}
    for file in (ROOT / "sweeps").rglob("*.py"):
        imported = counts.setdefault(package_of(file), Counter())
        for statement in statements(file):
            imported.update(packages_imported(statement) - {package_of(file)})
    return counts


def test_packages_have_no_circular_imports() -> None:
    assert list(TopologicalSorter(import_counts()).static_order())  # because a circle raises CycleError


def test_study_imports_show_in_few_places() -> None:
    assert 0 < import_counts()["study"]["show"] <= 12


def modules_imported(file: Path, modules: dict[str, Path]) -> set[Path]:
    """Return the modules of the product that a file imports, also in functions and under TYPE_CHECKING."""
    return {modules[name] for name in imports(file) if name in modules} - {file}


def test_modules_have_no_circular_imports() -> None:
    files = [*(ROOT / "sweeps").rglob("*.py"), *(ROOT / "trainers").rglob("*.py")]
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}
    graph = {file: modules_imported(file, modules) for file in files}
    assert list(TopologicalSorter(graph).static_order())  # because a circle raises CycleError


def test_folders_have_few_files() -> None:
    counts = Counter(file.parent for place in ("sweeps", "trainers") for file in (ROOT / place).rglob("*.py"))
    assert max(counts.values()) <= MOST_FILES, counts.most_common(3)


def is_packed(node: ast.AST) -> bool:
    """Return whether an assignment packs several into one: `a, b = x, y` that neither swaps nor shifts."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    if not isinstance(node.targets[0], ast.Tuple):
        return False
    targets = {ast.unparse(target) for target in node.targets[0].elts}
    return not targets & {ast.unparse(value) for value in node.value.elts}


def is_dense(node: ast.AST) -> bool:
    """Return whether a comprehension has more than two clauses."""
    if not isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return False
    return sum(1 + len(clause.ifs) for clause in node.generators) > 2


def multiplies_by_a_condition(node: ast.AST) -> bool:
    """Return whether an expression is a list times a condition."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    return isinstance(node.left, ast.List | ast.JoinedStr) and isinstance(node.right, ast.Compare | ast.BoolOp)


def test_one_step_a_statement() -> None:
    packed = []
    for place in PLACES:
        path = ROOT / place
        for file in [path] if path.is_file() else path.rglob("*.py"):
            if "project" in file.parts:  # a user's own
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                is_conditional = isinstance(node, ast.Expr) and isinstance(node.value, ast.IfExp)
                if is_packed(node) or is_dense(node) or is_conditional or multiplies_by_a_condition(node):
                    packed.append(f"{file.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
    assert not packed


def test_trainers_import_only_sweeps_trial() -> None:
    imports_of_sweeps = [
        node
        for file in (ROOT / "trainers").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom) and "sweeps" in ast.unparse(node)
    ]
    assert imports_of_sweeps
    assert all(ast.unparse(node).startswith("from sweeps.trial") for node in imports_of_sweeps)


PRINT_LOADED = """
import runpy, sys, atexit
program, sys.argv = sys.argv[1], sys.argv[1:]
slow = {"tensorflow", "keras", "sweeps", "optuna", "plotly", "matplotlib", "mlflow", "pandas", "sweeps.launchers.slurm"}
atexit.register(lambda: print("LOADED", sorted(slow & set(sys.modules))))
run = runpy.run_path if program.endswith(".py") else runpy.run_module
run(program, run_name="__main__")
"""


def slow_imports(folder: Path, program: str, *arguments: str) -> set[str]:
    """Run a script or a module, and return the slow libraries that the run imported."""
    command = [sys.executable, "-c", PRINT_LOADED, program, *arguments]
    path = {"PYTHONPATH": f"{ROOT}:{folder}"}
    done = subprocess.run(command, cwd=folder, env=os.environ | path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    loaded: set[str] = set(ast.literal_eval(done.stdout.partition("LOADED ")[2]))
    return loaded


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["-m", "seed=1,2", "hydra.sweeper.preview=true"], ["-m", "seed=1,2", "epochs=1", "tracking=none"]],
)
def test_driver_imports_no_slow_library(tmp_path: Path, arguments: list[str]) -> None:
    assert slow_imports(tmp_path, SWEEP, *arguments) == {"sweeps"}


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, set[str]]]:
    """Return a folder with a grid and a search, and the slow libraries that each driver imported."""
    folder = tmp_path_factory.mktemp("studies")
    (folder / "mine.py").write_text("def train(cfg, trial):\n    return {'val_accuracy': cfg.lr}\n")
    own = ["-m", "trainer=own", "trainer._target_=mine.train", "lr=0.1,0.2,0.3", "tracking=none"]
    grid, search = ["hydra.sweeper.study_name=grid"], ["hydra/sweeper=optuna", "hydra.sweeper.study_name=search"]
    return folder, {
        "grid": slow_imports(folder, SWEEP, *own, *grid),
        "search": slow_imports(folder, SWEEP, *own, *search),
    }


@pytest.mark.long
def test_only_a_search_imports_optuna_and_no_local_study_slurm(drivers: tuple[Path, dict[str, set[str]]]) -> None:
    loaded = drivers[1]
    assert "sweeps.launchers.slurm" not in loaded["grid"] | loaded["search"]
    assert "optuna" not in loaded["grid"]
    assert "optuna" in loaded["search"]


@pytest.mark.long
@pytest.mark.parametrize("words", [["list"], ["status", "grid"], ["status", "search"], ["best", "search"]])
def test_commands_reading_a_study_import_no_optuna(drivers: tuple[Path, dict[str, set[str]]], words: list[str]) -> None:
    assert "optuna" not in slow_imports(drivers[0], "sweeps", *words)


def test_walk_through_the_code_names_what_exists() -> None:
    steps = re.findall(r"^\| \d+ \| `([\w/.]+)` `(?:(\w+)[.])?(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert len(steps) == 23
    for file, owner, name in steps:
        tree = ast.parse((ROOT / file).read_text())
        holders = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner] or [tree]
        functions = [node.name for node in holders[0].body if isinstance(node, ast.FunctionDef)]
        assert name in functions, f"{file}: {owner}.{name}"


@pytest.mark.long
@pytest.mark.parametrize("trainer, loaded", [("own", 0.0), ("keras", 1.0)])
def test_custom_trainer_runs_without_tensorflow(tmp_path: Path, trainer: str, loaded: float) -> None:
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
