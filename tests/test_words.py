"""How functions and variables are named and described: read from the files, and held by the rules of CONTRIBUTING."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_lines import ROOT

FILES = [ROOT / "sweep.py", ROOT / "conf.py", *(ROOT / "sweeps").rglob("*.py"), *(ROOT / "trainers").rglob("*.py")]
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


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_words(file: Path) -> None:
    tree = ast.parse(file.read_text())
    wrong = [f"line {line}: name what {name!r} holds" for line, name in names(tree) if name.strip("_") in VAGUE]
    for line, text in texts(tree):
        if " " in text.strip() and (words := BANNED.intersection(re.findall(r"\w+", text.lower()))):
            wrong.append(f"line {line}: put the message in other words: {', '.join(words)}")
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(function) or "Return").split()[0].rstrip(".,:")
            if first not in VERBS:
                wrong.append(f"line {function.lineno}: begin with an imperative verb of words.toml, not {first!r}")
    assert not wrong, "\n".join(wrong)
