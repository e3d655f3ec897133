"""Run a case under a sweeper and a launcher, and collect what its jobs saw and what they left on the disk."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from tests.command_lines import Done, finish, run, start_afresh
from tests.hydra.case_files import Case
from tests.hydra.probe import CALLED, SEEN

PROBE = Path(__file__).parent
HYDRA: list[str] = []
OURS = ["hydra/sweeper=grid", "hydra/launcher=local", "hydra.sweeper.tracking=false"]
"""The words that choose Hydra's BasicSweeper and BasicLauncher, which are its defaults, and ours."""
SLURM = ["hydra/sweeper=grid", "hydra/launcher=slurm", "hydra.sweeper.tracking=false"]

_NEUTRAL = {
    r"multirun/\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d": "<sweep>",
    r"multirun/\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+": "<sweep>",
    r"multirun/\$\{now:%Y-%m-%d\}/\$\{now:%H-%M-%S\}": "<sweep>",
    r"\d{4}-\d\d-\d\d": "<day>",
    r"\d\d[-:]\d\d[-:]\d\d(,\d+)?": "<time>",
    r"0x[0-9a-f]{6,}": "<address>",
    r"(?<!:)//+": "/",
}
"""What differs from run to run, and what takes its place."""


@dataclass
class Observed:
    """What a command line did: each fact of the sweep and of its jobs, by its full name."""

    done: Done
    facts: dict[str, str]

    @property
    def parts(self) -> set[str]:
        """Return the first parts of the names: of the sweep, of each job, and of multirun.yaml if there is one."""
        return {name.partition(".")[0] for name, value in self.facts.items() if value != "[]"}

    @property
    def is_refused(self) -> bool:
        """Return whether the command failed before any job ran."""
        return self.done.code != 0 and self.facts["sweep.jobs"] == "[]"


def observe(
    case: Case, folder: Path, words: Sequence[str], await_processes: Callable[[], None] = lambda: None
) -> Observed:
    """Run the case in `folder` with further words, and return what was to be seen once its processes have ended."""
    case.write(folder)
    launched = (folder / case.launches).resolve()
    place = len(case.command) - (case.command[-1] == "--multirun")  # because argparse wants all words in one place
    command = [*case.command[:place], *words, *case.command[place:]]
    arguments = [word.replace("HERE", str(folder)) for word in command]
    variables = {name: value.replace("HERE", str(folder)) for name, value in case.environment.items()}
    variables["PYTHONPATH"] = str(PROBE)
    if case.is_fresh:
        done = finish(start_afresh(arguments, launched, variables), launched)
    else:
        done = run(arguments, launched, variables)
    await_processes()
    calls = [json.loads(line) for file in folder.rglob(CALLED) for line in file.read_text().splitlines()]
    jobs = sorted((json.loads(file.read_text()) | {"folder": file.parent} for file in folder.rglob(SEEN)), key=_number)
    configs = list(folder.rglob("multirun.yaml"))
    facts: dict[str, Any] = {
        "sweep": {
            "ends well": done.code == 0,
            "jobs": [job["hydra"]["overrides.task"] for job in jobs],
            "lines": _said(done, jobs),
            "prints in the terminal": "says: printed" in done.out,
            "calls": [call for call in calls if "job" not in call],
            "configs kept": len(configs),
        },
        "multirun.yaml": _content(configs[0]) if configs else [],
    }
    for job in jobs:
        number = _number(job)
        facts[f"job {number}"] = job | {
            "files": _files(job.pop("folder")),
            "calls": [call for call in calls if call.get("job") == number],
        }
    flat = dict(_flatten(_without(facts, [*words, *(f"str {word!r}" for word in words)]), ""))
    return Observed(done, {name: _neutral(value, folder) for name, value in flat.items()})


def _number(job: Any) -> int:
    return int(job["hydra"]["job.num"].removeprefix("int "))


def _said(done: Done, jobs: Sequence[Any]) -> list[str]:
    """Return the lines that the jobs printed or logged: in their logs, or without them in the terminal."""
    logs = [log for job in jobs for log in sorted(job["folder"].glob("attempts/*/log"))]
    text = "\n".join(log.read_text() for log in logs) if logs else done.said
    lines = [line for line in text.splitlines() if "says:" in line]
    return sorted(lines, key=lambda line: line.partition("says:")[2])  # because stderr has a place of its own


def _files(folder: Path) -> dict[str, Any]:
    """Return the content of each file in a job's folder, by its path."""
    files = {}
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder)
        if file.is_file() and file.name not in (SEEN, CALLED):
            files[str(path)] = _content(file)
    return files


def _content(file: Path) -> Any:
    """Return a YAML file as values by key; another file as its lines."""
    if file.suffix == ".yaml":
        return OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    return file.read_text(errors="replace").splitlines()


def _without(value: Any, words: Sequence[str]) -> Any:
    """Return the value without the words that chose the sweeper and the launcher."""
    if isinstance(value, dict):
        return {key: _without(content, words) for key, content in value.items()}
    if isinstance(value, list):
        return [_without(content, words) for content in value if not _is_ours(content, words)]
    return value


def _is_ours(content: Any, words: Sequence[str]) -> bool:
    # The sweep's folder is added to the words of a study, so that all its jobs have the same one.
    is_added = isinstance(content, str) and re.match(r"(str .)?hydra\.sweep\.dir='", content)
    return content in words or bool(is_added)


def _flatten(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield each leaf with its full name. A list without dicts is a leaf."""
    if isinstance(value, dict) and value:
        for key, content in value.items():
            yield from _flatten(content, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(content, dict) for content in value):
        for number, content in enumerate(value):
            yield from _flatten(content, f"{name}.{number}")
    else:
        yield name, str(value)


def _neutral(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "<here>")
    for pattern, name in _NEUTRAL.items():
        text = re.sub(pattern, name, text)
    return text
