"""The files and commands of own_code.md, frameworks.md and own_trainer.md, each section in a folder of its own."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.command_lines import ROOT, SWEEP, run

PAGES = [(ROOT / "docs" / "how_to" / f"{name}.md").read_text() for name in ("own_code", "frameworks", "own_trainer")]
SECTIONS = {part.splitlines()[0]: part for page in PAGES for part in re.split(r"^##+ ", page, flags=re.MULTILINE)}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXECUTED = [name for name, section in SECTIONS.items() if "```" in section]

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", EXECUTED)
def test_section_of_the_page_runs(name: str, tmp_path: Path) -> None:
    section = SECTIONS[name]
    for framework in re.findall(r"sweeps\.integrations\.(\w+) import", section):
        if find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed; .ci/run does so in a later step")
    lines = []
    for language, content in BLOCK.findall(section):
        if language:
            file = tmp_path / content.splitlines()[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)
        else:
            lines += content.replace("\\\n", " ").splitlines()
    lines += [f"python {SWEEP} {line}" for line in re.findall(r"`python sweep.py (.*?)`", section)]
    assert lines
    for line in lines:
        done = run(shlex.split(line)[1:], tmp_path, {"PYTHONPATH": str(tmp_path)})
        assert done.code == 0, done.said
