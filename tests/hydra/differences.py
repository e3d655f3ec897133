"""What differs from Hydra on purpose: a row of docs/reference/coming_from.md, and the facts that the row is about."""

import re
from dataclasses import dataclass

from tests.hydra.case_files import Case
from tests.hydra.observing import Observed


@dataclass(frozen=True)
class Difference:
    """Facts that may differ in all cases, or in those with the option `differs ROW`."""

    row: str  # first column of the docs' table
    facts: str  # a regular expression for full names of facts
    everywhere: bool = True


DIFFERENCES = [
    Difference("settings", r".*\bhydra\.(sweeper|launcher)\b.*|.*choices\.hydra/(sweeper|launcher).*"),
    Difference("environment", r"job \d+\.variables\.(CUDA_VISIBLE_DEVICES|GLIBC_TUNABLES|SWEEPYARD_\w+)"),
    Difference("environment", r"job \d+\.variables\.\w+_NUM(_\w+)?_THREADS"),
    Difference("files", r"job \d+\.files\.(attempts/|(trial|notes|tracking)\.json|(system_)?metrics\.jsonl).*"),
    Difference("what is printed", r"sweep\.prints in the terminal"),
    Difference("the sweep's folder", r".*hydra/hydra\.yaml\.hydra\.sweep\.dir|multirun\.yaml\.hydra\.sweep\.dir"),
    Difference("the sweep's folder", r".*(sweep\.(sub)?dir|output_dir|file|filename|overrides\.hydra)", False),
    Difference("processes", r"job [1-9]\d*\.(config\.\w+|logging\.\w+\.disabled)", False),
    Difference("repeated values", r"sweep\.(jobs|lines)", False),
    Difference("`glob(*)`", r"sweep\.(jobs|lines)", False),
    Difference("an exception", r"sweep\.(jobs|lines)", False),
    Difference("`sys.exit(0)`", r"sweep\.(jobs|lines)", False),
    Difference("the result", r"sweep\.ends well", False),
]


def compare(case: Case, hydra: Observed, ours: Observed) -> list[str]:
    """Return a line for each fact that differs and may not."""
    lines = []
    for name in sorted({*hydra.facts, *ours.facts}):
        theirs = hydra.facts.get(name, "(absent)")
        here = ours.facts.get(name, "(absent)")
        part = name.partition(".")[0]
        is_common = part in hydra.parts and part in ours.parts  # because facts of the sweep show what is missing
        if theirs != here and is_common and not _may_differ(case, name):
            lines.append(f"{name}: Hydra {theirs} | here {here}")
    return lines


def _may_differ(case: Case, fact: str) -> bool:
    own_rows = case.options.get("differs", [])
    entries = [entry for entry in DIFFERENCES if entry.everywhere or entry.row in own_rows]
    return any(re.fullmatch(entry.facts, fact) for entry in entries)
