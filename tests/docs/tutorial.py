"""Follows a tutorial of docs/start/ as a reader does: writes its files, types its commands in terminals, and compares
what they print. Numbers may differ from those of the page."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from threading import Thread

from tests.command_lines import ROOT, environment

_BLOCK = re.compile(r"^(?:<!-- ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = "READY> "
_CTRL_C = "\x03"
_ANSWER_S = 240


class Terminal:
    """A shell in a terminal of 100 columns."""

    def __init__(self, folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        path = f"{sys.prefix}/bin:{os.environ['PATH']}"
        variables = environment({"PS1": _PROMPT, "PS2": "", "TERM": "xterm", "PATH": path})
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"],
            cwd=folder,
            env=variables,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.printed = ""
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._ours, 65536):
                self.printed += chunk.decode(errors="replace")
        except OSError:  # because the shell has ended
            pass

    def write(self, content: str) -> Path:
        """Write the file whose name is in the first line into the folder of the shell, once its command has ended."""
        self.wait_for(_PROMPT)
        file = Path(f"/proc/{self._shell.pid}/cwd").resolve() / content.split()[1]
        file.write_text(content)
        return file

    def type(self, command: str) -> None:
        """Send a command once the one before has ended."""
        self.wait_for(_PROMPT)
        self.press(f"{command}\n")

    def press(self, keys: str) -> None:
        """Send keys, and drop what was printed before."""
        self.printed = ""
        os.write(self._ours, keys.encode())

    def wait_for(self, text: str, repeat: str = "") -> None:
        """Wait until each line of the text was printed; repeat a command that has printed other lines."""
        deadline = time.monotonic() + _ANSWER_S
        while lacking := self._lacking(text):
            assert time.monotonic() < deadline, f"not printed: {lacking}, but {self.printed[-3000:]}"
            if repeat and self.printed.endswith(_PROMPT):
                self.press(f"{repeat}\n")
            time.sleep(0.5)

    def _lacking(self, text: str) -> list[str]:
        printed = masked(self.printed)
        return [line for line in text.splitlines() if masked(line) not in printed]

    def close(self) -> None:
        """End the shell and what runs in it, as when the window is closed."""
        self._shell.send_signal(signal.SIGHUP)
        self._shell.wait(_ANSWER_S)
        self._reader.join(_ANSWER_S)
        os.close(self._ours)


def masked(text: str) -> str:
    """Return the text without colours, with one sign for each number, and for each run of spaces and drawn lines."""
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|\.\.\.$", "", text)
    spaced = re.sub(r"[\s│┃╇┳━╺╸┏┓┡┩└┘┴─]+", " ", plain).strip()
    return re.sub(r"\d[\d.e+-]*", "0", spaced)


def patch(file: Path, difference: str) -> None:
    """Apply the hunks of a page, which have no line numbers."""
    text = file.read_text()
    for hunk in difference.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(line[1:] or "\n" for line in lines if line[0] != sign) for sign in "+-")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text)


def follow(page: Path, folder: Path) -> None:
    """Run a tutorial in a folder that gets a clone. Raise AssertionError if a line of the page is not printed."""
    clone = folder / "sweepyard"
    clone.mkdir()
    (clone / ".venv").symlink_to(sys.prefix)
    for name in ("sweep.py", "conf", "trainers"):
        (clone / name).symlink_to(ROOT / name)
    first, second = Terminal(folder), Terminal(folder)
    terminal, file, repeat = first, folder, ""
    try:
        for comment, language, content in _BLOCK.findall(page.read_text()):
            if language == "diff":
                patch(file, content)
            elif content.startswith("^C\n"):
                first.press(_CTRL_C)
                first.wait_for(content.removeprefix("^C\n"))
            elif language == "text":
                terminal.wait_for(content, repeat)
            elif language:
                file = first.write(content)
            elif not comment.startswith("not run"):
                terminal = second if comment == "in a second terminal" else first
                commands = re.split(r"(?<!\\)\n", content.strip())
                for command in commands:
                    terminal.type(command)
                repeat = commands[-1] if terminal is second else ""
        first.wait_for(_PROMPT)
    finally:
        first.close()
        second.close()
