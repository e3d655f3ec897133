"""Notifies a person that a study has ended or stopped: by a command or a webhook. See
docs/how_to/notify.md.

Whoever knows the address of a webhook may post to it. So the address is in no file and in no list
of arguments.
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

from sweeps.base.errors import UserError

_COMMAND_S = 60.0
_ANSWER_S = 10.0
_SETTING = "hydra.sweeper.notify"
_COMMAND = f"{_SETTING}='[mail,-s,\"{{subject}}\",me@example.org]'"
_EXAMPLES = f"Use a command, {_COMMAND}, or {_SETTING}='${{oc.env:WEBHOOK}}'"


def refuse_address(config: DictConfig) -> Any:
    """Return the setting as it was typed. Raises UserError if the text contains the address of a
    webhook."""
    sweeper: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=False)
    if re.search(r"https?://", str(sweeper.get("notify"))):
        raise UserError(
            f"{_SETTING}: the address of a webhook is a secret, and other users can read a command"
            " line.\nPut the address into the environment, as WEBHOOK=..., and type"
            f" {_SETTING}='${{oc.env:WEBHOOK}}'"
        )
    return sweeper.get("notify")


def check(config: DictConfig) -> None:
    """Raise UserError if the setting is no command and no webhook, or the command does not
    exist."""
    typed = refuse_address(config)
    target = None if typed is None else config.hydra.sweeper.notify
    if target is None:
        return
    if isinstance(target, str):
        _check_address(target, typed)
        return
    is_list = OmegaConf.is_list(target) and len(target) > 0
    if not is_list or any(OmegaConf.is_config(word) for word in target):
        raise UserError(f"{_SETTING}={typed}: not a list of words.\n{_EXAMPLES}")
    if shutil.which(str(target[0])) is None:
        raise UserError(
            f"{_SETTING}: the command {target[0]} does not exist here.\nUse a command that `command"
            " -v` finds"
        )


def _check_address(address: str, typed: object) -> None:
    """Raise UserError if the setting, as typed, is no address of a webhook."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https"):
        raise UserError(
            f"{_SETTING}={typed}: neither an address of a webhook (https://...) nor a list of"
            f" words.\n{_EXAMPLES}"
        )
    if not parts.hostname or "@" in parts.netloc or any(char.isspace() for char in address):
        raise UserError(
            f"{_SETTING}={typed}: not a usable address.\nUse the form https://host/path,"
            " without a user"
        )


def send(target: str | list[object], subject: str, text: str) -> str:
    """Send a text, and return what went wrong in a line; empty if nothing did.

    A webhook gets {"text": ...}. A command gets the text as its input, with {subject} replaced in
    its words.
    """
    subject = " ".join(subject.split())
    if isinstance(target, str):
        return _post(target, f"{subject}\n{text}")
    return _run([str(word) for word in target], subject, text)


def _run(words: list[str], subject: str, text: str) -> str:
    name = f"{_SETTING}: {words[0]}"
    # no pipe, because that would wait for processes of the command
    with tempfile.TemporaryFile() as errors:
        command = [words[0], *(word.replace("{subject}", subject) for word in words[1:])]
        try:
            process = subprocess.run(
                command,
                input=text.encode(errors="backslashreplace"),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=_COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{name} was ended after {_COMMAND_S:g} s"
        except OSError as error:
            return f"{name} cannot be run: {error.strerror}"
        except ValueError as error:  # because a word may hold a null byte
            return f"{name} cannot be run: {error}"
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    if not process.returncode:
        return ""
    problem = f"{name} ended with exit code {process.returncode}"
    return f"{problem}: {lines[-1]}" if lines else problem


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Return no request, because a redirect would drop the text and show the address to another
        host."""


def _post(url: str, text: str) -> str:
    name = f"{_SETTING}: the webhook at {urlsplit(url).hostname}"
    body = json.dumps({"text": text}).encode()
    headers = {"Content-Type": "application/json"}
    try:
        request = Request(url, body, headers)  # noqa: S310 - checked
        with build_opener(_NoRedirect).open(request, timeout=_ANSWER_S):
            return ""
    except HTTPError as error:
        return f"{name} answered {error.code} {error.reason}"
    except URLError as error:
        return f"{name} does not answer: {error.reason}"
    except (OSError, HTTPException, ValueError) as error:
        # the type alone, because the message may hold the address
        return f"{name} does not answer: {type(error).__name__}"
