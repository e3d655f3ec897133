"""Each case gives its jobs under our sweeper and launcher what Hydra's BasicSweeper and BasicLauncher give them."""

import re
from pathlib import Path

import pytest

from tests.command_lines import ROOT
from tests.hydra.case_files import Case, read_cases
from tests.hydra.differences import DIFFERENCES, compare
from tests.hydra.observing import HYDRA, OURS, observe

_CASES = read_cases()
_PAGE = (ROOT / "docs" / "reference" / "coming_from.md").read_text()


def _params() -> list[object]:
    return [pytest.param(case, id=case.name, marks=[] if case.is_quick else [pytest.mark.long]) for case in _CASES]


@pytest.mark.parametrize("case", _params())
def test_jobs_get_what_hydra_gives_them(case: Case, tmp_path: Path) -> None:
    hydra = observe(case, tmp_path / "hydra" / "app", HYDRA)
    assert (hydra.done.code != 0) == case.fails, hydra.done.said
    ours = observe(case, tmp_path / "ours" / "app", OURS)
    if hydra.is_refused:
        assert ours.is_refused, ours.done.said
        assert "Traceback" not in ours.done.said
    elif lines := compare(case, hydra, ours):
        pytest.fail("\n".join([*lines, "", ours.done.said]), pytrace=False)


def test_names_of_cases() -> None:
    names = [case.name for case in _CASES]
    assert len({*names}) == len(names)


def test_each_difference_is_a_row_of_the_page() -> None:
    section = _PAGE.partition("## Hydra's own sweeper and launcher")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    assert rows == list(dict.fromkeys(difference.row for difference in DIFFERENCES))
    used = {row for case in _CASES for row in case.options.get("differs", [])}
    assert used == {difference.row for difference in DIFFERENCES if not difference.everywhere}
