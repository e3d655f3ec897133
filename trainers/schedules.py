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
_MANY_EPOCHS = 1000  # more than any warm-up has


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
    if warmup_epochs <= 0:
        return np.ones_like(at)
    progress = np.clip(at / warmup_epochs, 0, 1)
    return np.asarray(start + (1 - start) * progress)


def cosine(
    at: np.ndarray, total: float, warmup_epochs: float, start: float, final: float
) -> np.ndarray:
    """Return half a cosine from 1 to `final`, after a warm-up: Loshchilov and Hutter, SGDR, ICLR
    2017, no restarts."""
    decay_epochs = max(total - warmup_epochs, 1e-9)
    decay = _half_cosine((at - warmup_epochs) / decay_epochs, 1, final)
    return np.asarray(decay * warmup(at, total, warmup_epochs, start))


def step(at: np.ndarray, total: float, every_epochs: float, factor: float) -> np.ndarray:
    """Multiply by `factor` every `every_epochs`."""
    return np.asarray(factor ** np.floor(at / every_epochs + 1e-9))


def polynomial(
    at: np.ndarray, total: float, power: float, final: float, decay_epochs: float | None
) -> np.ndarray:
    """Return a decay from 1 to `final` as (1 - t)^power, then `final`. Power 1 is a straight
    line."""
    progress = np.clip(at / (decay_epochs or total), 0, 1)
    return final + (1 - final) * (1 - progress) ** power


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
    angle = np.pi * np.clip(progress, 0, 1)
    share_of_start = (1 + np.cos(angle)) / 2
    return np.asarray(end + (start - end) * share_of_start)


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
        smallest, largest = sorted((self.batch_sizes[0], self.batch_sizes[-1]))
        return {
            "batch_size": largest if smallest == largest else f"{smallest} to {largest}",
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
    first_size = parallel.batch_size(cfg)
    epochs = sys.maxsize if cfg.steps or cfg.images else cfg.epochs
    steps_left = cfg.steps or sys.maxsize
    images_left = cfg.images or sys.maxsize
    size = 0
    planned = []
    for epoch in range(epochs):
        if min(steps_left, images_left) <= 0:
            break
        if epoch == MAX_EPOCHS:
            raise _too_many_epochs(cfg)
        previous_size = size
        size = size_of(first_size, epoch)
        if size != previous_size:
            check_batch(cfg, size, epoch + 1, rows)
        whole = -(-rows // size)
        steps = min(whole, steps_left, -(-images_left // size))
        images = min(steps * size, rows)
        planned.append((size, steps, whole, images))
        steps_left -= steps
        images_left -= images
    return Plan(*zip(*planned, strict=True))


def _too_many_epochs(cfg: Any) -> ValueError:
    name = "steps" if cfg.steps else "images" if cfg.images else "epochs"
    budget = f"{name}={getattr(cfg, name)}"
    return ValueError(f"{budget} makes more than {MAX_EPOCHS:,} epochs; try epochs=100")


def check_batch(cfg: Any, size: int, epoch: int, rows: int | None) -> None:
    """Raise ValueError if a batch is larger than the `rows` for training (None: unknown), or cannot
    be shared equally.

    For typed points on one device a larger batch is allowed, because there are few points; it
    contains all of them.
    """
    replicas = parallel.replicas(cfg)
    are_points = cfg.dataset.get("_target_") == POINTS
    may_exceed = are_points and replicas == 1
    if rows is not None and size > rows and not may_exceed:
        setting, key = _batch_setting(cfg, size, epoch)
        maximum = 2 ** int(math.log2(rows))
        if cfg.batch_per_gpu is not None:
            maximum = max(rows // replicas, 1)
        raise ValueError(
            f"{setting} is larger than the training set ({rows} examples after the validation"
            f" split); try {key}={maximum} or less"
        )
    if size % replicas:
        setting, _ = _batch_setting(cfg, size, epoch)
        first_size = parallel.batch_size(cfg)
        multiple = max(first_size // replicas, 1) * replicas
        remedy = f"try batch_size={multiple}"
        if size != first_size:
            remedy = f"start and grow by multiples of {replicas}"
        devices = parallel.device_settings(cfg)
        raise ValueError(f"{setting} cannot be shared equally by {devices}; {remedy}")


def _batch_setting(cfg: Any, size: int, epoch: int) -> tuple[str, str]:
    """Return the settings that make a batch of this size, for a message, and the key to change."""
    setting = f"batch_size={size}"
    key = "batch_size"
    if cfg.batch_per_gpu is not None:
        setting = f"batch_per_gpu={cfg.batch_per_gpu} ({setting})"
        key = "batch_per_gpu"
    if size == parallel.batch_size(cfg):
        return setting, key
    target = str(cfg.batch_schedule["_target_"])
    name = target.rpartition(".")[2].removesuffix("_batch")
    reached = f"batch_schedule={name} reaches {setting} in epoch {epoch}, which"
    return reached, "batch_schedule.maximum"


def lr_factors(cfg: Any, plan: Plan, first: int = 0, end: int | None = None) -> np.ndarray:
    """Return the factor of lr at each step of epochs `first` (from 0) up to `end`, shape (steps,).

    The schedule starts at `first`. With batch_schedule.lr_follows, lr is proportional to the batch
    size.
    """
    steps = plan.steps[first:end]
    steps_of_whole = plan.steps_of_whole[first:end]
    times = np.concatenate(
        [epoch + np.arange(count) / steps_of_whole[epoch] for epoch, count in enumerate(steps)]
    )
    total = len(steps) - 1 + steps[-1] / steps_of_whole[-1]

    schedule = load_function(cfg.lr_schedule)
    factors = np.asarray(schedule(times, total), dtype=np.float64)
    scale = parallel.lr_factor(cfg)
    if scale > 1:
        factors = factors * warmup(times, total, cfg.warmup_epochs, 1 / scale)
    if cfg.batch_schedule.get("lr_follows"):
        sizes = np.array(plan.batch_sizes[first:end])
        factors = factors * np.repeat(sizes / plan.batch_sizes[0], steps)
    return factors


def load_function(section: Mapping[Any, Any]) -> Callable[..., Any]:
    """Return the function of a schedule's config section, with its settings."""
    module, _, name = str(section["_target_"]).rpartition(".")
    settings = {str(key): value for key, value in section.items()}
    for key in ("_target_", "lr_follows"):
        settings.pop(key, None)
    return partial(getattr(import_module(module), name), **settings)


def builtin_name(section: Mapping[Any, Any]) -> str:
    """Return the name of a schedule's function in this module; "" if the function is in another
    module."""
    module, _, name = str(section.get("_target_")).rpartition(".")
    return name if module == __name__ else ""


def depends_on_end(cfg: Any) -> bool:
    """Return whether the learning rate of an epoch depends on the number of epochs that follow."""
    schedule = load_function(cfg.lr_schedule)
    epochs = np.arange(_MANY_EPOCHS, dtype=np.float64)
    with np.errstate(over="ignore"):
        factors = np.asarray(schedule(epochs, _MANY_EPOCHS))
        longer = np.asarray(schedule(epochs, 2 * _MANY_EPOCHS))
    return not np.array_equal(factors, longer)


def is_constant(cfg: Any) -> bool:
    """Return whether the learning rate is the same in the whole training."""
    if builtin_name(cfg.lr_schedule) != "constant":
        return False
    if cfg.warmup_epochs > 0 and parallel.lr_factor(cfg) > 1:
        return False
    has_one_size = builtin_name(cfg.batch_schedule) == "constant_batch"
    return has_one_size or not cfg.batch_schedule.get("lr_follows")
