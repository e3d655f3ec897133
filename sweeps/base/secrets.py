"""Secrets, which must stay in the environment: passwords of addresses, and values of keys such as
api_key."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.base.errors import UserError

# The value of ${...} was not typed. A password may contain anything but blanks, and so extends to
# the last @. A scheme begins at a word's start, because to try each letter of a long word takes the
# square of its length.
_PASSWORD = re.compile(
    r"""(?P<user>(?<![\w.+-])[\w.+-]+://(?:\$\{[^}]*\}|[^/:@$\s"'])*:)(?!\$\{)[^\s"']+@"""
    r"""|(?P<query>[?&](?:\w*password|passwd|pwd)=)(?!\$\{)[^\s"'&]+"""
    r"""|(?P<token>(?<![\w.+-])(?:\w+\+)?https?://)(?!\$\{)[^\s"'/:@$]+@""",
    re.IGNORECASE,
)
# A name begins after a sign or, as in clientSecret, with a capital letter. Tokens of texts
# (pad_token) are no secrets.
_NAME = (
    r"(?-i:(?<![a-zA-Z])|(?<=[a-z])(?=[A-Z]))"
    r"(?:password|passwd|pwd|api_?key|(?:access|private|secret)_?key|secret"
    r"|(?<!_)token|(?:api|auth|access|bearer|github|gitlab|hf|refresh|session|tracking)_token)"
)
_KEY = rf"(?<![\w.+-])[\w.+-]*{_NAME}"
# The value of ${...} is in the environment.
_HARMLESS = r"""(?:\$|\*\*\*|(?:null|none|true|false)(?:["'\s,}\]]|$))"""
# Small numbers, as in token=1,2 or token=interval(0.1, 1), are a hyperparameter.
_NUMBER = r"(?:\w+\()*[-+]?(?:\d{0,5}\.\d+|\d{1,5})(?:e[-+]?\d+)?(?![\w.])"
_COUNTED = rf"(?:(?<=token=)|(?<=token:)|(?<=token: )){_NUMBER}"
_VALUE = rf"""(?!["']?{_HARMLESS})(?!{_COUNTED})(?!""|'')[^\s,}}\]]"""
_TYPED = re.compile(rf"(?P<key>{_KEY}=){_VALUE}", re.IGNORECASE)
# as in auth={token:x}
_IN_DICT = re.compile(
    rf"""^[^\s=]+=\[?\{{.*?(?P<key>{_KEY}["']?[ ]*:[ ]*){_VALUE}""", re.IGNORECASE
)
_SECRET_KEY = re.compile(_KEY, re.IGNORECASE)
_YAML_LINE = re.compile(r"""(?P<start>[ -]*["']?(?P<key>[\w.+-]+)["']?: +)(?P<value>\S.*)""")
_VARIABLE = re.compile(r"(?:PASSWORD|PASSWD|SECRET|TOKEN|KEY)$", re.IGNORECASE)
# letters of a variable's value that is masked, because shorter values are parts of common words
_SHORTEST = 6


def has_password(text: str) -> bool:
    return _PASSWORD.search(text) is not None


def without_password(text: str) -> str:
    """Return the text with asterisks in place of the passwords of its addresses."""
    return _PASSWORD.sub(_mask_password, text)


def _mask_password(match: re.Match[str]) -> str:
    if match["query"]:
        return f"{match['query']}***"
    return f"{match['user'] or match['token']}***@"


def without_secrets(text: str) -> str:
    """Return the text without passwords, and without the values of variables such as HF_TOKEN in
    the environment."""
    values = {
        value
        for name, value in os.environ.items()
        if _VARIABLE.search(name) and len(value) >= _SHORTEST
    }
    for value in sorted(values, key=len, reverse=True):  # because a value may begin with another
        text = text.replace(value, "***")
    return without_password(text)


def mask_value(key: str, value: Any) -> Any:
    """Return the value of a key for a file or a page, without secrets. Keys of a dict may have any
    depth."""
    if isinstance(value, Mapping):
        return {name: mask_value(str(name), entry) for name, entry in value.items()}
    harmless = f"{_HARMLESS}|{_NUMBER}" if key.lower().endswith("token") else _HARMLESS
    if _SECRET_KEY.fullmatch(key) and not (
        value is None or re.match(harmless, str(value), re.IGNORECASE)
    ):
        return "***"
    if isinstance(value, list):
        return [mask_value("", entry) for entry in value]
    return without_password(value) if isinstance(value, str) else value


def mask_lines(text: str) -> str:
    """Return the lines of a YAML file, which may be damaged, without secrets."""
    return "\n".join(map(_mask_line, text.splitlines()))


def _mask_line(line: str) -> str:
    match = _YAML_LINE.fullmatch(line)
    if match is None:
        return without_password(line)
    return f"{match['start']}{mask_value(match['key'], match['value'])}"


def refuse_typed(*typed: object) -> None:
    """Raise UserError if command lines or unresolved configs contain a password.

    Other users could read the password in the study's files and in every list of processes.
    """
    for node in typed:
        if isinstance(node, str):
            _refuse(node)
        elif isinstance(node, Mapping | Sequence):
            refuse_typed(*(node.values() if isinstance(node, Mapping) else node))


def _refuse(text: str) -> None:
    if match := _PASSWORD.search(text):
        raise UserError(
            f"{without_password(match[0])}: a password in a command line or in a config can be read"
            " by others\nPut the whole address into the environment: MLFLOW_TRACKING_URI=..., or"
            " DB=... and then tracking.uri='${oc.env:DB}' or"
            " hydra.sweeper.storage='${oc.env:DB}'"
        )
    if match := _TYPED.search(text) or _IN_DICT.search(text):
        key = match["key"].rstrip("=: \"'")
        mark = match["key"].rstrip()[-1]
        variable = key.rpartition(".")[2].lstrip("+").upper()
        raise UserError(
            f"{key}=***: a secret in a command line or in a config can be read by others.\nPut the"
            f" value into the environment, as {variable}=..., and use:"
            f" '{key}{mark}${{oc.env:{variable}}}'"
        )
