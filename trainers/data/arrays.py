"""A dataset as a training sees it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sweeps.trial import Trial
from trainers.config.augment import Augment
from trainers.data.on_disk import OnDisk


class Subset(NamedTuple):
    """Some rows of two arrays."""

    x: np.ndarray | OnDisk
    y: np.ndarray
    rows: np.ndarray  # int32


@dataclass(frozen=True, eq=False)
class Data:
    """A dataset. The arrays stay whole: training and validation set are rows (int32) of the same two.

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


def epoch_order(rows: np.ndarray, seed: int, epoch: int, with_replacement: bool = False) -> np.ndarray:
    """As many of `rows` as there are, shuffled or drawn: a function of (seed, epoch) alone."""
    random = np.random.default_rng([seed, epoch])
    return random.choice(rows, len(rows)) if with_replacement else random.permutation(rows)


def from_arrays(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, outputs: int) -> Data:
    """Training and test set of a source; nothing is held out for validation."""
    train, test = (np.arange(len(array), dtype=np.int32) for array in (x, x_test))
    return Data(x, y, train, train[:0], x_test, y_test, test, outputs)
