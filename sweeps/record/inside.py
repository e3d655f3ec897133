"""Whether a file is really in a folder, because a link in the folder of another person may lead to
a private file."""

from pathlib import Path


def is_inside(file: Path, folder: Path) -> bool:
    """Return whether no link leads from a file of `folder` to a place outside of it."""
    try:
        return file.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a loop of links, by Python's version
        return False
