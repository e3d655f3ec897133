"""The arrays of a loaded dataset."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sweeps.trial import Trial
from trainers.config.augment import Augment
from trainers.data.on_disk import OnDisk


class Subset(NamedTuple):
    """Rows of two arrays."""

    x: np.ndarray | OnDisk
    y: np.ndarray
    rows: np.ndarray  # int32


@dataclass(frozen=True, eq=False)
class Data:
    """A dataset. Training, validation and test set are rows (int32) of arrays, which stay whole.

    x and x_test are uint8 (pixels of 0..255) or float32, shape (rows, *input_shape); from the
    cache, both are the same `OnDisk`. y and y_test are int32 classes, shape (rows,), or float32
    values, shape (rows, outputs).
    """

    x: np.ndarray | OnDisk
    y: np.ndarray
    training_rows: np.ndarray
    validation_rows: np.ndarray  # rows of x_test if validation="test", empty if "none"
    x_test: np.ndarray | OnDisk
    y_test: np.ndarray
    test_rows: np.ndarray  # empty if the dataset has no test set
    outputs: int  # number of classes, or values per row of y
    validation: str = "split"  # "split", "test": the test set, or "none": only the training loss
    with_replacement: bool = False  # whether an epoch samples rows with replacement
    one_hot: bool = False  # whether the loss gets one-hot labels
    augment: Augment | None = None
    resident: bool = True  # whether x is in memory; else it is read ahead from its file
    classes: tuple[str, ...] = ()  # names of the labels, in order; empty without names
    skipped: int = 0  # number of skipped broken images

    @property
    def subsets(self) -> dict[str, Subset]:
        """Return the subsets that are not empty, by name: "training", "validation" and "test"."""
        validation = (self.x_test, self.y_test) if self.validation == "test" else (self.x, self.y)
        subsets = {
            "training": Subset(self.x, self.y, self.training_rows),
            "validation": Subset(*validation, self.validation_rows),
            "test": Subset(self.x_test, self.y_test, self.test_rows),
        }
        return {name: subset for name, subset in subsets.items() if len(subset.rows)}

    def announce(self, trial: Trial) -> None:
        """Note the facts that a reader of the trial's results must know."""
        if self.validation == "test":
            warning = "the test set chooses the best epoch, so test_accuracy is too optimistic"
            print(f"dataset.validation=test: {warning}", flush=True)
            trial.note("dataset.validation=test", warning)
        if self.classes:
            trial.note("classes", list(self.classes))

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """Return the training rows in the order of an epoch, a function of only (seed, epoch), so
        repeatable."""
        return epoch_order(self.training_rows, seed, epoch, self.with_replacement)


def epoch_order(
    rows: np.ndarray, seed: int, epoch: int, with_replacement: bool = False
) -> np.ndarray:
    """Shuffle `rows`, or sample as many with replacement: a function of only (seed, epoch)."""
    random = np.random.default_rng([seed, epoch])
    return random.choice(rows, len(rows)) if with_replacement else random.permutation(rows)
