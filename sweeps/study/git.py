"""What git knows of a folder. That git is missing, refuses or hangs is no failure: it is told in words."""

import glob
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.tracking.secrets import without_password

_LIMIT_S = 3.0  # for all commands together: they run side by side
_LIMIT_BYTES = 10_000_000
_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")  # they would name another repository
_SETTINGS = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


@dataclass
class Told:
    """What git said of a working tree. Paths are relative to its top."""

    tracked: list[str] = field(default_factory=list)
    untracked: list[str] = field(default_factory=list)  # those that it does not ignore
    commit: str = ""  # empty before the first one
    branch: str = ""  # empty if a commit is checked out that is none's end
    remote: str = ""
    dirty: bool = False  # whether what it tracks was changed since the commit
    diff: str = ""  # what was, but for .env and its like
    trouble: str = ""  # what it could not say, and why


def ask(top: Path, patterns: Sequence[str]) -> Told:
    """Ask about the working tree at `top`, and list its files that fit one of the `patterns`, which cross slashes."""
    commands = {
        "tracked files": ["ls-files", "-z", "--recurse-submodules", "--", *patterns],
        "untracked files": ["ls-files", "-z", "--others", "--exclude-standard", "--", *patterns],
        "commit": ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no"],
        "remote": ["config", "--get", "remote.origin.url"],
        "diff": ["diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color", "--", ":(exclude,glob)**/.env*"],
    }
    said = Told()
    answers = _run(top, commands, said)
    said.tracked, said.untracked = (_split(answers[kind]) for kind in ("tracked files", "untracked files"))
    for line in _split(answers["commit"]):
        words = line.split(" ")
        if words[:2] == ["#", "branch.oid"]:
            said.commit = words[2].strip("()").replace("initial", "")
        elif words[:2] == ["#", "branch.head"]:
            said.branch = " ".join(words[2:]).replace("(detached)", "")
        elif line[:2] in ("1 ", "2 ", "u "):
            said.dirty = True
    said.remote = without_password(os.fsdecode(answers["remote"]).strip())
    said.diff = without_password(answers["diff"].decode(errors="replace"))
    return said


def under(folder: str, suffix: str) -> str:
    """The pattern of the files below a folder (relative to the top, `.` for the top itself) that end so."""
    return f"*{suffix}" if folder == "." else f"{glob.escape(folder)}/*{suffix}"


def _run(top: Path, commands: dict[str, list[str]], said: Told) -> dict[str, bytes]:
    """What the commands print, all of them at once; nothing where one fails, of which `said` then tells the first."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK} | _SETTINGS
    deadline = time.monotonic() + _LIMIT_S
    answers = dict.fromkeys(commands, b"")
    with ExitStack() as stack:
        running = {}
        for kind, words in commands.items():
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))  # a pipe would fill up
            try:
                process = subprocess.Popen(
                    ["git", "-C", str(top), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                said.trouble = f"git cannot be run: {error.strerror}"
                break
            stack.callback(_end, process)
            running[kind] = process, out, err
        for kind, (process, out, err) in running.items():
            try:
                code = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                said.trouble = said.trouble or f"git does not tell the {kind} within {_LIMIT_S:g} s"
                continue
            out.seek(0), err.seek(0)
            answers[kind] = out.read(_LIMIT_BYTES) if code == 0 else b""
            words = err.read(2000).decode(errors="replace").strip().splitlines()
            if code and words and not (kind == "diff" and "'HEAD'" in words[0]):  # before the first commit
                said.trouble = said.trouble or f"git does not tell the {kind}: {words[0]}"
            elif len(answers[kind]) == _LIMIT_BYTES:
                said.trouble = said.trouble or f"the {kind} is cut: it has more than {_LIMIT_BYTES / 1e6:g} MB"
    return answers


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):  # one that hangs in its kernel must not hang us
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(1.0)


def _split(answer: bytes) -> list[str]:
    return [os.fsdecode(one) for one in answer.split(b"\0") if one]
