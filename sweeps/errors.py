"""What a user can put right."""


class UserError(Exception):
    """A mistake in what was asked for. The text says what was wrong, what is allowed, and what to type instead."""


class Infeasible(UserError):
    """Nothing is wrong with what was asked for, but this point of it cannot run here: a study goes on without it. An
    app's own check says so with an error that has a true attribute `infeasible`.
    """
