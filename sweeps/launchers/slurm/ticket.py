"""The files by which the driver and a SLURM job find each other, in the attempt's own folder.

job.json      which SLURM job this is: its name before sbatch is called, its id after       (driver)
exit.json     once, last of all: how the attempt ended, as the attempt itself knows it      (attempt)
*.pkl, *.sh   submitit's own
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sweeps.trial.folder import State


@dataclass(frozen=True)
class Ticket:
    """Which SLURM job an attempt is. `id` is None until the answer of sbatch is written down."""

    name: str
    id: str | None = None

    def write(self, attempt: Path) -> None:
        _write(attempt / "job.json", asdict(self))

    @staticmethod
    def read(attempt: Path) -> "Ticket | None":
        content = _read(attempt / "job.json")
        return content and Ticket(**content)


@dataclass(frozen=True)
class OwnEnd:
    """How an attempt ended, in its own words."""

    state: State
    error: str = ""

    def write(self, attempt: Path) -> None:
        _write(attempt / "exit.json", asdict(self))

    @staticmethod
    def read(attempt: Path) -> "OwnEnd | None":
        content = _read(attempt / "exit.json")
        return content and OwnEnd(State(content["state"]), content["error"])


def _write(path: Path, content: dict[str, Any]) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(content))
    aside.replace(path)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
