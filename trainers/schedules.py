"""Number of steps, batch sizes and learning rates of a training, computed before it starts.

conf/lr_schedule and conf/batch_schedule name functions of this module. A function of your own, in
any module, takes the same first arguments.
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
from trainers.data.examples import POINTS

SMALLEST_LR = float(np.finfo(np.float32).tiny)
"""A smaller learning rate becomes zero in float32."""
MAX_EPOCHS = 1_000_000


# Batch sizes: f(batch_size, epoch, **settings) -> batch size of an epoch. Epochs count from 0.


def constant_batch(batch_size: int, epoch: int) -> int:
    """Return the same batch size for every epoch."""
    return batch_size


def linear_batch(batch_size: int, epoch: int, increase: int, maximum: int | None) -> int:
    """Add `increase` in each epoch."""
    return _at_most(batch_size + increase * epoch, maximum)


def doubling_batch(batch_size: int, epoch: int, every_epochs: int, maximum: int | None) -> int:
    """Double the size every `every_epochs`: Smith et al., Don't Decay the Learning Rate, Increase
    the Batch Size."""
    return _at_most(batch_size * 2 ** min(epoch // every_epochs, 62), maximum)


def _at_most(size: int, maximum: int | None) -> int:
    return size if maximum is None else min(size, maximum)


# Learning rates: f(at, total, **settings) -> factors of lr. `at`: time of each step since the
# start, in epochs and fractions of an epoch, shape (steps,); `total`: number of epochs.


def constant(at: np.ndarray, total: float) -> np.ndarray:
    """Return 1 for every step."""
    return np.ones_like(at)


def warmup(at: np.ndarray, total: float, warmup_epochs: float, start: float) -> np.ndarray:
    """Return a line from `start` to 1, then 1: Goyal et al., Accurate, Large Minibatch SGD,
    2017."""
    progress = np.clip(at / warmup_epochs, 0, 1) if warmup_epochs > 0 else np.ones_like(at)
    return np.asarray(start + (1 - start) * progress)


def cosine(
    at: np.ndarray, total: float, warmup_epochs: float, start: float, final: float
) -> np.ndarray:
    """Return half a cosine from 1 to `final`, after a warm-up: Loshchilov and Hutter, SGDR, ICLR
    2017, no restarts."""
    decay = _half_cosine((at - warmup_epochs) / max(total - warmup_epochs, 1e-9), 1, final)
    return np.asarray(decay * warmup(at, total, warmup_epochs, start))


def step(at: np.ndarray, total: float, every_epochs: float, factor: float) -> np.ndarray:
    """Multiply by `factor` every `every_epochs`."""
    return np.asarray(factor ** np.floor(at / every_epochs + 1e-9))


def polynomial(
    at: np.ndarray, total: float, power: float, final: float, decay_epochs: float | None
) -> np.ndarray:
    """Return a decay from 1 to `final` as (1 - t)^power, then `final`. Power 1 is a straight
    line."""
    return final + (1 - final) * (1 - np.clip(at / (decay_epochs or total), 0, 1)) ** power


def exponential(at: np.ndarray, total: float, factor: float) -> np.ndarray:
    """Multiply by `factor` each epoch, in equal factors per step."""
    return factor**at


def one_cycle(
    at: np.ndarray, total: float, warmup_share: float, start: float, final: float
) -> np.ndarray:
    """Return half a cosine from `start` to 1, then one to `final`: Smith and Topin,
    Super-Convergence, 2019."""
    progress = at / total
    rise = _half_cosine(progress / warmup_share, start, 1)
    fall = _half_cosine((progress - warmup_share) / (1 - warmup_share), 1, final)
    return np.where(progress < warmup_share, rise, fall)


def _half_cosine(progress: np.ndarray, start: float, end: float) -> np.ndarray:
    return np.asarray(end + (start - end) * (1 + np.cos(np.pi * np.clip(progress, 0, 1))) / 2)


@dataclass(frozen=True)
class Plan:
    """The epochs of a training: element 0 of each tuple belongs to epoch 1."""

    batch_sizes: tuple[int, ...]
    steps: tuple[int, ...]
    # steps of a complete epoch; the budget may cut the last epoch short
    steps_of_whole: tuple[int, ...]
    images: tuple[int, ...]

    @property
    def epochs(self) -> int:
        return len(self.steps)

    @property
    def settings(self) -> dict[str, int | str]:
        """Return the settings that the plan decides, by their names in the config; a growing batch
        as `32 to 512`."""
        sizes = sorted({self.batch_sizes[0], self.batch_sizes[-1]})
        batch_size = sizes[0] if len(sizes) == 1 else " to ".join(map(str, sizes))
        return {
            "batch_size": batch_size,
            "epochs": self.epochs,
            "steps": sum(self.steps),
            "images": sum(self.images),
        }

    def __str__(self) -> str:
        used = self.settings
        sums = f"{used['epochs']} epochs = {used['steps']} steps = {used['images']} images"
        return f"{sums}, in batches of {used['batch_size']}"


def plan(cfg: Any, rows: int) -> Plan:
    """Return the plan of a configuration (trainers/config/schema.py) for `rows` training examples.

    The budget is `steps` or `images` if one is set, else `epochs`. Raises ValueError if
    `check_batch` does.
    """
    size_of = load_function(cfg.batch_schedule)
    first = parallel.batch_size(cfg)
    epochs = cfg.epochs if cfg.steps is None and cfg.images is None else sys.maxsize
    steps_left = cfg.steps or sys.maxsize
    images_left = cfg.images or sys.maxsize
    planned: list[tuple[int, int, int, int]] = []
    while len(planned) < epochs and steps_left > 0 and images_left > 0:
        if len(planned) == MAX_EPOCHS:
            name = next((name for name in ("steps", "images") if getattr(cfg, name)), "epochs")
            raise ValueError(
                f"{name}={getattr(cfg, name)} makes more than {MAX_EPOCHS:,} epochs; try epochs=100"
            )
        size = size_of(first, len(planned))
        if not planned or size != planned[-1][0]:
            check_batch(cfg, size, len(planned) + 1, rows)
        whole = -(-rows // size)
        steps = min(whole, steps_left, -(-images_left // size))
        images = min(steps * size, rows)
        planned.append((size, steps, whole, images))
        steps_left -= steps
        images_left -= images
    return Plan(*zip(*planned, strict=True))


def check_batch(cfg: Any, size: int, epoch: int, rows: int | None) -> None:
    """Raise ValueError if a batch is larger than the `rows` for training (None: unknown), or cannot
    be shared equally.

    For typed points on one device a larger batch is allowed, because there are few points; it
    contains all of them.
    """
    first = parallel.batch_size(cfg)
    replicas = parallel.replicas(cfg)
    setting = f"batch_size={size}"
    remedy = "batch_size"
    if cfg.batch_per_gpu is not None:
        setting = f"batch_per_gpu={cfg.batch_per_gpu} ({setting})"
        remedy = "batch_per_gpu"
    if size != first:
        name = str(cfg.batch_schedule["_target_"]).rpartition(".")[2].removesuffix("_batch")
        setting = f"batch_schedule={name} reaches {setting} in epoch {epoch}, which"
        remedy = "batch_schedule.maximum"
    if rows is not None and size > rows and (replicas > 1 or cfg.dataset.get("_target_") != POINTS):
        maximum = (
            2 ** int(math.log2(rows)) if cfg.batch_per_gpu is None else max(rows // replicas, 1)
        )
        raise ValueError(
            f"{setting} is larger than the training set ({rows} examples after the validation"
            f" split); try {remedy}={maximum} or less"
        )
    if size % replicas:
        below = max(first // replicas, 1) * replicas
        remedy = (
            f"try batch_size={below}"
            if size == first
            else f"start and grow by multiples of {replicas}"
        )
        raise ValueError(
            f"{setting} cannot be shared equally by {parallel.device_settings(cfg)}; {remedy}"
        )


def lr_factors(cfg: Any, plan: Plan, first: int = 0, end: int | None = None) -> np.ndarray:
    """Return the factor of lr at each step of epochs `first` (from 0) up to `end`, shape (steps,).

    The schedule starts at `first`. With batch_schedule.lr_follows, lr is proportional to the batch
    size.
    """
    steps, whole, sizes = (
        values[first:end] for values in (plan.steps, plan.steps_of_whole, plan.batch_sizes)
    )
    times = [
        epoch + np.arange(n) / of for epoch, (n, of) in enumerate(zip(steps, whole, strict=True))
    ]
    total = len(steps) - 1 + steps[-1] / whole[-1]
    factors = np.asarray(
        load_function(cfg.lr_schedule)(np.concatenate(times), total), dtype=np.float64
    )
    if (scale := parallel.lr_factor(cfg)) > 1:
        factors = factors * warmup(np.concatenate(times), total, cfg.warmup_epochs, 1 / scale)
    if cfg.batch_schedule.get("lr_follows"):
        factors = factors * np.repeat([size / plan.batch_sizes[0] for size in sizes], steps)
    return factors


def load_function(section: Mapping[Any, Any]) -> Callable[..., Any]:
    """Return the function of a schedule's config section, with its settings."""
    module, _, name = str(section["_target_"]).rpartition(".")
    settings = {
        str(key): value for key, value in section.items() if key not in ("_target_", "lr_follows")
    }
    return partial(getattr(import_module(module), name), **settings)


def builtin_name(section: Mapping[Any, Any]) -> str:
    """Return the name of a schedule's function in this module; "" if the function is in another
    module."""
    module, _, name = str(section.get("_target_")).rpartition(".")
    return name if module == __name__ else ""


def is_constant(cfg: Any) -> bool:
    """Return whether the learning rate is the same in the whole training."""
    follows_batch = (
        cfg.batch_schedule.get("lr_follows")
        and builtin_name(cfg.batch_schedule) != "constant_batch"
    )
    warms_up = cfg.warmup_epochs > 0 and parallel.lr_factor(cfg) > 1
    return builtin_name(cfg.lr_schedule) == "constant" and not follows_batch and not warms_up
