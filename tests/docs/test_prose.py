"""How README and docs read: the length of a sentence, and the width of a code block."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_lines import ROOT
from tests.docs.pages import PAGES

LONGEST = 25  # words of a sentence
WIDEST = 78  # columns of code that a page shows whole at 1400 pixels
FENCED = re.compile(r"^```[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# comments, rows of tables, and directives for Python's docstrings with their options
UNREAD = re.compile(r"<!--.*?-->|^ *\|[^\n]*|^:::[^\n]*(?:\n    [^\n]*)*", re.MULTILINE | re.DOTALL)
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
CODE_OR_LINK = re.compile(r"!\[[^\]]*\]\([^)]*\)|(`)[^`]*`|\[([^\]]*)\]\([^)]*\)")
END = re.compile(r"[.?!][*\"')]*\s+(?=[\W_]*(?:[A-Z0-9]|sweepyard))")
SETUP = "python3 -m venv "
"""How the two lines begin that set README's reader up, each to be typed whole."""


def sentences(page: Path) -> Iterator[str]:
    """Yield the sentences outside of code, tables and headings; what stands in backticks is one word."""
    text = UNREAD.sub("", FENCED.sub("", page.read_text()))
    for paragraph in PARAGRAPH.split(text):
        if not paragraph.lstrip().startswith(("#", "<")):
            words = CODE_OR_LINK.sub(lambda match: "CODE" if match[1] else match[2] or "", paragraph)
            yield from END.split(" ".join(words.split()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentence_has_at_most_25_words(page: Path) -> None:
    assert [line for line in sentences(page) if len(re.findall(r"\S*\w\S*", line)) > LONGEST] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_is_not_wider_than_its_box(page: Path) -> None:
    lines = [line for code in FENCED.findall(page.read_text()) for line in code.splitlines()]
    assert [line for line in lines if len(line) > WIDEST and not line.startswith(SETUP)] == []
