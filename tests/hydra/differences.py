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
    Difference("variables", r"job \d+\.variables\.(CUDA_VISIBLE_DEVICES|GLIBC_TUNABLES|SWEEPYARD_\w+)"),
    Difference("variables", r"job \d+\.variables\.\w+_NUM(_\w+)?_THREADS"),
    Difference("folder", r".*hydra/hydra\.yaml\.hydra\.sweep\.dir|multirun\.yaml\.\d+\.hydra\.sweep\.dir"),
    Difference("folder", r".*(sweep\.(sub)?dir|output_dir|file|filename|overrides\.hydra)", everywhere=False),
    Difference("process", r"job [1-9]\d*\.(config\.\w+|logging\.\w+\.disabled)", everywhere=False),
    Difference("repeated", r"sweep\.(jobs|lines)", everywhere=False),
    Difference("exit", r"sweep\.(jobs|lines)", everywhere=False),
]


def compare(case: Case, hydra: Observed, ours: Observed) -> list[str]:
    """Return a line for each fact that differs and may not."""
    lines = []
    for name in sorted({*hydra.facts, *ours.facts}):
        theirs = hydra.facts.get(name, "(absent)")
        here = ours.facts.get(name, "(absent)")
        job = name.partition(".")[0]
        is_common = job in hydra.parts and job in ours.parts  # because facts of the sweep show what is missing
        if theirs != here and is_common and not _may_differ(case, name):
            lines.append(f"{name}: Hydra {theirs} | here {here}")
    return lines


def _may_differ(case: Case, fact: str) -> bool:
    own_rows = case.options.get("differs", [])
    rows = [entry for entry in DIFFERENCES if entry.everywhere or entry.row in own_rows]
    return any(re.fullmatch(entry.facts, fact) for entry in rows)
