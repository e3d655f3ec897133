"""Why the processes of a job never started: the line of `setup` that failed, or srun's refusal."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.launchers.slurm.script.script import FAILED, SETUP, entry_of

_OF_SRUN = re.compile(r"srun: (?:(?:error|fatal): )?(.+)")
_REFUSES = re.compile(
    r"srun: (?:error|fatal): |srun: (?:unrecognized|invalid|ambiguous) option|srun: option "
)
_TASK_ENDED = re.compile(r"srun: error: \S+: tasks? [\d,-]+: ")
# Problems that may pass in another job, unlike a wrong option.
_MAY_PASS = re.compile(
    "[Cc]ontact|[Cc]onnect|[Cc]ommunicat|[Tt]imed out|[Tt]imeout|[Nn]ode fail|Node down|NODE"
    " FAIL|[Aa]bort|erminated|Killed|killed|[Cc]ancell?ed|already complet|Expired|Invalid job id|no"
    " longer|temporarily|Zero Bytes|slurmd|Transport"
    " endpoint|[Cc]redential|[Mm]unge|[Pp]rotocol|DNS|No route|I/O|Slurm|invalid user|failed on"
    " node"
)
_NEVER_PASSES = re.compile(
    "^invalid (?!job)|^unrecognized|cpu bind|gres|not permitted", re.IGNORECASE
)


def refusal_of_srun(lines: Sequence[str]) -> str:
    """Return why srun started no process, by the last lines of the log; empty if it started one, or
    if it may later."""
    problem = ""
    for line in lines:
        if _TASK_ENDED.search(line):
            return ""
        match = _OF_SRUN.search(line)
        if match and _REFUSES.search(line):
            problem = match[1].strip().rstrip(".")
    if _MAY_PASS.search(problem) and not _NEVER_PASSES.search(problem):
        return ""
    return problem and f"srun refused to start it: {problem}"


def advice_on_srun(launcher: DictConfig | None) -> str:
    """Return which setting to change, if options of srun were typed."""
    typed = OmegaConf.select(launcher, "srun_args") if launcher is not None else None
    if not typed:
        return ""
    text = typed if isinstance(typed, str) else json.dumps([str(option) for option in typed])
    return f". Change hydra.launcher.srun_args={text}"


def failed_line(private: Path, launcher: DictConfig | None) -> str:
    """Return which line before srun failed, as typed, with its status, by the record in the job's
    private folder."""
    status, line, place = _read(private / FAILED)
    if not status:
        return "a setup line failed"
    if not line.isdecimal():
        return f"{place or 'a setup line'} failed (status {status})"
    name = "a setup line"
    text = ""
    entry = entry_of(int(line), _entries(launcher, resolve=True))
    if entry is not None:
        name = f"line {entry + 1} of hydra.launcher.setup"
        typed = _entries(launcher, resolve=False)[entry:]
        text = f": {typed[0].strip()}" if typed else ""
    within = f", at {place}" if place and f"/{SETUP}:" not in place else ""
    return f"a setup line failed: {name}, with status {status}{within}{text}"


def _read(file: Path) -> tuple[str, str, str]:
    """Return the status, the line of SETUP and the place of a failed command; empty texts if they
    are not known."""
    lines: list[str] = []
    with suppress(OSError):
        lines = file.read_text(errors="replace").splitlines()
    status, line, place = [*lines, "", "", ""][:3]
    return status, line, place


def _entries(launcher: DictConfig | None, resolve: bool) -> list[str]:
    """Return the entries of `setup`; as typed, because a reference may be a secret, or with
    `resolve` as run."""
    if launcher is None:
        return []
    with suppress(Exception):  # because a resolver may raise anything
        settings: Any = OmegaConf.to_container(launcher, resolve=resolve)
        entries = settings.get("setup")
        return [str(entry) for entry in entries] if isinstance(entries, list) else []
    return []
