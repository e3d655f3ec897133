"""The largest batch that fits: doubled, then bisected, each tried in a process of its own.

So does Lightning's BatchSizeFinder (mode "binsearch"), and Accelerate's find_executable_batch_size halves; but both in
one process and by the words of an error, which one that was killed for memory does not leave.
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
from trainers.config import largest_batch as kept
from trainers.data.arrays import Data
from trainers.data.dataset import load
from trainers.phases import phases
from trainers.schedules import plan
from trainers.subprocess_run import OutOfMemory, cap_data, peak_gb, run_in_subprocess
from trainers.trainer import compile_for, network

STEPS = 3
"""Steps of training a try: the first one allocates, the others find what it left."""


class Try(NamedTuple):
    """What became of one batch size, by which tries are ordered."""

    batch_size: int
    fits: bool
    memory_gb: float = 0.0  # the most that was used at a time: of the fullest GPU, or of the process; 0 = not known
    seconds: float = 0.0
    words: str = ""  # how it is known that it does not fit


def find(cfg: DictConfig, trial: Trial) -> dict[str, float]:
    """Find the largest batch of a configuration (trainers/config/schema.py), from `batch_size` on.

    Each try reports and the last one returns largest_batch (0 = none yet), per_gpu, advised (with
    trainer.reserve left free), memory_gb of the largest, tries; whole_training_set is 1 if nothing larger can be asked
    for. A trial that goes on after a break knows the tries it had made.

    Raises MemoryError if not even one example a GPU fits, and RuntimeError with the words of a try that ended by
    anything but memory.
    """
    if trial.world.size > 1:
        raise ValueError("The largest batch is found for one process; leave out nodes and ranks")
    OmegaConf.resolve(cfg)
    limit_gb, unit = kept.memory_limit_gb(), max(1, cfg.gpus)
    where = kept.machine(cfg.gpus, limit_gb)
    rows = int(_in_words("before the first try", partial(_training_rows, cfg), limit_gb))
    most = max(1, min(rows, cfg.trainer.most or rows) // unit) * unit
    tries = _Tries(trial.checkpoint_folder / "tries.json", str(where))
    print(f"batches of {unit} to {most} examples, on {where}", flush=True)
    start = min(parallel.batch_size(cfg), most)
    while size := next_size(tries.fits, start, unit, most, cfg.trainer.precision):
        tried = _try(cfg, size, limit_gb, trial)
        print(f"batch_size={size} {'fits' if tried.fits else 'does not fit, see tries.log'}", flush=True)
        tries.made.append(tried)
        of_this = {"batch_size": size, "fits": tried.fits, "try_s": tried.seconds}
        trial.report({**_result(cfg, tries, rows), **of_this}, step=len(tries.made))
        tries.write()
        if trial.should_stop():
            return _result(cfg, tries, rows)
    if tries.largest is None:
        raise MemoryError(f"not even the smallest batch fits: {tries.made[-1].words}")
    _keep(cfg, tries, kept.hardware(cfg.gpus))
    said = _in_a_sentence(cfg, tries, rows)
    print(said, flush=True)
    trial.note("largest batch", f"{said} ({tries.too_large.words})" if tries.too_large else said)
    return _result(cfg, tries, rows)


def next_size(fits: Mapping[int, bool], start: int, unit: int, most: int, precision: float) -> int | None:
    """The batch size to try next, a multiple of `unit` up to `most`; None once the largest is known to `precision`.

    fits: whether those fit that were tried.
    """
    low = max((size for size, fit in fits.items() if fit), default=0)
    high = min((size for size, fit in fits.items() if not fit), default=None)
    if low >= most:
        return None
    if high is None:
        return min(2 * low or start, most)
    if high - low <= max(unit, precision * low):
        return None
    return max(unit, min((low + high) // 2, most) // unit * unit)


class _Tries:
    """Those made so far, in a file of the trial. They count as long as machine and limit are the same."""

    def __init__(self, file: Path, where: str) -> None:
        self._file, self._where = file, where
        self.made: list[Try] = []
        try:
            content = json.loads(file.read_bytes())
            if content["where"] == where:
                self.made = [Try(**one) for one in content["tries"]]
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            print(f"{file} cannot be read ({error!r}); all is tried again", flush=True)

    @property
    def fits(self) -> dict[int, bool]:
        return {one.batch_size: one.fits for one in self.made}

    @property
    def largest(self) -> Try | None:
        return max((made for made in self.made if made.fits), default=None)

    @property
    def too_large(self) -> Try | None:
        """The smallest that did not fit."""
        return min((made for made in self.made if not made.fits), default=None)

    def write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, json.dumps({"where": self._where, "tries": [made._asdict() for made in self.made]}))


def _try(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> Try:
    """What a try prints is not in the log of the trial, in which a launcher looks for what that ended of."""
    began, work = time.monotonic(), partial(_train_and_judge, cfg, size, limit_gb, trial)
    log = trial.folder / "tries.log"
    try:
        memory_gb = _in_words(f"batch_size={size}", work, limit_gb, cfg.trainer.try_timeout_s, log)
        tried = Try(size, True, memory_gb, time.monotonic() - began)
    except OutOfMemory as error:
        tried = Try(size, False, seconds=time.monotonic() - began, words=str(error))
    with log.open("a") as file:
        file.write(f"{tried.words or f'batch_size={size} fits'}\n")
    return tried


def _in_words(
    what: str, work: Callable[[], float], limit_gb: float | None, timeout_s: float = math.inf, log: Path | None = None
) -> float:
    """What `work` returns in a process of its own; what that raises says `what` was tried."""
    try:
        return run_in_subprocess(work, limit_gb, timeout_s, log)
    except TimeoutError as error:
        raise RuntimeError(f"{what}: {error}; give it more with trainer.try_timeout_s") from None
    except (OutOfMemory, RuntimeError) as error:
        raise type(error)(f"{what}: {error}") from None


def _training_rows(cfg: DictConfig) -> int:
    """Examples for training. Images are decoded meanwhile, if they are not in the cache: no try waits for that."""
    distribution.claim_gpus(cfg.gpus)
    return len(_load(cfg).training_rows)


def _load(cfg: DictConfig) -> Data:
    return load(cfg.dataset, cfg.dataset.get("task") or cfg.loss.get("task"), cfg.seed)


def _train_and_judge(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> float:
    """Begin a training as trainers/trainer.py does, with all learning that ever will; returns what it used, in GB."""
    devices = distribution.claim_gpus(cfg.gpus)
    if not devices:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        if limit_gb is not None:
            cap_data(2 * limit_gb)  # the stacks of many threads are data too, and are hardly ever filled
    keras.utils.set_random_seed(cfg.seed)
    cfg.batch_size, cfg.batch_per_gpu = size, None
    dataset = _judged_once(_load(cfg), max(1, cfg.gpus))
    planned = plan(cfg, len(dataset.training_rows))
    with distribution.strategy(devices, trial.world).scope():
        model = network(cfg, dataset)
        compile_for(model, cfg, dataset, planned, phases(cfg, planned)[-1])
    train_pass, evaluate = compile_passes(model, dataset, cfg.seed)
    metrics = [*train_pass(np.resize(dataset.training_rows, STEPS * size), size).values()]
    judged = {name: len(subset.rows) for name, subset in dataset.subsets.items() if name != "training"}
    if judged:
        metrics += evaluate(max(judged, key=judged.__getitem__)).values()
    print(*(float(metric) for metric in metrics), flush=True)  # a GPU is waited for
    if devices:
        return float(max(tf.config.experimental.get_memory_info(device)["peak"] for device in devices)) / 1e9
    return peak_gb()


def _judged_once(dataset: Data, devices: int) -> Data:
    """The data as they are held in a training; of what is judged the largest batch, an example a device at least."""
    rows = {
        name: max(devices, *np.diff(evaluation_bounds(x, len(all_)))) for name, (x, _, all_) in dataset.subsets.items()
    }
    validation, test = dataset.validation_rows[: rows.get("validation")], dataset.test_rows[: rows.get("test")]
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


def _keep(cfg: DictConfig, tries: _Tries, where: str | None) -> None:
    if where is None or tries.largest is None:
        return
    plain: Any = OmegaConf.to_container(cfg)
    file = kept.answer_file(plain, where)
    answer = {
        "largest_batch": tries.largest.batch_size,
        "too_large": tries.too_large and tries.too_large.batch_size,
        "memory_gb": tries.largest.memory_gb,
        "found": time.strftime("%Y-%m-%d"),
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, kept.answer_json(plain, where, answer))
        print(f"kept for searches on {where}: {file}", flush=True)
    except OSError as error:  # the answer is in the trial's folder too
        print(f"it cannot be kept for searches: {error}", flush=True)


def _in_a_sentence(cfg: DictConfig, tries: _Tries, rows: int) -> str:
    result, too_large = _result(cfg, tries, rows), tries.too_large
    fits = f"batch_size={result['largest_batch']} fits with gpus={cfg.gpus} ({result['memory_gb']:.3g} GB)"
    if too_large:
        free = f"with {cfg.trainer.reserve:.0%} in reserve: batch_size={result['advised']}"
        return f"{fits}, {too_large.batch_size} does not; {free}"
    return f"{'the whole training set' if result['whole_training_set'] else 'trainer.most'} fits: {fits}"
