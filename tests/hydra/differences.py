"""What differs from Hydra on purpose. Each row of the table in docs/coming_from.md has an entry here."""

import re
from dataclasses import dataclass

from tests.hydra.case_files import Case
from tests.hydra.observing import Observed


@dataclass(frozen=True)
class Difference:
    """Facts that may differ, and the row of the docs' table that says why."""

    row: str
    facts: str  # a regular expression for full names of facts
    everywhere: bool = True  # False: only in cases with the option `differs ROW`


DIFFERENCES = [
    Difference("settings", r".*\bhydra\.(sweeper|launcher)\b.*|.*choices\.hydra/(sweeper|launcher).*"),
]


def compare(case: Case, hydra: Observed, ours: Observed) -> list[str]:
    """Return a line for each fact that differs and may not."""
    allowed = [
        difference.facts
        for difference in DIFFERENCES
        if difference.everywhere or difference.row in case.options.get("differs", [])
    ]
    lines = []
    for name in sorted({*hydra.facts, *ours.facts}):
        theirs = hydra.facts.get(name, "(absent)")
        here = ours.facts.get(name, "(absent)")
        if theirs != here and not any(re.fullmatch(pattern, name) for pattern in allowed):
            lines.append(f"{name}: Hydra {theirs} | here {here}")
    return lines
