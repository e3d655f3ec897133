"""Studies with a clock of their own, as in tests/study."""

from tests.study.conftest import clock, make_study

__all__ = ["clock", "make_study"]
