"""Time that a test moves on by itself."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.study.fake_launcher import Clock, Study, fake_time

MakeStudy = Callable[..., Study]


@pytest.fixture
def clock() -> Iterator[Clock]:
    with fake_time() as clock:
        yield clock


@pytest.fixture
def make_study(tmp_path: Path, clock: Clock) -> MakeStudy:
    """Return a function that makes a study over override lines, by default over three values."""

    def make(*lines: str, **settings: Any) -> Study:
        return Study(tmp_path, clock, *(lines or ["x=1,2,3"]), **settings)

    return make
