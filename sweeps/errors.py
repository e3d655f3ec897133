"""What a user can put right."""


class UserError(Exception):
    """A mistake in what was asked for. The text says what was wrong, what is allowed, and what to type instead."""
