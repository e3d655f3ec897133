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
from typing import Any
from unittest.mock import patch

import psutil
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from sweeps.record import study_file
from sweeps.record.study import TrialRecord
from sweeps.study.folder.reading import read_study
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome
from tests.warm import Running

ROOT = Path(__file__).parents[1]
SWEEP = str(ROOT / "sweep.py")
APPS = ROOT / "tests" / "apps"
THEIRS = str(APPS / "their_app.py")
GRID = ["hydra/sweeper=grid", "hydra/launcher=local"]
SLURM = ["hydra/launcher=slurm", "hydra.launcher.poll_s=0.5", "hydra.launcher.max_submissions_per_min=600"]
"""The launcher on the cluster of the tests, which has no other users."""
SEARCH = ["hydra/sweeper=optuna", "hydra/launcher=local"]
_NOT_OURS = ("HYDRA_FULL_ERROR", "SWEEPYARD_ANSWERS", "MLFLOW_TRACKING_URI", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


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
        """Return the folder of the only study in the working folder."""
        (study,) = (self.folder / "multirun").iterdir()
        return study


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment, without variables that change the answer of a command."""
    variables = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    return {**variables, "TF_CPP_MIN_LOG_LEVEL": "3", "MLFLOW_DISABLE_TELEMETRY": "true", **(extra or {})}


def start(arguments: Iterable[str], folder: Path, extra: Mapping[str, str] | None = None) -> Running:
    """Start `python ARGUMENTS` in `folder`, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return Running(list(arguments), folder, environment(extra))


def start_afresh(
    arguments: Iterable[str], folder: Path, extra: Mapping[str, str] | None = None, largest_file: int | None = None
) -> "subprocess.Popen[str]":
    """Start `python ARGUMENTS` in a process of its own, without preloaded modules.

    Beyond `largest_file` bytes the kernel refuses to write, as on a full disk.
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
    """Run `python ARGUMENTS` in `folder`, and return its result."""
    return finish(start(arguments, folder, extra), folder, timeout_s)


def run_all(
    lines: Mapping[str, Iterable[str]], folder: Path, extra: Mapping[str, str] | None = None
) -> dict[str, Done]:
    """Run several command lines, two at a time, each in its own folder, and return the results by their names."""
    with ThreadPoolExecutor(2) as pool:
        running = {name: pool.submit(run, line, folder / str(i), extra) for i, (name, line) in enumerate(lines.items())}
        return {name: future.result() for name, future in running.items()}


def refuse(arguments: Iterable[str], folder: Path) -> Done:
    """Run a command line that starts no trial in this process, and return its result."""
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


def some(names: str | tuple[str, ...], cases: Iterable[Any], every: int, **settings: Any) -> pytest.MarkDecorator:
    """Return a mark that parametrizes a test by a table; all but each `every`th case are long tests."""
    is_one = isinstance(names, str) and "," not in names
    values = [(case,) if is_one else case for case in cases]
    params = [pytest.param(*value, marks=[pytest.mark.long] if i % every else []) for i, value in enumerate(values)]
    return pytest.mark.parametrize(names, params, **settings)


def read_answers(file: Path) -> dict[str, list[str]]:
    """Return command lines with a mistake, each with the parts of its answer, in which ⏎ ends a line."""
    answers, typed = dict[str, list[str]](), list[str]()
    for line in file.read_text().splitlines():
        if line.startswith("$ "):
            typed.append(line.removeprefix("$ "))
        elif not line.startswith("#"):
            parts = line.strip().replace("⏎", "\n").split(" … ")
            answers |= dict.fromkeys(typed, parts)
            typed.clear()
    return answers


def theirs(*arguments: str, name: str = "s") -> list[str]:
    """Return the words of a study of a foreign app, without tracking."""
    return [THEIRS, "-m", *arguments, "hydra.sweeper.tracking=false", f"hydra.sweeper.study_name={name}"]


def sweeps(folder: Path, *arguments: str, timeout_s: float = 120) -> Done:
    """Run `sweepyard ARGUMENTS` in `folder`, and return its result."""
    return run(["-m", "sweeps", *arguments], folder, {"PYTHONPATH": str(ROOT)}, timeout_s)


def rows(study: Path) -> list[TrialRecord]:
    """Return the trials of a study, by number."""
    return sorted(read_study(study, study_file.read(study)).rows, key=lambda row: row.number)


def end(trial: Path, attempt: int | None = None) -> Outcome:
    """Return the outcome of a trial's attempt, by default of the newest attempt."""
    folder = TrialFolder(trial)
    attempt_folder = folder.attempt(attempt) if attempt else folder.newest()
    assert attempt_folder is not None
    outcome = attempt_folder.end()
    assert outcome is not None, f"{attempt_folder.path} has no end"
    return outcome


def steps(trial: Path) -> list[int]:
    """Return the steps that a trial reported, in order."""
    file = trial / "metrics.jsonl"
    return [json.loads(line)["step"] for line in file.read_text().splitlines()] if file.exists() else []


def processes(folder: Path) -> list[psutil.Process]:
    """Return every process that works in `folder`; `info` has its name, also once it has ended."""
    matching = []
    for process in psutil.process_iter(["cwd", "name", "status"]):
        cwd, status = process.info["cwd"], process.info["status"]
        if cwd and status != psutil.STATUS_ZOMBIE and Path(cwd).is_relative_to(folder):
            matching.append(process)
    return matching


def wait_until(holds: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
