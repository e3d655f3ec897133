"""How long a training is, its batch sizes and its learning rates: all known before it starts, from numbers alone.

conf/lr_schedule and conf/batch_schedule name functions of this module. One of your own, in any module, takes the same
first arguments.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from trainers import parallel
from trainers.config.targets import current_name
from trainers.data.examples import POINTS

SMALLEST = float(np.finfo(np.float32).tiny)
"""A learning rate below this is zero where it is used."""
MOST_EPOCHS = 1_000_000


# Batch sizes: f(batch_size, epoch, **settings) -> the batch size of an epoch. Epochs count from 0 here.


def constant_batch(batch_size: int, epoch: int) -> int:
    """The same in every epoch."""
    return batch_size


def linear_batch(batch_size: int, epoch: int, increase: int, maximum: int | None) -> int:
    """batch_size, batch_size + increase, batch_size + 2 increase, ..."""
    return _at_most(batch_size + increase * epoch, maximum)


def doubling_batch(batch_size: int, epoch: int, every_epochs: int, maximum: int | None) -> int:
    """Twice as large every so many epochs: Smith et al., Don't Decay the Learning Rate, Increase the Batch Size."""
    return _at_most(batch_size * 2 ** min(epoch // every_epochs, 62), maximum)


def _at_most(size: int, maximum: int | None) -> int:
    return size if maximum is None else min(size, maximum)


# Learning rates: f(at, total, **settings) -> shares of lr. `at` is when each step is taken, in epochs and fractions of
# one since the beginning, of shape (steps,); `total` is how many epochs there are.


def constant(at: np.ndarray, total: float) -> np.ndarray:
    """The same at every step."""
    return np.ones_like(at)


def warmup(at: np.ndarray, total: float, warmup_epochs: float, start: float) -> np.ndarray:
    """From `start` in a straight line to 1, then constant: Goyal et al., Accurate, Large Minibatch SGD, 2017."""
    done = np.clip(at / warmup_epochs, 0, 1) if warmup_epochs > 0 else np.ones_like(at)
    return np.asarray(start + (1 - start) * done)


def cosine(at: np.ndarray, total: float, warmup_epochs: float, start: float, final: float) -> np.ndarray:
    """Half a wave from 1 to `final`, after a warm-up: Loshchilov and Hutter, SGDR, ICLR 2017, without restarts."""
    falling = _half_wave((at - warmup_epochs) / max(total - warmup_epochs, 1e-9), 1, final)
    return np.asarray(falling * warmup(at, total, warmup_epochs, start))


def step(at: np.ndarray, total: float, every_epochs: float, factor: float) -> np.ndarray:
    """Times `factor` every so many epochs."""
    return np.asarray(factor ** np.floor(at / every_epochs + 1e-9))


def polynomial(at: np.ndarray, total: float, power: float, final: float, decay_epochs: float | None) -> np.ndarray:
    """From 1 to `final` as (1 - t)^power, then constant. Power 1 is a straight line."""
    return final + (1 - final) * (1 - np.clip(at / (decay_epochs or total), 0, 1)) ** power


def exponential(at: np.ndarray, total: float, factor: float) -> np.ndarray:
    """Times `factor` an epoch, a little of it at every step."""
    return factor**at


def one_cycle(at: np.ndarray, total: float, warmup_share: float, start: float, final: float) -> np.ndarray:
    """From `start` up to 1 and down to `final` in half waves: Smith and Topin, Super-Convergence, 2019."""
    done = at / total
    up = _half_wave(done / warmup_share, start, 1)
    return np.where(done < warmup_share, up, _half_wave((done - warmup_share) / (1 - warmup_share), 1, final))


def _half_wave(done: np.ndarray, start: float, end: float) -> np.ndarray:
    return np.asarray(end + (start - end) * (1 + np.cos(np.pi * np.clip(done, 0, 1))) / 2)


@dataclass(frozen=True)
class Plan:
    """What each epoch of a training is: element 0 belongs to epoch 1."""

    batch_sizes: tuple[int, ...]
    steps: tuple[int, ...]
    whole: tuple[int, ...]
    """Steps that a whole epoch of that batch size has: the last one may be cut short by the budget."""
    images: tuple[int, ...]

    @property
    def epochs(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        sizes = sorted({self.batch_sizes[0], self.batch_sizes[-1]})
        batches = " to ".join(map(str, sizes))
        return f"{self.epochs} epochs = {sum(self.steps)} steps = {sum(self.images)} images, in batches of {batches}"


def plan(cfg: Any, rows: int) -> Plan:
    """The plan of a configuration (trainers/config/schema.py) for an epoch of `rows` training examples.

    Its budget is `epochs`, unless `steps` or `images` says another. Several devices leave out an epoch's last, smaller
    batch: it would be shared unequally and bias the gradients.

    Raises ValueError for a batch size that `check_batch` refuses.
    """
    size_of, first, several = function(cfg.batch_schedule), parallel.batch_size(cfg), parallel.replicas(cfg) > 1
    epochs = cfg.epochs if cfg.steps is None and cfg.images is None else sys.maxsize
    steps_left, images_left = cfg.steps or sys.maxsize, cfg.images or sys.maxsize
    planned: list[tuple[int, int, int, int]] = []
    while len(planned) < epochs and steps_left > 0 and images_left > 0:
        if len(planned) == MOST_EPOCHS:
            name = next((name for name in ("steps", "images") if getattr(cfg, name)), "epochs")
            raise ValueError(f"{name}={getattr(cfg, name)} makes more than {MOST_EPOCHS:,} epochs; try epochs=100")
        size = size_of(first, len(planned))
        if not planned or size != planned[-1][0]:
            check_batch(cfg, size, len(planned) + 1, rows)
        whole = rows // size if several else -(-rows // size)
        steps = min(whole, steps_left, -(-images_left // size))
        images = min(steps * size, rows)
        planned.append((size, steps, whole, images))
        steps_left -= steps
        images_left -= images
    return Plan(*zip(*planned, strict=True))


def check_batch(cfg: Any, size: int, epoch: int, rows: int | None) -> None:
    """Raise ValueError if an epoch's batches outgrow the `rows` for training (None: unknown), or cannot be shared.

    Points that are typed in are few: on one device a batch larger than all of them is all of them.
    """
    first, replicas = parallel.batch_size(cfg), parallel.replicas(cfg)
    what, remedy = f"batch_size={size}", "batch_size"
    if cfg.batch_per_gpu is not None:
        what, remedy = f"batch_per_gpu={cfg.batch_per_gpu} ({what})", "batch_per_gpu"
    if size != first:
        name = str(cfg.batch_schedule["_target_"]).rpartition(".")[2].removesuffix("_batch")
        what, remedy = f"batch_schedule={name} reaches {what} in epoch {epoch}, which", "batch_schedule.maximum"
    if rows is not None and size > rows and (replicas > 1 or cfg.dataset.get("_target_") != POINTS):
        most = 2 ** int(math.log2(rows)) if cfg.batch_per_gpu is None else max(rows // replicas, 1)
        raise ValueError(
            f"{what} is larger than the training set ({rows} examples after the validation split); "
            f"try {remedy}={most} or less"
        )
    if size % replicas:
        below = max(first // replicas, 1) * replicas
        remedy = f"try batch_size={below}" if size == first else f"start and grow by multiples of {replicas}"
        raise ValueError(f"{what} cannot be shared equally by {parallel.device_settings(cfg)}; {remedy}")


def shares(cfg: Any, plan: Plan, first: int = 0, end: int | None = None) -> np.ndarray:
    """The share of lr at every step of the epochs from `first` up to `end`, as if nothing came before, shape (steps,).

    With batch_schedule.lr_follows the learning rate grows as the batch does.
    """
    steps, whole, sizes = (each[first:end] for each in (plan.steps, plan.whole, plan.batch_sizes))
    at = [epoch + np.arange(n) / of for epoch, (n, of) in enumerate(zip(steps, whole, strict=True))]
    total = len(steps) - 1 + steps[-1] / whole[-1]
    found = np.asarray(function(cfg.lr_schedule)(np.concatenate(at), total), dtype=np.float64)
    if (factor := parallel.lr_factor(cfg)) > 1:
        found = found * warmup(np.concatenate(at), total, cfg.warmup_epochs, 1 / factor)
    if cfg.batch_schedule.get("lr_follows"):
        found = found * np.repeat([size / plan.batch_sizes[0] for size in sizes], steps)
    return found


def function(section: Mapping[Any, Any]) -> Callable[..., Any]:
    """The function that a schedule's config section names, with its settings."""
    module, _, name = str(section["_target_"]).rpartition(".")
    settings = {str(key): value for key, value in section.items() if key not in ("_target_", "lr_follows")}
    return partial(getattr(import_module(module), name), **settings)


def own_name(section: Mapping[Any, Any]) -> str:
    """The name of the function of this module that a schedule's config section names; "" if it is somebody's own."""
    module, _, name = current_name(str(section.get("_target_"))).rpartition(".")
    return name if module == __name__ else ""


def is_constant(cfg: Any) -> bool:
    """Whether the learning rate is one number for the whole training."""
    follows = cfg.batch_schedule.get("lr_follows") and own_name(cfg.batch_schedule) != "constant_batch"
    rises = cfg.warmup_epochs > 0 and parallel.lr_factor(cfg) > 1
    return own_name(cfg.lr_schedule) == "constant" and not follows and not rises
