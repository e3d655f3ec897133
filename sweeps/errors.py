"""Errors that a user can correct, and outages that a user has to wait for."""


class UserError(Exception):
    """A mistake of the user. The text names the problem, the allowed values, and what to type instead."""


class Infeasible(UserError):
    """A valid point that cannot run here. The study continues without the point.

    The check of an app raises any error with a true attribute `infeasible`.
    """


class Outage(str):
    """A note during an outage; its words may change meanwhile. It is shown once, and `over` once after the outage."""

    over: str

    def __new__(cls, text: str, over: str) -> "Outage":
        note = super().__new__(cls, text)
        note.over = over
        return note
