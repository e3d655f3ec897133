"""Runs command lines as a person does: in a process and a folder of their own."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SWEEP = str(ROOT / "sweep.py")
_NOT_OURS = ("HYDRA_FULL_ERROR", "MLFLOW_TRACKING_URI", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Done:
    """A command line that ended, and the folder it ran in."""

    code: int
    out: str
    err: str
    folder: Path

    def study(self) -> Path:
        """The folder of the only study that was run there."""
        (study,) = (self.folder / "multirun").iterdir()
        return study


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, without what would change how a command answers."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "3", "MLFLOW_DISABLE_TELEMETRY": "true", **(extra or {})}


def run(
    arguments: Iterable[str], folder: Path, extra: Mapping[str, str] | None = None, timeout_s: float = 120
) -> Done:
    """`python ARGUMENTS` in `folder`, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(extra),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    return Done(done.returncode, done.stdout, done.stderr, folder)


def run_all(
    lines: Mapping[str, Iterable[str]], folder: Path, extra: Mapping[str, str] | None = None
) -> dict[str, Done]:
    """Several command lines, two at a time, each in a folder of its own; by their names."""
    with ThreadPoolExecutor(2) as pool:
        running = {
            name: pool.submit(run, line, folder / str(i), extra)
            for i, (name, line) in enumerate(lines.items())
        }
        return {name: future.result() for name, future in running.items()}
