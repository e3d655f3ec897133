"""Runs command lines as a person does: in a process and a folder of their own."""

import io
import json
import logging
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import psutil
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from sweeps.record import definition
from sweeps.record.study import TrialRecord
from sweeps.study.reading import read_study
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome
from tests.warm import Running

ROOT = Path(__file__).parents[1]
SWEEP = str(ROOT / "sweep.py")
APPS = ROOT / "tests" / "apps"
THEIRS = str(APPS / "their_app.py")
GRID = ["hydra/sweeper=grid", "hydra/launcher=local"]
SEARCH = ["hydra/sweeper=optuna", "hydra/launcher=local"]
_NOT_OURS = ("HYDRA_FULL_ERROR", "MLFLOW_TRACKING_URI", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Done:
    """A command line that ended, and the folder it ran in."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def said(self) -> str:
        return self.out + self.err

    def study(self) -> Path:
        """The folder of the only study that was run there."""
        (study,) = (self.folder / "multirun").iterdir()
        return study


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, without what would change how a command answers."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "3", "MLFLOW_DISABLE_TELEMETRY": "true", **(extra or {})}


def start(arguments: Iterable[str], folder: Path, extra: Mapping[str, str] | None = None) -> Running:
    """`python ARGUMENTS` in `folder`, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    return Running(list(arguments), folder, environment(extra))


def start_afresh(
    arguments: Iterable[str], folder: Path, extra: Mapping[str, str] | None = None, largest_file: int | None = None
) -> "subprocess.Popen[str]":
    """The same in a process that imports all by itself, where its first second matters, or its own words.

    Past `largest_file` bytes the kernel refuses to write, as it does on a full disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    limit = [] if largest_file is None else ["prlimit", f"--fsize={largest_file}"]
    return subprocess.Popen(
        [*limit, sys.executable, *arguments],
        cwd=folder,
        env=environment(extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: "Running | subprocess.Popen[str]", folder: Path, timeout_s: float = 120) -> Done:
    """Wait for a command line to end."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(process.communicate()) from None
    return Done(process.wait(), out, err, folder)


def run(arguments: Iterable[str], folder: Path, extra: Mapping[str, str] | None = None, timeout_s: float = 120) -> Done:
    """`python ARGUMENTS` in `folder`, to its end."""
    return finish(start(arguments, folder, extra), folder, timeout_s)


def run_all(
    lines: Mapping[str, Iterable[str]], folder: Path, extra: Mapping[str, str] | None = None
) -> dict[str, Done]:
    """Several command lines, two at a time, each in a folder of its own; by their names."""
    with ThreadPoolExecutor(2) as pool:
        running = {name: pool.submit(run, line, folder / str(i), extra) for i, (name, line) in enumerate(lines.items())}
        return {name: future.result() for name, future in running.items()}


def refuse(arguments: Iterable[str], folder: Path) -> Done:
    """The same in this process, of a command line that starts nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    script, *rest = arguments
    log, code = logging.getLogger(), 0
    handlers, level = log.handlers[:], log.level
    with (
        chdir(folder),
        patch.dict(os.environ, environment(), clear=True),
        patch.object(sys, "argv", [script, *rest]),
        patch.object(sys, "path", [str(Path(script).parent), *sys.path]),
        patch.object(logging, "shutdown"),  # by which Hydra would close each handler, and absl's the file of pytest
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as exit_:
            assert isinstance(exit_.code, int)
            code = exit_.code
        finally:
            GlobalHydra.instance().clear()
            HydraConfig.instance().cfg = None
            log.handlers[:], log.level = handlers, level
    return Done(code, out.getvalue(), err.getvalue(), folder)


def theirs(*arguments: str, name: str = "s") -> list[str]:
    """A study of somebody else's app, without tracking, which other tests look at."""
    return [THEIRS, "-m", *arguments, "hydra.sweeper.tracking=false", f"hydra.sweeper.study_name={name}"]


def sweeps(folder: Path, *arguments: str, timeout_s: float = 120) -> Done:
    """`python -m sweeps ARGUMENTS` in `folder`."""
    return run(["-m", "sweeps", *arguments], folder, {"PYTHONPATH": str(ROOT)}, timeout_s)


def rows(study: Path) -> list[TrialRecord]:
    """The trials of a study, by their numbers."""
    return sorted(read_study(study, definition.read(study)).rows, key=lambda row: row.number)


def end(trial: Path, attempt: int | None = None) -> Outcome:
    """How a trial's attempt ended, by default its newest."""
    folder = TrialFolder(trial)
    found = folder.attempt(attempt) if attempt else folder.newest()
    assert found is not None
    said = found.end()
    assert said is not None, f"{found.path} has no end"
    return said


def steps(trial: Path) -> list[int]:
    """The steps that a trial reported, in order."""
    file = trial / "metrics.jsonl"
    return [json.loads(line)["step"] for line in file.read_text().splitlines()] if file.exists() else []


def processes(folder: Path) -> list[psutil.Process]:
    """Return every process that works in `folder`; `info` has its name, also once it has ended."""
    found = []
    for process in psutil.process_iter(["cwd", "name", "status"]):
        cwd, status = process.info["cwd"], process.info["status"]
        if cwd and status != psutil.STATUS_ZOMBIE and Path(cwd).is_relative_to(folder):
            found.append(process)
    return found


def wait_until(holds: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
