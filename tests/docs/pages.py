"""The pages of the documentation, their fenced blocks, and the commands in these."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.command_lines import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: why no test runs it (empty if a test does), its language, and its content."""

    why_not: str
    language: str
    content: str

    def lines(self) -> list[str]:
        """Return the command lines, without continuations and prompts, each up to its &&."""
        whole = self.content.replace("\\\n", " ").splitlines()
        return [command for line in whole for command in line.removeprefix("$ ").split(" && ")]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    return [Block(*match) for match in _BLOCK.findall(page.read_text())]


def is_ours(line: str) -> bool:
    return line.startswith(("python sweep.py", "sweepyard"))


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command of sweepyard in the blocks of the page, without comments."""
    for block in blocks(page):
        if not block.language:
            yield from (shlex.split(line, comments=True) for line in block.lines() if is_ours(line))
