"""Search for the largest batch that fits: from an estimate of memory, by tries that each run in
their own process.

Lightning's BatchSizeFinder (mode "binsearch") and Accelerate's find_executable_batch_size use one
process and the text of an error. A process that is killed for memory leaves no such text.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trainers.quiet_tensorflow  # noqa: F401 - before tensorflow

# isort: split

import keras
import numpy as np
import tensorflow as tf
from omegaconf import DictConfig, OmegaConf

from sweeps.trial import Trial, write_whole
from sweeps.trial.machine import gpus as trial_gpus
from sweeps.trial.machine import memory
from trainers import distribution, parallel
from trainers.batch.batch_search import MOST_TRIES, Estimate, Try, first_size, next_size
from trainers.compiled import compile_passes, evaluation_bounds
from trainers.config import largest_batch as answers
from trainers.data.arrays import Data
from trainers.data.dataset import load
from trainers.model import compile_for, network
from trainers.phases import phases
from trainers.schedules import plan
from trainers.subprocess_run import (
    USABLE_FRACTION,
    OutOfMemory,
    cap_data,
    peak_gb,
    run_in_subprocess,
)

Result = TypeVar("Result")

_USABLE_OF_GPU = 0.95
"""Part of a GPU's memory that a training may fill, according to the estimate: CUDA takes the
rest."""
STEPS = 3
"""Training steps per try: the first step allocates memory, the next steps must fit beside it."""


def find(cfg: DictConfig, trial: Trial) -> dict[str, float]:
    """Find the largest batch of a configuration (trainers/config/schema.py), starting from an
    estimate of its memory.

    Where no memory is known, the search starts at `batch_size` and doubles it, then bisects.

    Each try reports, and the search returns: largest_batch (0 = none yet), per_gpu, advised (leaves
    trainer.reserve unused), memory_gb of the largest batch, tries, and whole_training_set (1 if no
    larger batch is possible). A resumed trial reuses its earlier tries.

    Raises MemoryError if not even one example per GPU fits, and RuntimeError with the text of any
    other error.
    """
    if trial.world.size > 1:
        raise ValueError("The largest batch is found for one process. Remove nodes and ranks")
    OmegaConf.resolve(cfg)
    limit_gb = answers.memory_limit_gb()
    where = str(answers.machine(cfg.gpus, limit_gb))
    estimate = _run("before the first try", partial(_estimate, cfg, limit_gb, trial), limit_gb)
    tries = _Tries(cfg, estimate.rows, trial.checkpoint_folder / "tries.json", where)
    for size in _sizes(cfg, tries, estimate, where):
        newest = _try(cfg, size, limit_gb, trial)
        tries.made.append(newest)
        metrics = {"batch_size": size, "fits": newest.fits, "try_s": newest.seconds}
        trial.report({**tries.result, **metrics}, step=len(tries.made))
        tries.write()
        if trial.should_stop():
            return tries.result
    if tries.largest is None:
        raise MemoryError(f"not even the smallest batch fits: {tries.made[-1].words}")
    _save(cfg, tries, tries.largest)
    _show(tries, trial)
    return tries.result


def _sizes(cfg: DictConfig, tries: "_Tries", estimate: Estimate, where: str) -> Iterator[int]:
    """Yield the batch sizes to try, each after the one before was tried."""
    unit = max(1, cfg.gpus)
    rows = estimate.rows
    maximum = max(1, min(rows, cfg.trainer.most or rows) // unit) * unit
    print(f"batches of {unit} to {maximum} examples, on {where}; {estimate}", flush=True)
    start = first_size(estimate, default=parallel.batch_size(cfg))
    while size := next_size(tries.made, start, unit, maximum, cfg.trainer.precision, estimate):
        yield size


class _Tries:
    """The tries of a trial so far, saved in a file. They are valid only on the same machine with
    the same limit."""

    def __init__(self, cfg: DictConfig, rows: int, file: Path, where: str) -> None:
        self._cfg = cfg
        self._rows = rows
        self._file = file
        self._where = where
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
    def largest(self) -> Try | None:
        return max((made for made in self.made if made.fits), default=None)

    @property
    def too_large(self) -> Try | None:
        """Return the smallest try that did not fit."""
        return min((made for made in self.made if not made.fits), default=None)

    @property
    def result(self) -> dict[str, float]:
        """Return what the search has found so far."""
        largest = self.largest or Try(0, False)
        unit = max(1, self._cfg.gpus)
        size = advised = largest.batch_size
        if self.too_large and size:
            advised = max(unit, int(size * (1 - self._cfg.trainer.reserve)) // unit * unit)
        return {
            "largest_batch": size,
            "per_gpu": size // unit,
            "advised": advised,
            "memory_gb": largest.memory_gb,
            "tries": len(self.made),
            "whole_training_set": size >= self._rows // unit * unit,
        }

    def __str__(self) -> str:
        result = self.result
        fits = (
            f"batch_size={result['largest_batch']} fits with gpus={self._cfg.gpus}"
            f" ({result['memory_gb']:.3g} GB)"
        )
        tried = f"tried: {', '.join(str(made.batch_size) for made in self.made)}"
        if self.too_large:
            reserve = self._cfg.trainer.reserve
            advice = f"with {reserve:.0%} in reserve: batch_size={result['advised']}"
            most = f", at most {MOST_TRIES} sizes" if len(self.made) >= MOST_TRIES else ""
            return f"{fits}, {self.too_large.batch_size} does not; {advice} ({tried}{most})"
        whole = "the whole training set" if result["whole_training_set"] else "trainer.most"
        return f"{whole} fits: {fits} ({tried})"

    def write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(
            self._file,
            json.dumps({"where": self._where, "tries": [made._asdict() for made in self.made]}),
        )


def _try(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> Try:
    """Test a batch size. Its output goes to tries.log, because a launcher searches the trial's log
    for errors."""
    began = time.monotonic()
    work = partial(_measure_training, cfg, size, limit_gb, trial)
    log = trial.folder / "tries.log"
    try:
        memory_gb = _run(f"batch_size={size}", work, limit_gb, cfg.trainer.try_timeout_s, log)
        result = Try(size, True, memory_gb, time.monotonic() - began)
    except OutOfMemory as error:
        result = Try(size, False, seconds=time.monotonic() - began, words=str(error))
    with log.open("a") as file:
        file.write(f"{result.words or f'batch_size={size} fits'}\n")
    outcome = "fits" if result.fits else "does not fit, see tries.log"
    print(f"batch_size={size} {outcome}", flush=True)
    return result


def _run(
    task: str,
    work: Callable[[], Result],
    limit_gb: float | None,
    timeout_s: float = math.inf,
    log: Path | None = None,
) -> Result:
    """Run `work` in its own process and return its result; errors name the `task`."""
    try:
        return run_in_subprocess(work, limit_gb, timeout_s, log)
    except TimeoutError as error:
        raise RuntimeError(f"{task}: {error}\nIncrease trainer.try_timeout_s") from None
    except (OutOfMemory, RuntimeError) as error:
        raise type(error)(f"{task}: {error}") from None


def _estimate(cfg: DictConfig, limit_gb: float | None, trial: Trial) -> Estimate:
    """Return what is known of the training before its first try: its room, its network, and what
    each example takes.

    Loading decodes images into the cache, so that no try waits for them.
    """
    dataset, model, devices = _build(cfg, max(1, cfg.gpus), limit_gb, trial)
    gradients_gb = _size_gb(model.trainable_variables)
    outputs_gb = sum(
        _size_gb(_outputs(layer)) for layer in model._flatten_layers(include_self=False)
    )
    example_gb = 2 * outputs_gb / max(1, cfg.gpus)  # twice, because each output has a gradient
    rows = len(dataset.training_rows)
    if devices:
        fixed_gb = _size_gb(model.variables) + _size_gb(model.optimizer.variables) + gradients_gb
        part = trial_gpus.memory_fraction() or _USABLE_OF_GPU
        return Estimate(rows, part * trial_gpus.memory_bytes() / 1e9, fixed_gb, example_gb)
    if limit_gb is None:
        return Estimate(rows)
    room_gb = USABLE_FRACTION * limit_gb - memory.used_gb([os.getppid()], shared_once=True)
    return Estimate(rows, room_gb, peak_gb() + gradients_gb, example_gb)


def _outputs(layer: keras.Layer) -> list[Any]:
    """Return the symbolic outputs of a layer in its network; none if it has none, or is used
    several times."""
    try:
        outputs: list[Any] = keras.tree.flatten(layer.output)
    except (AttributeError, ValueError):
        return []
    return outputs


def _size_gb(tensors: Iterable[Any]) -> float:
    """Return the memory of variables, or of the outputs for one example, whose shape begins with
    None."""
    sizes = [
        math.prod(size or 1 for size in tensor.shape) * tf.as_dtype(tensor.dtype).size
        for tensor in tensors
    ]
    return float(sum(sizes)) / 1e9


def _measure_training(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> float:
    """Start a training as trainers/trainer.py does, in its last phase, and return its peak memory
    in GB."""
    dataset, model, devices = _build(cfg, size, limit_gb, trial)
    train_pass, evaluate = compile_passes(model, dataset, cfg.seed)
    train_pass(np.resize(dataset.training_rows, STEPS * size), size)
    sizes = {
        name: len(subset.rows) for name, subset in dataset.subsets.items() if name != "training"
    }
    if sizes:
        evaluate(max(sizes, key=sizes.__getitem__))
    if devices:
        return (
            float(max(tf.config.experimental.get_memory_info(device)["peak"] for device in devices))
            / 1e9
        )
    return peak_gb()


def _build(
    cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial
) -> tuple[Data, keras.Model, list[str]]:
    """Return the data of a training, its compiled model in the last phase, and its GPUs."""
    devices = distribution.claim_gpus(cfg.gpus)
    if not devices:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        if limit_gb is not None:
            # doubled, because stacks of many threads count as data but stay almost empty
            cap_data(2 * limit_gb)
    keras.utils.set_random_seed(cfg.seed)
    cfg.batch_size = size
    cfg.batch_per_gpu = None
    task = cfg.dataset.get("task") or cfg.loss.get("task")
    dataset = _shrink_evaluation(load(cfg.dataset, task, cfg.seed), max(1, cfg.gpus))
    planned = plan(cfg, len(dataset.training_rows))
    with distribution.strategy(devices, trial.world).scope():
        model = network(cfg, dataset)
        compile_for(model, cfg, dataset, planned, phases(cfg, planned)[-1])
    return dataset, model, devices


def _shrink_evaluation(dataset: Data, devices: int) -> Data:
    """Return the data with validation and test sets cut to one batch, at least one example per
    device."""
    counts = {
        name: max(devices, *np.diff(evaluation_bounds(x, len(rows))))
        for name, (x, _, rows) in dataset.subsets.items()
    }
    validation = dataset.validation_rows[: counts.get("validation")]
    test = dataset.test_rows[: counts.get("test")]
    return replace(dataset, validation_rows=validation, test_rows=test)


def _save(cfg: DictConfig, tries: _Tries, largest: Try) -> None:
    """Save the answer for trainings on the same hardware."""
    where = answers.hardware(cfg.gpus)
    if where is None:
        return
    plain: Any = OmegaConf.to_container(cfg)
    file = answers.answer_file(plain, where)
    answer = {
        "largest_batch": largest.batch_size,
        "too_large": tries.too_large and tries.too_large.batch_size,
        "memory_gb": largest.memory_gb,
        "found": time.strftime("%Y-%m-%d"),
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, answers.answer_json(plain, where, answer))
        print(f"saved for trainings on {where}: {file}", flush=True)
    except OSError as error:  # not raised, because the answer is in the trial's folder too
        print(f"the answer cannot be saved for trainings: {error}", flush=True)


def _show(tries: _Tries, trial: Trial) -> None:
    """Print the answer, and note it with the evidence."""
    print(tries, flush=True)
    evidence = f" ({tries.too_large.words})" if tries.too_large else ""
    trial.note("largest batch", f"{tries}{evidence}")
