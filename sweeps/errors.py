"""What a user can put right, or has to wait for."""


class UserError(Exception):
    """A mistake in what was asked for. The text says what was wrong, what is allowed, and what to type instead."""


class Infeasible(UserError):
    """Nothing is wrong with what was asked for, but this point of it cannot run here: a study goes on without it. An
    app's own check says so with an error that has a true attribute `infeasible`.
    """


class Outage(str):
    """A note that stands while something does not answer, in words that may change meanwhile. A person is told once
    when it begins, and once, with `over`, when it has ended.
    """

    over: str

    def __new__(cls, text: str, over: str) -> "Outage":
        note = super().__new__(cls, text)
        note.over = over
        return note
