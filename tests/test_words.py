"""How functions and variables are named and described: read from the files, and held by the rules of CONTRIBUTING."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.command_lines import ROOT

FILES = [ROOT / "sweep.py", *(ROOT / "sweeps").rglob("*.py"), *(ROOT / "trainers").rglob("*.py")]
TESTS = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "tests").rglob("*_contract.py")]
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text())
VERBS, VAGUE, BANNED = (set(WORDS[kind].split()) for kind in ("verbs", "vague", "banned"))


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each variable and argument that the code binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of each text that is no docstring."""
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.lineno, node.value


def bad_messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the advice of each message with a banned word."""
    for line, text in texts(tree):
        if " " in text.strip() and (words := BANNED.intersection(re.findall(r"\w+", text.lower()))):
            yield line, f"use other words in the message: {', '.join(words)}"


def bad_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the advice of each name and docstring that breaks a rule."""
    for line, name in names(tree):
        if name.strip("_") in VAGUE:
            yield line, f"name the content of {name!r}"
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(function) or "Return").split()[0].rstrip(".,:")
            if first not in VERBS:
                yield function.lineno, f"begin with an imperative verb of words.toml, not {first!r}"


def test_names_of_tests() -> None:
    """Check that a test's name has no pronoun `it` and no banned word."""
    names = [name for file in TESTS for name in re.findall(r"def (test_\w+)", file.read_text())]
    assert not [name for name in names if (BANNED | {"it"}).intersection(name.split("_"))]


def test_names_and_docstrings() -> None:
    files = {*FILES, *(ROOT / "tests").rglob("*.py")}
    trees = {file.relative_to(ROOT): ast.parse(file.read_text()) for file in files}
    assert not [f"{file}:{line}: {advice}" for file, tree in trees.items() for line, advice in bad_names(tree)]


def test_messages() -> None:
    trees = {file.relative_to(ROOT): ast.parse(file.read_text()) for file in FILES}
    assert not [f"{file}:{line}: {advice}" for file, tree in trees.items() for line, advice in bad_messages(tree)]
