"""The commands in README and docs: each is understood, as a preview or by its parser."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from sweeps.__main__ import app
from tests.command_lines import SWEEP, refuse
from tests.docs.pages import PAGES, commands

LACKING = re.compile(
    r"this machine has no GPUs|dataset\.path=\S+ does not exist|there is no such file|the command mail does not exist|"
    r"variable 'WEBHOOK' not found|my_package\.\S+ cannot be imported|must be downloaded once|"
    r"SLURM would refuse|there is no such earlier study"
)
"""What a reader has and this machine lacks, in the words of the refusal: the rest of the command was understood."""

pytestmark = pytest.mark.long
COMMANDS = {shlex.join(words): words for page in PAGES for words in commands(page)}
"""A command that several pages show is checked once."""
SWEEPS = [command for command, words in COMMANDS.items() if words[0] == "python"]
VERBS = [command for command in COMMANDS if re.match("sweepyard [a-z]", command)]  # not --version


def test_pages_have_commands() -> None:
    assert len(SWEEPS) > 40 and len(VERBS) > 20


@pytest.mark.parametrize("command", SWEEPS)
def test_sweep_of_the_docs_is_accepted(command: str, tmp_path: Path) -> None:
    words = COMMANDS[command][2:]
    checks = ["hydra.sweeper.preview=true"] if "-m" in words else ["--cfg", "job"]
    checks = [] if "+find=largest_batch" in words else checks  # because it runs several trials without -m
    done = refuse([SWEEP, *("lr=0.1,0.01" if word == "..." else word for word in words), *checks], tmp_path)
    assert done.code == 0 or LACKING.search(done.said), done.said


@pytest.mark.parametrize("command", VERBS)
def test_verb_of_the_docs_is_parsed(command: str) -> None:
    _, verb, *words = COMMANDS[command]
    group = typer.main.get_command(app)
    group.commands[verb].make_context(verb, words)
