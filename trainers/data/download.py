"""Checks that datasets and weights of Keras are downloaded already, or that their server is
reachable."""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from trainers.config.networks import APPLICATION, canonical_name

_GOOGLE = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"
_TORONTO = "https://www.cs.toronto.edu/~kriz"
PLACES = {
    "mnist": ("mnist.npz", f"{_GOOGLE}/mnist.npz"),
    "fashion_mnist": ("fashion-mnist", f"{_GOOGLE}/train-labels-idx1-ubyte.gz"),
    "cifar10": ("cifar-10-batches-py-target", f"{_TORONTO}/cifar-10-python.tar.gz"),
    "cifar100": ("cifar-100-python-target", f"{_TORONTO}/cifar-100-python.tar.gz"),
}
"""For each dataset: its name in Keras' folder of datasets, and the address from which Keras 3.15
downloads it."""
_TIMEOUT_S = 5.0
_WEIGHTS = "https://storage.googleapis.com/tensorflow/keras-applications/"


def check(dataset: Mapping[str, Any]) -> None:
    """Raise ValueError, for the user, if the dataset is neither downloaded nor reachable."""
    name = str(dataset.get("name"))
    needs_download = (
        str(dataset.get("_target_")).endswith(".keras_dataset") and dataset.get("path") is None
    )
    if not needs_download or name not in PLACES:
        return
    file, address = PLACES[name]
    if not any((folder / "datasets" / file).exists() for folder in _folders()):
        remedy = (
            f"Use a local copy: dataset={name} dataset.path=my.npz, with x_train, y_train, x_test,"
            " y_test"
        )
        _check_reachable(f"dataset={name}", address, remedy)


def check_weights(model: Mapping[str, Any]) -> None:
    """Raise ValueError, for the user, if the weights of a model are neither downloaded nor
    reachable."""
    if model.get("_target_") != APPLICATION or model.get("weights") != "imagenet":
        return
    name = _letters(canonical_name(model.get("name", "")))
    if not any(
        name in _letters(file.name)
        for folder in _folders()
        for file in (folder / "models").glob("*.h5")
    ):
        remedy = (
            "Use a downloaded file: model.weights=my_notop.h5, from ~/.keras/models; or"
            " model.weights=null"
        )
        _check_reachable("model.weights=imagenet", _WEIGHTS, remedy)


def _check_reachable(setting: str, address: str, remedy: str) -> None:
    if error := _connection_error(address):
        host = address.split("/")[2]
        raise ValueError(
            f"{setting} must be downloaded once, but {host} cannot be reached: {error}\n{remedy}"
        )


def keras_home() -> Path:
    """Return the folder of Keras' downloads."""
    return Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))


def _folders() -> tuple[Path, ...]:
    return keras_home(), Path("/tmp/.keras")  # noqa: S108 - Keras falls back to this folder


def _letters(name: str) -> str:
    """Return the letters and digits of a model's name, which are the same for its class and its
    files."""
    return re.sub("[^a-z0-9]", "", name.lower())


@cache
def _connection_error(address: str) -> str:
    """Return why an address is unreachable; "" if it is reachable."""
    try:
        request = Request(address, method="HEAD")  # noqa: S310 - a constant above
        with urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
            return ""
    except HTTPError:  # reachable, because a server may refuse HEAD but serve GET
        return ""
    except OSError as error:
        return str(getattr(error, "reason", error))
