"""Passwords in addresses such as postgresql://me:secret@host/db, which must stay in the environment."""

import json
import re

from sweeps.errors import UserError

# The value of ${...} was not typed. A password may contain anything but blanks, and so extends to the last @.
# A scheme begins at a word's start, because to try each letter of a long word takes the square of its length.
_PASSWORD = re.compile(
    r"""(?P<user>(?<![\w.+-])[\w.+-]+://(?:\$\{[^}]*\}|[^/:@$\s"'])*:)(?!\$\{)[^\s"']+@"""
    r"""|(?P<query>[?&](?:\w*password|passwd|pwd)=)(?!\$\{)[^\s"'&]+""",
    re.IGNORECASE,
)


def has_password(text: str) -> bool:
    return _PASSWORD.search(text) is not None


def without_password(text: str) -> str:
    """Return the text with asterisks in place of its passwords."""
    return _PASSWORD.sub(lambda match: f"{match['user']}***@" if match["user"] else f"{match['query']}***", text)


def refuse_typed(*typed: object) -> None:
    """Raise UserError if command lines or unresolved configs contain a password.

    Other users could read the password in the study's files and in every list of processes.
    """
    if match := _PASSWORD.search(json.dumps(typed, default=str)):
        raise UserError(
            f"{without_password(match[0])}: a password in a command line or in a config can be read by others\n"
            "Put the whole address into the environment: MLFLOW_TRACKING_URI=..., or DB=... and then "
            "tracking.uri='${oc.env:DB}' or hydra.sweeper.storage='${oc.env:DB}'"
        )
