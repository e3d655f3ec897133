"""Whether a dataset, or weights, that Keras downloads are here, or can be had from where this runs."""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from trainers.config.networks import APPLICATION, canonical_name

_GOOGLE, _TORONTO = "https://storage.googleapis.com/tensorflow/tf-keras-datasets", "https://www.cs.toronto.edu/~kriz"
PLACES = {
    "mnist": ("mnist.npz", f"{_GOOGLE}/mnist.npz"),
    "fashion_mnist": ("fashion-mnist", f"{_GOOGLE}/train-labels-idx1-ubyte.gz"),
    "cifar10": ("cifar-10-batches-py-target", f"{_TORONTO}/cifar-10-python.tar.gz"),
    "cifar100": ("cifar-100-python-target", f"{_TORONTO}/cifar-100-python.tar.gz"),
}
"""What each is called in Keras' folder of datasets, and where Keras 3.15 takes it from."""
_ANSWER_S = 5.0
_WEIGHTS = "https://storage.googleapis.com/tensorflow/keras-applications/"


def check(dataset: Mapping[str, Any]) -> None:
    """Raise ValueError, for the user, if training could not begin for want of a network."""
    name = str(dataset.get("name"))
    wanted = str(dataset.get("_target_")).endswith(".keras_dataset") and dataset.get("path") is None
    if not wanted or name not in PLACES:
        return
    file, address = PLACES[name]
    if not any((folder / "datasets" / file).exists() for folder in _folders()):
        copy = f"Give a local copy: dataset={name} dataset.path=my.npz, with x_train, y_train, x_test, y_test"
        _check_reachable(f"dataset={name}", address, copy)


def check_weights(model: Mapping[str, Any]) -> None:
    """Raise ValueError, for the user, if the weights of a network cannot be had for want of another."""
    if model.get("_target_") != APPLICATION or model.get("weights") != "imagenet":
        return
    name = _letters(canonical_name(model.get("name", "")))
    if not any(name in _letters(file.name) for folder in _folders() for file in (folder / "models").glob("*.h5")):
        copy = "Give a file that was: model.weights=my_notop.h5, from ~/.keras/models; or model.weights=null"
        _check_reachable("model.weights=imagenet", _WEIGHTS, copy)


def _check_reachable(what: str, address: str, remedy: str) -> None:
    if why := _unreachable(address):
        host = address.split("/")[2]
        raise ValueError(f"{what} is downloaded once, and {host} cannot be reached from here: {why}\n{remedy}")


def keras_home() -> Path:
    """Where Keras keeps what it downloads."""
    return Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))


def _folders() -> tuple[Path, ...]:
    return keras_home(), Path("/tmp/.keras")  # noqa: S108 - Keras' own


def _letters(name: str) -> str:
    """Of a network, as its class and its files have them in common."""
    return re.sub("[^a-z0-9]", "", name.lower())


@cache
def _unreachable(address: str) -> str:
    """Why nobody answers there; empty if somebody does."""
    try:
        with urlopen(Request(address, method="HEAD"), timeout=_ANSWER_S):  # noqa: S310 - one of ours
            return ""
    except HTTPError:  # it was reached; what it makes of GET, the download will tell
        return ""
    except OSError as error:
        return str(getattr(error, "reason", error))
