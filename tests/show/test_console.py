"""Names in foreign studies on the terminal, and errors of foreign folders in two lines."""

import errno
import io
from pathlib import Path

import pytest
from rich.table import Table

from sweeps.commands.disk_errors import explain
from sweeps.show.terminal.console import SafeConsole, visible

HOSTILE = ["\x1b]0;PWNED\x07", "\x1b[2J", "a\rb", "\x9b31m", "\u202eabc", "\x00"]


@pytest.mark.parametrize("name", HOSTILE)
def test_control_characters_are_printed_as_text(name: str) -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, highlight=False, width=200)
    table = Table(name)
    table.add_row(name)
    console.print(table)
    console.print(name, markup=False, soft_wrap=True)
    assert visible(file.getvalue()) == file.getvalue()


def test_styles_and_lines_remain() -> None:
    file = io.StringIO()
    SafeConsole(file=file, force_terminal=True).print("[bold]a[/bold]\nb\tc")
    assert "\x1b[1ma\x1b[0m\nb" in file.getvalue()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EISDIR, errno.EIO])
def test_errors_of_the_disk_have_two_lines(code: int, tmp_path: Path) -> None:
    lines = explain(OSError(code, "No", str(tmp_path / "gone" / "report.html"))).splitlines()
    assert len(lines) == 2 and "Errno" not in lines[0]
    assert len(explain(OSError("no answer")).splitlines()) == 2
