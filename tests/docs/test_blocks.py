"""Each block of README and docs is run, or is read, or has `<!-- not run: reason -->` before it."""

import csv
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.command_lines import ROOT
from tests.docs.pages import PAGES, Block, blocks, is_ours

RUN = {
    "own_code.md": "docs/test_own_code.py",
    "frameworks.md": "docs/test_own_code.py",
    "own_trainer.md": "docs/test_own_code.py",
    "coming_from.md": "docs/test_coming_from.py",
    "CONTRIBUTING.md": "choose/test_example.py",
    "own_ranks.md": "test_torch_ranks.py",
    "first_search.md": "docs/test_start.py",
    "own_script.md": "docs/test_start.py",
    "first_slurm_job.md": "docs/test_start.py",
}
"""The tests that run the Python of a page, and of the pages in `WHOLE` all."""
TUTORIALS = ("first_search.md", "own_script.md", "first_slurm_job.md")
WHOLE = ("own_code.md", "frameworks.md", "own_trainer.md", "coming_from.md", *TUTORIALS)
SHELL = ("export ", "cd ", ". ", "#")
"""Lines that prepare a command of sweepyard; test_documented_commands.py reads the commands."""


def is_run_or_read(page: str, block: Block) -> bool:
    if block.why_not or page in WHOLE:
        return True
    match block.language:
        case "":
            return all(is_ours(line) or line.startswith(SHELL) for line in block.lines() if line.strip())
        case "yaml":
            return isinstance(yaml.safe_load(block.content), dict)
        case "csv":
            return len({len(row) for row in csv.reader(block.content.splitlines())}) == 1
        case "python":
            return page in RUN
        case _:
            return block.language == "text"  # what a program printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_a_page_are_run_or_read_or_have_a_reason(page: Path) -> None:
    assert [block for block in blocks(page) if not is_run_or_read(page.name, block)] == []


@pytest.mark.parametrize("page", RUN)
def test_page_has_its_test(page: str) -> None:
    assert page in (ROOT / "tests" / RUN[page]).read_text()


def test_words_of_the_cheat_sheet_are_quoted_for_a_shell() -> None:
    words = re.findall(r"`([^`]+)`", (ROOT / "docs" / "reference" / "cheat_sheet.md").read_text())
    assert len(words) > 40
    subprocess.run(["bash", "-n"], input="\n".join(f"echo {word}" for word in words), text=True, check=True)


@pytest.mark.parametrize(
    ("block", "good"),
    [
        ("```\npython sweep.py lr=1 \\\n  lr=2\n```\n", True),
        ("```\npython sweep.py lr=1\nrm -r x\n```\n", False),
        ("<!-- not run: it deletes -->\n```\nrm -r x\n```\n", True),
        ("```yaml\na: [1\n```\n", None),
        ("```python\nimport torch\n```\n", False),
    ],
)
def test_block_that_no_test_runs_is_refused(block: str, good: bool | None, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```text\nx\n```\n{block}")
    _, read = blocks(page)
    if good is None:
        with pytest.raises(yaml.YAMLError):
            is_run_or_read(page.name, read)
    else:
        assert is_run_or_read(page.name, read) == good
