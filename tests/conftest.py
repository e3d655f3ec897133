"""Puts the repository on sys.path, as `python sweep.py` does: conf and trainers are not installed. Shares the tests
among processes (pytest-xdist).
"""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE.parent) not in sys.path:
    sys.path.append(str(HERE.parent))


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in a hook of its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs the tests of a file, or all of SLURM's, which share a cluster. What takes longest begins first:
    SLURM's tests, and those at the top, which start whole sweeps.
    """
    for item in items:
        of_slurm = "slurm" in item.path.parts
        item.add_marker(pytest.mark.xdist_group("slurm" if of_slurm else item.path.stem))
    items.sort(key=lambda item: ("slurm" not in item.path.parts, item.path.parent != HERE))
