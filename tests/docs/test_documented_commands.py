"""The commands in README and docs: each is understood, as a preview or by its parser."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from sweeps.__main__ import app
from tests.command_lines import ROOT, SWEEP, refuse

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)

LACKING = re.compile(
    r"this machine has no GPUs|dataset\.path=\S+ does not exist|there is no such file|the command mail does not exist|"
    r"variable 'WEBHOOK' not found|my_package\.\S+ cannot be imported|must be downloaded once|"
    r"SLURM would refuse"
)
"""What a reader has and this machine lacks, in the words of the refusal: the rest of the command was understood."""


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command that a block of the page has, without comments."""
    for block in BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            for command in line.removeprefix("$ ").split(" && "):
                if command.startswith(("python sweep.py", "python -m sweeps")):
                    yield shlex.split(command, comments=True)


pytestmark = pytest.mark.long
COMMANDS = {(page.name, shlex.join(words)): words for page in PAGES for words in commands(page)}
SWEEPS = {name: words[2:] for name, words in COMMANDS.items() if words[1] == "sweep.py"}
VERBS = {name: words[3:] for name, words in COMMANDS.items() if words[1] == "-m"}


def test_pages_have_commands() -> None:
    assert len(SWEEPS) > 40 and len(VERBS) > 20


@pytest.mark.parametrize("name", SWEEPS, ids=" ".join)
def test_sweep_of_the_docs_is_accepted(name: tuple[str, str], tmp_path: Path) -> None:
    words = SWEEPS[name]
    checks = ["hydra.sweeper.preview=true"] if "-m" in words else ["--cfg", "job"]
    checks = [] if "+find=largest_batch" in words else checks  # because it runs several trials without -m
    done = refuse([SWEEP, *(word for word in words if word != "..."), *checks], tmp_path)
    assert done.code == 0 or LACKING.search(done.said), done.said


@pytest.mark.parametrize("name", VERBS, ids=" ".join)
def test_verb_of_the_docs_is_parsed(name: tuple[str, str]) -> None:
    verb, *words = VERBS[name]
    group = typer.main.get_command(app)
    group.commands[verb].make_context(verb, words)
