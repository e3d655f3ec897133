"""The fixtures of tests/study, for tests of the record."""

from tests.study.conftest import clock, make_study

__all__ = ["clock", "make_study"]
