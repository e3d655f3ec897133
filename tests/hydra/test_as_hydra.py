"""Each case gives its jobs under our sweeper and launcher what Hydra's BasicSweeper and BasicLauncher give them."""

from pathlib import Path

import pytest

from tests.hydra.case_files import Case, read_cases
from tests.hydra.differences import compare
from tests.hydra.observing import HYDRA, OURS, observe


def _params() -> list[object]:
    return [
        pytest.param(case, id=case.name, marks=[] if case.is_quick else [pytest.mark.long]) for case in read_cases()
    ]


@pytest.mark.parametrize("case", _params())
def test_jobs_get_what_hydra_gives_them(case: Case, tmp_path: Path) -> None:
    hydra = observe(case, tmp_path / "hydra" / "app", HYDRA)
    assert (hydra.done.code != 0) == case.fails, f"the oracle:\n{hydra.done.said}"
    ours = observe(case, tmp_path / "ours" / "app", OURS)
    if case.fails:
        assert ours.is_refused, ours.done.said
        assert "Traceback" not in ours.done.said
    elif lines := compare(case, hydra, ours):
        pytest.fail("\n".join([*lines, "", ours.done.said]), pytrace=False)
