"""Search for the largest batch that fits, by doubling, then bisection; each try runs in its own process.

Lightning's BatchSizeFinder (mode "binsearch") and Accelerate's find_executable_batch_size use one process and the text
of an error. A process that is killed for memory leaves no such text.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trainers.quiet_tensorflow  # noqa: F401 - before tensorflow

# isort: split

import keras
import numpy as np
import tensorflow as tf
from omegaconf import DictConfig, OmegaConf

from sweeps.trial import Trial, write_whole
from trainers import distribution, parallel
from trainers.compiled import compile_passes, evaluation_bounds
from trainers.config import largest_batch as answers
from trainers.data.arrays import Data
from trainers.data.dataset import load
from trainers.model import compile_for, network
from trainers.phases import phases
from trainers.schedules import plan
from trainers.subprocess_run import OutOfMemory, cap_data, peak_gb, run_in_subprocess

STEPS = 3
"""Training steps per try: the first step allocates memory, the next steps must fit beside it."""


class Try(NamedTuple):
    """The result of one batch size. Tries are ordered by batch size."""

    batch_size: int
    fits: bool
    memory_gb: float = 0.0  # peak of the fullest GPU, or of the process; 0 = unknown
    seconds: float = 0.0
    words: str = ""  # evidence that the batch does not fit


def find(cfg: DictConfig, trial: Trial) -> dict[str, float]:
    """Find the largest batch of a configuration (trainers/config/schema.py), starting at `batch_size`.

    Each try reports, and the search returns: largest_batch (0 = none yet), per_gpu, advised (leaves trainer.reserve
    unused), memory_gb of the largest batch, tries, and whole_training_set (1 if no larger batch is possible).
    A resumed trial reuses its earlier tries.

    Raises MemoryError if not even one example per GPU fits, and RuntimeError with the text of any other error.
    """
    if trial.world.size > 1:
        raise ValueError("The largest batch is found for one process. Remove nodes and ranks")
    OmegaConf.resolve(cfg)
    limit_gb, unit = answers.memory_limit_gb(), max(1, cfg.gpus)
    where = answers.machine(cfg.gpus, limit_gb)
    rows = int(_run("before the first try", partial(_training_rows, cfg), limit_gb))
    maximum = max(1, min(rows, cfg.trainer.most or rows) // unit) * unit
    tries = _Tries(trial.checkpoint_folder / "tries.json", str(where))
    print(f"batches of {unit} to {maximum} examples, on {where}", flush=True)
    start = min(parallel.batch_size(cfg), maximum)
    while size := next_size(tries.fits, start, unit, maximum, cfg.trainer.precision):
        newest = _try(cfg, size, limit_gb, trial)
        print(f"batch_size={size} {'fits' if newest.fits else 'does not fit, see tries.log'}", flush=True)
        tries.made.append(newest)
        metrics = {"batch_size": size, "fits": newest.fits, "try_s": newest.seconds}
        trial.report({**_result(cfg, tries, rows), **metrics}, step=len(tries.made))
        tries.write()
        if trial.should_stop():
            return _result(cfg, tries, rows)
    if tries.largest is None:
        raise MemoryError(f"not even the smallest batch fits: {tries.made[-1].words}")
    _save(cfg, tries, answers.hardware(cfg.gpus))
    sentence = _describe(cfg, tries, rows)
    print(sentence, flush=True)
    trial.note("largest batch", f"{sentence} ({tries.too_large.words})" if tries.too_large else sentence)
    return _result(cfg, tries, rows)


def next_size(fits: Mapping[int, bool], start: int, unit: int, maximum: int, precision: float) -> int | None:
    """Return the next batch size to try, a multiple of `unit`; None once the largest is known to `precision`.

    fits: whether a batch size fits, for each one that was tried.
    """
    low = max((size for size, fit in fits.items() if fit), default=0)
    high = min((size for size, fit in fits.items() if not fit), default=None)
    if low >= maximum:
        return None
    if high is None:
        return min(2 * low or start, maximum)
    if high - low <= max(unit, precision * low):
        return None
    return max(unit, min((low + high) // 2, maximum) // unit * unit)


class _Tries:
    """The tries of a trial so far, saved in a file. They are valid only on the same machine with the same limit."""

    def __init__(self, file: Path, where: str) -> None:
        self._file, self._where = file, where
        self.made: list[Try] = []
        try:
            content = json.loads(file.read_bytes())
            if content["where"] == where:
                self.made = [Try(**fields) for fields in content["tries"]]
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            print(f"{file} cannot be read ({error!r}); the search restarts", flush=True)

    @property
    def fits(self) -> dict[int, bool]:
        return {made.batch_size: made.fits for made in self.made}

    @property
    def largest(self) -> Try | None:
        return max((made for made in self.made if made.fits), default=None)

    @property
    def too_large(self) -> Try | None:
        """Return the smallest try that did not fit."""
        return min((made for made in self.made if not made.fits), default=None)

    def write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, json.dumps({"where": self._where, "tries": [made._asdict() for made in self.made]}))


def _try(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> Try:
    """Test a batch size. Its output goes to tries.log, because a launcher searches the trial's log for errors."""
    began, work = time.monotonic(), partial(_measure_training, cfg, size, limit_gb, trial)
    log = trial.folder / "tries.log"
    try:
        memory_gb = _run(f"batch_size={size}", work, limit_gb, cfg.trainer.try_timeout_s, log)
        result = Try(size, True, memory_gb, time.monotonic() - began)
    except OutOfMemory as error:
        result = Try(size, False, seconds=time.monotonic() - began, words=str(error))
    with log.open("a") as file:
        file.write(f"{result.words or f'batch_size={size} fits'}\n")
    return result


def _run(
    task: str, work: Callable[[], float], limit_gb: float | None, timeout_s: float = math.inf, log: Path | None = None
) -> float:
    """Run `work` in its own process and return its result; errors name the `task`."""
    try:
        return run_in_subprocess(work, limit_gb, timeout_s, log)
    except TimeoutError as error:
        raise RuntimeError(f"{task}: {error}\nIncrease trainer.try_timeout_s") from None
    except (OutOfMemory, RuntimeError) as error:
        raise type(error)(f"{task}: {error}") from None


def _training_rows(cfg: DictConfig) -> int:
    """Return the number of training examples. Loading decodes images into the cache, so that no try waits for them."""
    distribution.claim_gpus(cfg.gpus)
    return len(_load(cfg).training_rows)


def _load(cfg: DictConfig) -> Data:
    return load(cfg.dataset, cfg.dataset.get("task") or cfg.loss.get("task"), cfg.seed)


def _measure_training(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> float:
    """Start a training as trainers/trainer.py does, in its last phase, and return its peak memory in GB."""
    devices = distribution.claim_gpus(cfg.gpus)
    if not devices:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        if limit_gb is not None:
            cap_data(2 * limit_gb)  # doubled, because stacks of many threads count as data but stay almost empty
    keras.utils.set_random_seed(cfg.seed)
    cfg.batch_size, cfg.batch_per_gpu = size, None
    dataset = _shrink_evaluation(_load(cfg), max(1, cfg.gpus))
    planned = plan(cfg, len(dataset.training_rows))
    with distribution.strategy(devices, trial.world).scope():
        model = network(cfg, dataset)
        compile_for(model, cfg, dataset, planned, phases(cfg, planned)[-1])
    train_pass, evaluate = compile_passes(model, dataset, cfg.seed)
    train_pass(np.resize(dataset.training_rows, STEPS * size), size)
    sizes = {name: len(subset.rows) for name, subset in dataset.subsets.items() if name != "training"}
    if sizes:
        evaluate(max(sizes, key=sizes.__getitem__))
    if devices:
        return float(max(tf.config.experimental.get_memory_info(device)["peak"] for device in devices)) / 1e9
    return peak_gb()


def _shrink_evaluation(dataset: Data, devices: int) -> Data:
    """Return the data with validation and test sets cut to one batch, at least one example per device."""
    counts = {
        name: max(devices, *np.diff(evaluation_bounds(x, len(rows)))) for name, (x, _, rows) in dataset.subsets.items()
    }
    validation, test = dataset.validation_rows[: counts.get("validation")], dataset.test_rows[: counts.get("test")]
    return replace(dataset, validation_rows=validation, test_rows=test)


def _result(cfg: DictConfig, tries: _Tries, rows: int) -> dict[str, float]:
    largest, unit = tries.largest or Try(0, False), max(1, cfg.gpus)
    size = advised = largest.batch_size
    if tries.too_large and size:
        advised = max(unit, int(size * (1 - cfg.trainer.reserve)) // unit * unit)
    return {
        "largest_batch": size,
        "per_gpu": size // unit,
        "advised": advised,
        "memory_gb": largest.memory_gb,
        "tries": len(tries.made),
        "whole_training_set": size >= rows // unit * unit,
    }


def _save(cfg: DictConfig, tries: _Tries, where: str | None) -> None:
    if where is None or tries.largest is None:
        return
    plain: Any = OmegaConf.to_container(cfg)
    file = answers.answer_file(plain, where)
    answer = {
        "largest_batch": tries.largest.batch_size,
        "too_large": tries.too_large and tries.too_large.batch_size,
        "memory_gb": tries.largest.memory_gb,
        "found": time.strftime("%Y-%m-%d"),
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, answers.answer_json(plain, where, answer))
        print(f"saved for trainings on {where}: {file}", flush=True)
    except OSError as error:  # not raised, because the answer is in the trial's folder too
        print(f"the answer cannot be saved for trainings: {error}", flush=True)


def _describe(cfg: DictConfig, tries: _Tries, rows: int) -> str:
    result, too_large = _result(cfg, tries, rows), tries.too_large
    fits = f"batch_size={result['largest_batch']} fits with gpus={cfg.gpus} ({result['memory_gb']:.3g} GB)"
    if too_large:
        advice = f"with {cfg.trainer.reserve:.0%} in reserve: batch_size={result['advised']}"
        return f"{fits}, {too_large.batch_size} does not; {advice}"
    return f"{'the whole training set' if result['whole_training_set'] else 'trainer.most'} fits: {fits}"
