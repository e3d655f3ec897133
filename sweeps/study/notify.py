"""Tells a person that a study has ended or stopped: by a command or a webhook of theirs. See docs/notify.md.

The address of a webhook is a secret: who has it may write there. So it is in no file and in no list of arguments.
"""

import json
import re
import shutil
import subprocess
import tempfile
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from omegaconf import DictConfig, OmegaConf

from sweeps.errors import UserError

_COMMAND_S, _ANSWER_S = 60.0, 10.0
_SETTING = "hydra.sweeper.notify"
_ASK = f"""Give a command, {_SETTING}='[mail,-s,"{{subject}}",me@example.org]', or {_SETTING}='${{oc.env:WEBHOOK}}'"""


def refuse_address(config: DictConfig) -> Any:
    """The setting as it was typed. Raises UserError if that shows the address of a webhook."""
    raw: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=False)
    if re.search(r"https?://", str(raw.get("notify"))):
        raise UserError(
            f"{_SETTING}: whoever reads the address of a webhook may write there, and a command line can be read\n"
            f"Put it into the environment, as WEBHOOK=..., and type {_SETTING}='${{oc.env:WEBHOOK}}'"
        )
    return raw.get("notify")


def check(config: DictConfig) -> None:
    """Raises UserError, before anything has started: nobody could be told so, or everybody could read the address."""
    typed = refuse_address(config)
    how = None if typed is None else config.hydra.sweeper.notify
    if how is None:
        return
    if isinstance(how, str):
        parts = urlsplit(how)
        if parts.scheme not in ("http", "https"):
            raise UserError(
                f"{_SETTING}={typed} is no address of a webhook (https://...), and no list of words\n{_ASK}"
            )
        if not parts.hostname or "@" in parts.netloc or any(char.isspace() for char in how):
            raise UserError(f"{_SETTING}={typed} is no address that can be used: https://host/path, without a user")
        return
    if not OmegaConf.is_list(how) or not how or any(OmegaConf.is_config(word) for word in how):
        raise UserError(f"{_SETTING}={typed} is no list of words\n{_ASK}")
    if shutil.which(str(how[0])) is None:
        raise UserError(
            f"{_SETTING}: there is no command {how[0]} here\nChoose one that is, as `command -v mail` tells"
        )


def tell(how: str | list[object], subject: str, text: str) -> str:
    """Run the command, whose words may hold {subject}, with the text as its input; or post {"text": ...} to the
    webhook. Returns what went wrong, in a line.
    """
    subject = " ".join(subject.split())
    return (
        _post(how, f"{subject}\n{text}") if isinstance(how, str) else _run([str(word) for word in how], subject, text)
    )


def _run(words: list[str], subject: str, text: str) -> str:
    said = f"{_SETTING}: {words[0]}"
    with tempfile.TemporaryFile() as errors:  # a pipe would wait for what the command leaves behind
        command = [words[0], *(word.replace("{subject}", subject) for word in words[1:])]
        try:
            done = subprocess.run(
                command,
                input=text.encode(errors="backslashreplace"),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=_COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{said} was ended after {_COMMAND_S:g} s"
        except OSError as error:
            return f"{said} cannot be run: {error.strerror}"
        except ValueError as error:  # a word that no command line can hold
            return f"{said} cannot be run: {error}"
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    if not done.returncode:
        return ""
    return f"{said} ended with exit code {done.returncode}{': ' if lines else ''}{''.join(lines[-1:])}"


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """It would lose the text, and tell another host the address."""


def _post(url: str, text: str) -> str:
    said = f"{_SETTING}: the webhook at {urlsplit(url).hostname}"
    body, headers = json.dumps({"text": text}).encode(), {"Content-Type": "application/json"}
    try:
        with build_opener(_NoRedirect).open(Request(url, body, headers), timeout=_ANSWER_S):  # noqa: S310 - checked
            return ""
    except HTTPError as error:
        return f"{said} answered {error.code} {error.reason}"
    except URLError as error:
        return f"{said} does not answer: {error.reason}"
    except (OSError, HTTPException, ValueError) as error:  # whose words may hold the address
        return f"{said} does not answer: {type(error).__name__}"
