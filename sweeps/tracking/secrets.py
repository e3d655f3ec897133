"""Where `sweeps.secrets` was."""

from sweeps.secrets import has_password, refuse_typed, without_password

__all__ = ["has_password", "refuse_typed", "without_password"]
