"""The files and commands of docs/how_to/own_code.md, each section in a folder of its own."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.command_lines import ROOT, SWEEP, run

PAGE = (ROOT / "docs" / "how_to" / "own_code.md").read_text()
SECTIONS = {section.splitlines()[0]: section for section in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]}
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
            lines += content.splitlines()
    lines += [f"python {SWEEP} {line}" for line in re.findall(r"`python sweep.py (.*?)`", section)]
    assert lines
    for line in lines:
        done = run(shlex.split(line)[1:], tmp_path, {"PYTHONPATH": str(tmp_path)})
        assert done.code == 0, done.said
