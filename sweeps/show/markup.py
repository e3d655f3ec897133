"""The HTML of pages, from the macros of page/parts.html. All values are escaped and lose their
passwords."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.base.secrets import without_password

if TYPE_CHECKING:
    from jinja2 import Environment


def fill(macro: str, *values: Any) -> str:
    """Return the HTML of a macro of parts.html with these values."""
    parts = _environment().get_template("parts.html").module
    filled: str = getattr(parts, macro)(*values)
    return filled


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader  # here, because the import delays a driver

    folder = FileSystemLoader(Path(__file__).parent / "page")
    return Environment(loader=folder, autoescape=True, trim_blocks=True, finalize=_masked)


def _masked(value: Any) -> Any:
    return without_password(value) if type(value) is str else value
