"""Passwords in addresses such as postgresql://me:secret@host/db: they stay in the environment, unshown."""

import json
import re

from sweeps.errors import UserError

# What ${...} stands for was not typed. A password may hold anything but blanks: all up to the last @ counts as one.
# A scheme begins where a word does: to try each letter of a long word would take the square of its length.
_PASSWORD = re.compile(
    r"""(?P<user>(?<![\w.+-])[\w.+-]+://(?:\$\{[^}]*\}|[^/:@$\s"'])*:)(?!\$\{)[^\s"']+@"""
    r"""|(?P<query>[?&](?:\w*password|passwd|pwd)=)(?!\$\{)[^\s"'&]+""",
    re.IGNORECASE,
)


def has_password(text: str) -> bool:
    return _PASSWORD.search(text) is not None


def without_password(text: str) -> str:
    """The text as it may be shown and written down."""
    return _PASSWORD.sub(lambda found: f"{found['user']}***@" if found["user"] else f"{found['query']}***", text)


def refuse_typed(*typed: object) -> None:
    """Check command lines, or configs as they were written: OmegaConf.to_container(config, resolve=False).

    Raises:
        UserError: it holds a password; the study's files and every list of processes would show it to others.
    """
    if found := _PASSWORD.search(json.dumps(typed, default=str)):
        raise UserError(
            f"{without_password(found[0])}: a password in a command line or in a config can be read by others\n"
            "Put the whole address into the environment: MLFLOW_TRACKING_URI=..., or DB=... and then "
            "tracking.uri='${oc.env:DB}' or hydra.sweeper.storage='${oc.env:DB}'"
        )
