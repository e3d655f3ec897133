"""The app of docs/reference/coming_from.md runs with every command of that page."""

import re
import shlex
from pathlib import Path

import pytest

from tests.command_lines import ROOT, run

PAGE = (ROOT / "docs" / "reference" / "coming_from.md").read_text().replace("\\\n", "")
COMMANDS = re.findall(r"^python (main\.py .*)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("app")
    for name, content in re.findall(r"^```\w+\n# (main\.py|config\.yaml)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(content)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_command_completes_its_trials(command: str, app: Path, tmp_path: Path) -> None:
    words = shlex.split(command)
    if "hydra/launcher=slurm" in words:
        words.append("hydra.sweeper.preview=true")
    script, *rest = words
    done = run([str(app / script), *rest], tmp_path)
    if "SLURM would refuse" in done.said:  # because this cluster has no such partition
        assert "20 trials, all composed" in done.out
        return
    assert done.code == 0, done.said
    assert re.search(r"(9|20) trials, all composed|20 trials|(9|20) of (9|20)|completed", done.out), done.said


def test_each_tool_has_a_command() -> None:
    assert len(COMMANDS) == PAGE.count("\n## ") + 1
