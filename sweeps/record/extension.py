"""Who extended a study, when, and by which values."""

import getpass
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweeps.record.definition import Definition


def add_extension(old: "Definition", new: "Definition") -> "Definition":
    """Return the `new` definition of a study with its extensions, of which the last is that of the `old` definition."""
    values = "; ".join(old.differences(new, extending=False))
    newest = [{"by": user_name(), "at": time.time(), "values": values}] if values else []
    return replace(new, version=old.version, extended=[*old.extended, *newest])


def user_name() -> str:
    """Return the name of the user, or their number if they have no name."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # which of them depends on Python's version
        return str(os.getuid())
