"""The tutorials of docs/start/, followed in a terminal."""

from pathlib import Path

import pytest

from tests.command_lines import ROOT
from tests.docs.tutorial import follow

pytestmark = pytest.mark.long
START = ROOT / "docs" / "start"


@pytest.mark.parametrize("page", ["first_search.md", "own_script.md"])
def test_tutorial_prints_what_its_page_shows(page: str, tmp_path: Path) -> None:
    follow(START / page, tmp_path)


def test_tutorial_of_slurm_prints_what_its_page_shows(cluster: None, tmp_path: Path) -> None:
    follow(START / "first_slurm_job.md", tmp_path)
