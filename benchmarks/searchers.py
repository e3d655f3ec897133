"""Searches to compare: the product's own, Optuna's samplers and HEBO. Each yields the results of its trials.

Optuna and HEBO are given numbers as ordered (the index of a value is an integer), and words as categories. Optuna is
told of a failure as FAIL. HEBO needs libraries of 2023, so that it runs in an environment of its own:

    python3.11 -m venv hebo && hebo/bin/pip install -c benchmarks/hebo_pins.txt HEBO
    HEBO_PYTHON=hebo/bin/python python benchmarks/search_learns.py
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna
from asked import DEFAULT, Asked
from tables import Point, Task, simulated

from sweeps.hydra.settings import SweeperConf

TRIALS = 60
HEBO_PYTHON = os.environ.get("HEBO_PYTHON")
HEBO_BATCH = Path(__file__).with_name("hebo_batch.py")
Searcher = Callable[[Task, int, int], Iterator[float | None]]
"""From a task, a seed and the number of trials at a time to the results, in the order in which they end."""


def ours(sampler: str, learn_from: tuple[Path, ...] = (), folder: Path | None = None) -> Searcher:
    """Search with a sampler of ours, in `folder` if it is to be learnt from afterwards."""

    def searched(task: Task, seed: int, at_a_time: int) -> Iterator[float | None]:
        settings = SweeperConf(sampler={"_target_": sampler, "seed": seed}, n_trials=TRIALS)
        settings.learn_from = [str(path) for path in learn_from]
        with tempfile.TemporaryDirectory() as temporary:
            search = Asked(folder or Path(temporary), settings, task.lines)

            def ask() -> tuple[Any, Point] | None:
                trial = search.ask()
                return trial and (trial, trial.params)

            yield from simulated(task, ask, search.end, at_a_time)

    return searched


def optunas(sampler: type[optuna.samplers.BaseSampler]) -> Searcher:
    def searched(task: Task, seed: int, at_a_time: int) -> Iterator[float | None]:
        study, left = optuna.create_study(sampler=sampler(seed=seed)), iter(range(TRIALS))  # type: ignore[call-arg]

        def ask() -> tuple[Any, Point] | None:
            if next(left, None) is None:
                return None
            trial = study.ask()
            return trial, {key: _suggest(trial, key, values) for key, values in task.space.items()}

        def tell(trial: Any, result: float | None) -> None:
            study.tell(trial, result, state=optuna.trial.TrialState.FAIL if result is None else None)

        return simulated(task, ask, tell, at_a_time)

    return searched


def _suggest(trial: optuna.Trial, key: str, values: Any) -> Any:
    if isinstance(values, tuple):
        return trial.suggest_float(key, *values)
    if isinstance(values[0], str):
        return trial.suggest_categorical(key, values)
    return values[trial.suggest_int(key, 0, len(values) - 1)]


def hebo(task: Task, seed: int, at_a_time: int) -> Iterator[float | None]:
    """Search with HEBO, which chooses a batch of `at_a_time` points whenever the batch before has ended.

    HEBO is not told of running trials: an asynchronous search would know less, and one choice takes seconds of a core.
    """
    assert HEBO_PYTHON
    sizes = {key: [len(values), isinstance(values[0], str)] for key, values in task.space.items()}
    command = [HEBO_PYTHON, str(HEBO_BATCH), json.dumps(sizes), str(seed)]
    batch: list[dict[str, int]] = []
    running: list[dict[str, int]] = []
    ended: list[tuple[dict[str, int], float | None]] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        questions, answers, left = process.stdin, process.stdout, iter(range(TRIALS))
        assert questions and answers

        def ask() -> tuple[dict[str, int], Point] | None:
            if (running and not batch) or next(left, None) is None:
                return None
            if not batch:
                print(json.dumps([ended, at_a_time]), file=questions, flush=True)
                ended.clear()
                batch.extend(json.loads(answers.readline()))
            indices = batch.pop(0)
            running.append(indices)
            return indices, {key: task.space[key][index] for key, index in indices.items()}

        def tell(indices: dict[str, int], result: float | None) -> None:
            running.remove(indices)
            ended.append((indices, result))

        yield from simulated(task, ask, tell, at_a_time)


SEARCHERS: dict[str, Searcher] = {
    "default": ours(DEFAULT),
    "tpe": ours("optuna.samplers.TPESampler"),
    "Optuna's TPE": optunas(optuna.samplers.TPESampler),
    "random": optunas(optuna.samplers.RandomSampler),
}
ABSENT: list[str] = []
if find_spec("torch"):
    SEARCHERS["Optuna's GP"] = optunas(optuna.samplers.GPSampler)
else:
    ABSENT.append("Optuna's GP: PyTorch is not installed (pip install -c constraints.txt torch)")
if HEBO_PYTHON:
    SEARCHERS["HEBO"] = hebo
else:
    ABSENT.append("HEBO: HEBO_PYTHON does not name the Python of its environment (benchmarks/searchers.py)")


def peers() -> str:
    """Return the versions of the peers."""
    versions = [f"optuna {version('optuna')}"]
    if find_spec("torch"):
        versions.append(f"torch {version('torch')}")
    if HEBO_PYTHON:
        code = "from importlib.metadata import version; print('HEBO', version('HEBO'))"
        versions.append(subprocess.run([HEBO_PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout)
    return ", ".join(text.strip() for text in versions)
