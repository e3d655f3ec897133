"""A dataset as a training sees it. Its source is any callable that returns a `Split`, as Keras' own loaders do, or an
`ImageFolder`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig, OmegaConf

from conf.checks import labels
from conf.checks.augment import Augment, parse
from conf.checks.examples import GB, image_size, subset_size
from conf.schema import DATASET, training_size
from sweeps.trial import Trial
from trainers.data.images import ImageFolder, decoded, resized
from trainers.data.on_disk import OnDisk
from trainers.data.pool import Pool, from_arrays
from trainers.sections import make

Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(x_train, y_train), (x_test, y_test)"""


class Subset(NamedTuple):
    """Some rows of two arrays."""

    x: np.ndarray | OnDisk
    y: np.ndarray
    rows: np.ndarray  # int32


@dataclass(frozen=True, eq=False)
class Data:
    """A dataset. The arrays stay whole: training and validation set are rows of the same two.

    x and x_test are uint8 (pixels of 0..255) or float32, of shape (rows, *input_shape); both are one `OnDisk` if they
    come from the cache. y and y_test are int32 classes of shape (rows,), or float32 values of shape (rows, outputs).
    """

    x: np.ndarray | OnDisk
    y: np.ndarray
    training_rows: np.ndarray
    validation_rows: np.ndarray  # of x_test with validation="test", none at all with "none"
    x_test: np.ndarray | OnDisk
    y_test: np.ndarray
    test_rows: np.ndarray  # empty if the dataset has no test set
    outputs: int  # classes, or length of y
    validation: str = "split"  # or "test": the test set judged the training, or "none": the training loss did
    with_replacement: bool = False  # each row of an epoch is drawn from all
    one_hot: bool = False  # the loss gets labels as rows of 0 and 1
    augment: Augment | None = None
    resident: bool = True  # x is small enough to be held in memory; else it is read ahead from its file
    classes: tuple[str, ...] = ()  # names in the order of the labels, if they have names
    skipped: int = 0  # broken images that were left out

    @property
    def subsets(self) -> dict[str, Subset]:
        """What can be judged: "training", and "validation" and "test" unless they are empty."""
        judged = (self.x_test, self.y_test) if self.validation == "test" else (self.x, self.y)
        named = {
            "training": Subset(self.x, self.y, self.training_rows),
            "validation": Subset(*judged, self.validation_rows),
            "test": Subset(self.x_test, self.y_test, self.test_rows),
        }
        return {name: subset for name, subset in named.items() if len(subset.rows)}

    def announce(self, trial: Trial) -> None:
        """Say what a reader of the trial's results must know."""
        if self.validation == "test":
            said = "the test set chooses the best epoch, so test_accuracy flatters"
            print(f"dataset.validation=test: {said}", flush=True)
            trial.note("dataset.validation=test", said)
        if self.classes:
            trial.note("classes", list(self.classes))

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """The training rows in the order of an epoch: a function of (seed, epoch) alone, so that it can be repeated."""
        return epoch_order(self.training_rows, seed, epoch, self.with_replacement)


def load(section: DictConfig, task: str, seed: int) -> Data:
    """Load the dataset of a config section; `seed` chooses its subset and what is held out for validation.

    Raises ValueError where labels don't suit the task.
    """
    section = OmegaConf.create(DATASET | dict(section))
    pool = _pool(section, task)
    validation = section.validation
    rows, held_out = np.random.default_rng(seed).permutation(pool.train), pool.validation
    rows = rows[: subset_size(len(rows), section.subset)]
    if validation == "test":
        held_out = pool.test
    elif validation == "split" and not len(held_out):
        kept = training_size(len(rows), section.validation_split)
        rows, held_out = rows[:kept], rows[kept:]
    return Data(
        x=pool.x,
        y=pool.y,
        training_rows=rows,
        validation_rows=held_out[:0] if validation == "none" else held_out,
        x_test=pool.x_test,
        y_test=pool.y_test,
        test_rows=pool.test,
        outputs=pool.outputs,
        validation=validation,
        with_replacement=section.batches == "with",
        one_hot=section.labels == "one_hot",
        augment=parse(section.augment),
        resident=isinstance(pool.x, np.ndarray) or pool.x.nbytes <= section.resident_gb * GB,
        classes=pool.classes,
        skipped=pool.skipped,
    )


def _pool(section: DictConfig, task: str) -> Pool:
    """All examples of a dataset, before any choice among them."""
    source = make("dataset", section)
    size, place = section.size, (section.cache, section.cache_gb)
    if isinstance(source, ImageFolder):
        return decoded(source, image_size(size), *place)
    (x, y), (x_test, y_test) = source
    x, x_test = _inputs(x), _inputs(x_test)
    if task == "classification":
        y, y_test = np.asarray(y), np.asarray(y_test)
        labels.check(section.get("path") or section["_target_"], y, y_test)
    y, y_test = _labels(y, task), _labels(y_test, task)
    outputs = int(y.max()) + 1 if task == "classification" else int(y.shape[1])
    if size is None:
        return from_arrays(x, y, x_test, y_test, outputs)
    return resized((x, y), (x_test, y_test), image_size(size), *place, outputs)


def epoch_order(rows: np.ndarray, seed: int, epoch: int, with_replacement: bool = False) -> np.ndarray:
    """As many of `rows` as there are, shuffled or drawn: a function of (seed, epoch) alone."""
    random = np.random.default_rng([seed, epoch])
    return random.choice(rows, len(rows)) if with_replacement else random.permutation(rows)


def _inputs(x: Any) -> np.ndarray:
    array = np.asarray(x)
    return array if array.dtype in (np.uint8, np.float32) else array.astype(np.float32)


def _labels(y: Any, task: str) -> np.ndarray:
    array = np.asarray(y)
    if task == "regression":
        return array.astype(np.float32).reshape(len(array), int(np.prod(array.shape[1:])))
    return array.astype(np.int32).reshape(-1)
