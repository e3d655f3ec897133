"""Sources of datasets: callables that return ((x_train, y_train), (x_test, y_test))."""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from sweeps.trial import staged
from trainers.data.dataset import Split
from trainers.data.download import keras_home


def digits() -> Split:
    """Return scikit-learn's handwritten digits: 1,500 + 297 images of 8 x 8 pixels in 0..1."""
    from trainers.data.digits import SPLIT

    return SPLIT


def npz(path: str) -> Split:
    """Return the arrays x_train, y_train, x_test and y_test of a .npz file; pickled objects are
    never loaded."""
    with np.load(staged(path), allow_pickle=False) as file:
        return (file["x_train"], file["y_train"]), (file["x_test"], file["y_test"])


def keras_dataset(name: str, path: str | None = None) -> Split:
    """Return the .npz file `path`, or if it is None the dataset `name` of keras.datasets,
    downloaded once."""
    if path is not None:
        return npz(path)
    import keras

    with one_download():
        try:
            split: Split = getattr(keras.datasets, name).load_data()
        except Exception as error:
            error.add_note(
                f"Without a network, use a local file: dataset={name} dataset.path=my.npz"
            )
            raise
    return split


@contextmanager
def one_download() -> Iterator[None]:
    """Wait until no other process downloads, because Keras writes to the final name, where others
    read half a file."""
    (keras_home() / "models").mkdir(parents=True, exist_ok=True)
    with (keras_home() / "sweepyard.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def points(x: Sequence[float], y: Sequence[float]) -> Split:
    """Return the points (x, y), where x and y are numbers or lists of numbers, and an empty test
    set."""
    inputs, outputs = (np.asarray(values, np.float32).reshape(len(values), -1) for values in (x, y))
    return (inputs, outputs), (inputs[:0], outputs[:0])


def line(points: int, test_points: int, inputs: int, noise: float) -> Split:
    """Return points of y = Wx + b with x in -1..1 and normal noise, the same points in each
    call."""
    random = np.random.default_rng(0)
    weights = random.normal(size=(inputs, 1))
    bias = random.normal()
    x = random.uniform(-1, 1, size=(points + test_points, inputs))
    y = x @ weights + bias + random.normal(scale=noise, size=(len(x), 1))
    return (x[:points], y[:points]), (x[points:], y[points:])
