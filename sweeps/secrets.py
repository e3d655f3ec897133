"""Secrets, which must stay in the environment: passwords of addresses, and values of keys such as api_key."""

import json
import re

from sweeps.errors import UserError

# The value of ${...} was not typed. A password may contain anything but blanks, and so extends to the last @.
# A scheme begins at a word's start, because to try each letter of a long word takes the square of its length.
_PASSWORD = re.compile(
    r"""(?P<user>(?<![\w.+-])[\w.+-]+://(?:\$\{[^}]*\}|[^/:@$\s"'])*:)(?!\$\{)[^\s"']+@"""
    r"""|(?P<query>[?&](?:\w*password|passwd|pwd)=)(?!\$\{)[^\s"'&]+"""
    r"""|(?P<token>(?<![\w.+-])https?://)(?!\$\{)[^\s"'/:@$]+@""",
    re.IGNORECASE,
)
_KEY = (
    r"(?P<key>(?<![\w.+-])[\w.+-]*(?<![a-z])"
    r"(?:password|passwd|pwd|api_?key|access_key|secret|secret_key|(?<!_)token|(?:api|auth|access|hf)_token)"
)
# The value of a key as in trainer.api_key=x, "api_key": "x" or api_key: x.
_VALUE = r"""(?!["']?(?:\$\{|\*\*\*|null\b|none\b|true\b|false\b))(?:"[^"]+"|'[^']+'|[^\s"',}\]]+)"""
_TYPED = re.compile(rf"{_KEY}=){_VALUE}", re.IGNORECASE)
_SHOWN = re.compile(rf"""{_KEY}["']?(?:=|:[ ]+)){_VALUE}""", re.IGNORECASE)


def has_password(text: str) -> bool:
    return _PASSWORD.search(text) is not None


def without_password(text: str) -> str:
    """Return the text with asterisks in place of its passwords, and of the values of keys such as api_key."""
    return _SHOWN.sub(r"\g<key>***", _PASSWORD.sub(_mask, text))


def mask_value(key: str, value: str) -> str:
    """Return the value of a key for a file or a page, without secrets."""
    masked = without_password(f"{key}={value}")
    return masked.removeprefix(f"{key}=")


def _mask(match: re.Match[str]) -> str:
    return f"{match['query']}***" if match["query"] else f"{match['user'] or match['token']}***@"


def refuse_typed(*typed: object) -> None:
    """Raise UserError if command lines or unresolved configs contain a password.

    Other users could read the password in the study's files and in every list of processes.
    """
    text = json.dumps(typed, default=str)
    if match := _PASSWORD.search(text):
        raise UserError(
            f"{without_password(match[0])}: a password in a command line or in a config can be read by others\n"
            "Put the whole address into the environment: MLFLOW_TRACKING_URI=..., or DB=... and then "
            "tracking.uri='${oc.env:DB}' or hydra.sweeper.storage='${oc.env:DB}'"
        )
    if match := _TYPED.search(text):
        key = match["key"].rstrip("=")
        variable = key.rpartition(".")[2].lstrip("+").upper()
        raise UserError(
            f"{key}=***: a secret in a command line can be read by others.\n"
            f"Put the value into the environment, as {variable}=..., and type: {key}='${{oc.env:{variable}}}'"
        )
