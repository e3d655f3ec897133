"""Who extended a study, when, and by which values."""

import getpass
import os
from dataclasses import replace
from typing import Any

from sweeps.record.definition import Definition
from sweeps.trial.times import is_time, now


def add_extension(old: Definition, new: Definition) -> Definition:
    """Return the `new` definition of a study with its extensions, of which the last is that of the
    `old` definition."""
    values = "; ".join(old.differences(new).values())
    newest = [{"by": user_name(), "at": now(), "values": values}] if values else []
    return replace(new, extended=[*old.extended, *newest])


def well_formed(extended: object) -> list[dict[str, Any]]:
    """Return the extensions that have a time, because a damaged one must hide no study."""
    entries = extended if isinstance(extended, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and is_time(entry.get("at"))]


def user_name() -> str:
    """Return the name of the user, or their number if they have no name."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # which of them depends on Python's version
        return str(os.getuid())
