"""Mistakes in the words of `sweepyard`, in two lines: the problem, and what to type."""

import difflib
import re
import shlex
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from sweeps.commands import MULTIRUN
from sweeps.record.place import newest_first, suggest_study

UsageError: Any = typer.BadParameter.__mro__[1]
"""The base of all errors of this kind, which has no public name."""
_COMMANDS = {
    "delete": "rm remove del drop clean",
    "list": "ls studies all",
    "status": "show info state progress top",
    "resume": "start run continue restart retry",
    "stop": "kill cancel abort end",
    "ui": "dashboard mlflow view open serve",
    "report": "page plot plots figures figure table export csv html",
    "bundle": "pack zip share",
    "reproduce": "rerun replay",
}
"""Words that people type for our commands."""
_ENDING = ("archive", "delete", "prune", "stop")
"""Commands that end or remove a study, of which no study is advised."""
_TRIAL = "--trial"
_KINDS = {"integer": ("a whole number", "2"), "number": ("a number", "0.9")}


def explain_usage(error: Any) -> str:
    """Return the problem of an error of typer, and what to type."""
    line = error.ctx.command_path if error.ctx else "sweepyard"
    message = str(error.message)
    advice = f"See: {line} --help"
    match type(error).__name__:
        case "MissingParameter":
            return _explain_missing(error, line)
        case "NoSuchOption":
            problem = f"{error.option_name}: there is no such option."
            near = difflib.get_close_matches(error.option_name, error.possibilities or [], 1)
            advice = f"Did you mean {near[0]}?" if near else advice
        case "BadOptionUsage":
            problem = f"{error.option_name}: its value is missing."
        case "BadParameter" if getattr(error, "param", None):
            problem, advice = _explain_value(error.param, message, advice)
        case _:
            return _explain_words(message, error.ctx, line)
    return f"{problem}\n{advice}"


def _explain_missing(error: Any, line: str) -> str:
    """Return what is missing; of a study's name, the line with the newest study."""
    command = error.ctx.info_name
    param = error.param
    if param.name not in ("name", "names") or command == "init":
        word = param.metavar or param.opts[0]
        advice = _advise_numbers(_after(command), line) if word == _TRIAL else ""
        return f"{command}: {word} is missing.\n{advice or f'See: {line} --help'}"
    root = Path(error.ctx.params.get("root") or MULTIRUN)
    needed = 2 if command == "compare" else 1
    newest = newest_first(root)[:needed]
    advice = f"For the newest, type: {line} {shlex.join([*newest, *_after(command)])}"
    if len(newest) < needed or command in _ENDING:
        advice = suggest_study("", root)
    return f"{command}: the name of a study is missing.\n{advice}"


def _explain_words(message: str, context: Any, line: str) -> str:
    """Return that there is no such command, or that it takes no such words, by typer's message."""
    if "No such command" in message:
        return _explain_command(message, context)
    extra = re.search(r"unexpected extra argument\S* \((.*)\)", message, re.DOTALL)
    advice = _advise_extra(context, extra[1].split(" "), line) if extra else ""
    problem = f"{extra[1]}: {line} takes no such word." if extra else message
    return f"{problem}\n{advice or f'See: {line} --help'}"


def _advise_extra(context: Any, extra: Sequence[str], line: str) -> str:
    """Return the line that was likely meant by words that a command does not take; empty if none
    is."""
    command = context.info_name
    words = _after(command)
    if command == "list" and len(words) == 1:
        return f"Type: {shlex.join([*line.split()[:-1], 'status', *words])}"
    if command == "exclude":
        return _advise_condition(words, extra, line)
    options = [param for param in context.command.params if _TRIAL in param.opts]
    takes_words = options and (options[0].multiple or len(extra) == 1)
    return _advise_numbers(words, line) if takes_words else ""


def _advise_condition(words: Sequence[str], extra: Sequence[str], line: str) -> str:
    """Return the line of `exclude` with its condition in one word; empty if options divide it."""
    for first in range(1, len(words)):
        end = first + 1 + len(extra)
        if words[first + 1 : end] == [*extra]:
            condition = " ".join(words[first:end])
            return f"Type: {line} {shlex.join([*words[:first], condition, *words[end:]])}"
    return ""


def _advise_numbers(words: Sequence[str], line: str) -> str:
    """Return the line with `--trial` before each number of a trial; empty without a number."""
    typed: list[str] = []
    numbers: list[str] = []
    for before, word in pairwise(["", *words]):
        if word.isdecimal() and (before == _TRIAL or not before.startswith("-")):
            numbers += [_TRIAL, word]
        elif word != _TRIAL:
            typed.append(word)
    return f"Type: {line} {shlex.join([*typed, *numbers])}" if numbers else ""


def _after(command: str) -> list[str]:
    """Return the words that were typed after a command."""
    words = sys.argv[1:]
    return words[words.index(command) + 1 :] if command in words else []


def _explain_value(param: Any, message: str, see: str) -> tuple[str, str]:
    """Return that the value of an option is of another kind, and an example."""
    option = param.opts[0]
    value = ""
    for word, after in pairwise([*sys.argv, ""]):
        if word == option or word.startswith(f"{option}="):
            value = after if word == option else word.partition("=")[2]
    typed = f"{option} {value}".rstrip()
    if param.multiple and re.fullmatch(r"\d+(,\d+)+", value):
        each = " ".join(f"{option} {number}" for number in value.split(","))
        return f"{typed}: it must be a whole number.", f"Type: {each}"
    for name, (words, usual) in _KINDS.items():
        if f"valid {name}" in message:
            example = "5000" if option == "--port" else usual
            return f"{typed}: it must be {words}.", f"Type, for example: {option} {example}"
    return f"{typed}: {message.replace('Input should be', 'it must be')}", see


def _explain_command(message: str, context: Any) -> str:
    """Return that there is no such command, and the command that was likely meant."""
    typed = message.split("'")[1]
    commands = [*context.command.commands]
    others = [command for command, words in _COMMANDS.items() if typed in words.split()]
    problem = f"{typed}: there is no such command."
    if typed == "help":
        topic = [word for word in _after(typed)[:1] if word in commands]
        return f"{problem}\nType: {shlex.join([context.command_path, *topic, '--help'])}"
    if near := [*others, *difflib.get_close_matches(typed, commands, 1)]:
        line = shlex.join([near[0], *_after(typed)])
        return f"{problem}\nType: {context.command_path} {line}"
    return f"{problem}\nChoose one of: {', '.join(commands)}"
