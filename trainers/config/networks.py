"""The networks of keras.applications: a table, because importing Keras would take a check
seconds."""

import csv
import difflib
import math
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple


class Network(NamedTuple):
    """A network of keras.applications, without its classifier."""

    parameters: int  # number of weights, moving statistics included
    features: int  # length of its output
    least: int  # smallest side of an image, in pixels


def _read(file: Path) -> dict[str, Network]:
    with file.open(newline="") as lines:
        return {name: Network(*map(int, numbers)) for name, *numbers in list(csv.reader(lines))[1:]}


NETWORKS = _read(Path(__file__).with_suffix(".csv"))
SUFFIXES = (".h5", ".keras", ".hdf5")
OF_A_BASE = ("fine_tune", "head_epochs", "fine_tune_lr", "weights")
APPLICATION = "trainers.networks.application"
CNN = "trainers.networks.cnn"


def canonical_name(name: str) -> str:
    """Return the network's name as keras.applications spells it. Raises ValueError if there is no
    such network."""
    names = {network.lower(): network for network in NETWORKS}
    key = str(name).lower()
    if key in names:
        return names[key]
    nearest = difflib.get_close_matches(key, names, 3) or ["resnet50v2", "mobilenetv2"]
    raise ValueError(
        f"model.name={'null' if name is None else name}: no network of keras.applications; "
        f"try {' or '.join(names[network] for network in nearest)}"
    )


def check(model: Mapping[str, Any], epochs: int) -> None:
    """Raise ValueError if the network does not exist, or cannot be trained as `fine_tune` says."""
    if model.get("_target_") != APPLICATION:
        _check_no_base(model, [key for key in OF_A_BASE if model.get(key)])
        return
    name = canonical_name(model.get("name", ""))
    weights = model.get("weights")
    if weights not in (None, "imagenet", "random"):
        check_weights(name, str(weights))
    _check_fine_tuning(model, weights, epochs)


def check_example(model: Mapping[str, Any], shape: tuple[int, ...], source: str = "") -> None:
    """Raise ValueError if the network takes no example of this shape; `source` is the data set's
    name."""
    target = model.get("_target_")
    example = f"an example{source and f' of {source}'} has shape {shape}"
    if target == CNN and len(shape) not in (2, 3):
        raise ValueError(f"model=cnn needs images, but {example}; try model=mlp")
    if target != APPLICATION:
        return
    name = canonical_name(model.get("name", ""))
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[-1] not in (1, 3)):
        raise ValueError(f"model.name={name} needs images of 1 or 3 channels, but {example}")
    least = NETWORKS[name].least
    if min(shape[:2]) < least:
        raise ValueError(
            f"model.name={name} needs images of {least} x {least} pixels or more, not {shape[0]} x"
            f" {shape[1]}; try dataset.size={max(least, 64)}"
        )


def check_ignored(model: Mapping[str, Any]) -> None:
    """Raise ValueError for a setting of fine-tuning that would change nothing."""
    if model.get("_target_") != APPLICATION:
        _check_no_base(model, [key for key in OF_A_BASE if model.get(key) is not None])
    elif model.get("fine_tune_lr") is not None and not model.get("head_epochs"):
        raise ValueError(
            f"model.fine_tune_lr={model['fine_tune_lr']} is the learning rate after"
            " model.head_epochs, and has no effect with model.head_epochs=0; try"
            f" lr={model['fine_tune_lr']}, or model.head_epochs=2"
        )


def _check_no_base(model: Mapping[str, Any], keys: Sequence[str]) -> None:
    if keys and str(model.get("_target_")).startswith("trainers.networks."):
        raise ValueError(
            f"model.{keys[0]}={model[keys[0]]}: this model has no base to fine-tune; try"
            " model=mobilenetv2"
        )


def _check_fine_tuning(model: Mapping[str, Any], weights: object, epochs: int) -> None:
    fine_tune = model.get("fine_tune", True)
    head = model.get("head_epochs", 0)
    if weights is None and (fine_tune is not True or head):
        setting = (
            f"head_epochs={head}" if fine_tune is True else f"fine_tune={str(fine_tune).lower()}"
        )
        raise ValueError(
            f"model.{setting} with model.weights=null: the base would be frozen with random"
            f" weights. Use model.weights=imagenet or a file of weights, remove model.{setting}, or"
            " confirm with model.weights=random"
        )
    if fine_tune is False and head:
        raise ValueError(
            f"model.head_epochs={head} has no effect with model.fine_tune=false. Remove one of"
            " the two"
        )
    if head and head >= epochs:
        raise ValueError(
            f"model.head_epochs={head} leaves none of {epochs} epochs for fine-tuning; try"
            f" epochs={head + 5}"
        )


def check_weights(name: str, path: str) -> None:
    """Raise ValueError unless the headers of the file at `path` fit the network."""
    file = Path(path)
    if not file.is_file():
        problem = "is a folder" if file.is_dir() else "does not exist"
        raise ValueError(
            f"model.weights={path} {problem} (seen from {Path.cwd()}); it must be null, imagenet or"
            " a file of weights"
        )
    if file.suffix not in SUFFIXES:
        raise ValueError(
            f"model.weights={path}: must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        )
    _check_parameters(name, path, file.stat().st_mtime_ns)


@lru_cache
def _check_parameters(name: str, path: str, mtime_ns: int) -> None:
    try:
        count = _count_weights(path)
    except (OSError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise ValueError(f"model.weights={path} is no file of weights ({error})") from None
    expected, features, _ = NETWORKS[name]
    classes, rest = divmod(count - expected, features + 1)
    if rest == 0 and classes > 0 and not path.endswith((".weights.h5", ".keras")):
        raise ValueError(
            f"model.weights={path} contains {name} with a classifier of {classes} classes. "
            "Use the file without the classifier (its name ends in notop.h5 or no_top.h5)"
        )
    if rest or classes < 0:
        match = next(
            (other for other, network in NETWORKS.items() if network.parameters == count), None
        )
        raise ValueError(
            f"model.weights={path} belongs to another network: it contains {count:,} weights,"
            f" {name} has {expected:,}" + (f"; try model.name={match}" if match else "")
        )


def _count_weights(path: str) -> int:
    """Return the number of weights in a file, without the optimizer's.

    Raises ValueError if the file contains a whole model around its base.
    """
    import h5py

    sizes: list[int] = []

    def add(where: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and not where.startswith("optimizer"):
            if where.count("layers/") > 1:
                raise ValueError(
                    f"model.weights={path} contains a whole model. Use the weights of its base"
                    ' alone, as its save_weights("base.weights.h5") writes them'
                )
            sizes.append(math.prod(node.shape))

    with ExitStack() as opened:
        file: Any = path
        if path.endswith(".keras"):
            file = opened.enter_context(zipfile.ZipFile(path).open("model.weights.h5"))
        opened.enter_context(h5py.File(file)).visititems(add)
    return sum(sizes)
