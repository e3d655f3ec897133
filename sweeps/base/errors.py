"""Errors that a user can correct, outages that a user has to wait for, and the exit codes of
commands."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended, as docs/reference/exit_codes.md lists it."""

    FINISHED = 0
    FAILED = 1
    REFUSED = 2
    NOT_FINISHED = 3
    INTERRUPTED = 130


class UserError(Exception):
    """A mistake of the user. The text names the problem, the allowed values, and what to type
    instead."""


class Infeasible(UserError):
    """A valid point that cannot run here. The study continues without the point.

    The check of an app raises any error with a true attribute `infeasible`.
    """


class Outage(str):
    """A note during an outage; its words may change meanwhile. It is shown once, and `over` once
    after the outage."""

    over: str

    def __new__(cls, text: str, over: str) -> "Outage":
        note = super().__new__(cls, text)
        note.over = over
        return note


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Show the warnings that -W error would raise, because one in a library must not end a
    study."""
    with warnings.catch_warnings():
        shown = [entry for entry in warnings.filters if entry[0] != "error"]
        warnings.resetwarnings()  # because this tells Python that the filters change
        warnings.filters[:] = shown  # type: ignore[index]
        yield
