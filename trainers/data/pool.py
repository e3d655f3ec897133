"""All examples of a dataset, before any choice among them."""

from dataclasses import dataclass

import numpy as np

from trainers.data.on_disk import OnDisk


@dataclass(frozen=True)
class Pool:
    """Examples, and which of them are for what. Rows are int32."""

    x: np.ndarray | OnDisk
    y: np.ndarray
    train: np.ndarray  # rows of x
    validation: np.ndarray  # rows of x; empty: to be held out of train
    x_test: np.ndarray | OnDisk  # may be x
    y_test: np.ndarray
    test: np.ndarray  # rows of x_test; empty: there is no test set
    outputs: int  # classes, or length of y
    classes: tuple[str, ...] = ()  # names in the order of the labels
    skipped: int = 0  # broken images


def from_arrays(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, outputs: int) -> Pool:
    """Training and test set of a source; nothing is held out for validation."""
    train, test = (np.arange(len(array), dtype=np.int32) for array in (x, x_test))
    return Pool(x, y, train, train[:0], x_test, y_test, test, outputs)
