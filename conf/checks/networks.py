"""What is known of the networks in keras.applications, which a check has no time to import."""

import difflib
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

NAMES = (
    *("ConvNeXtBase", "ConvNeXtLarge", "ConvNeXtSmall", "ConvNeXtTiny", "ConvNeXtXLarge"),
    *("DenseNet121", "DenseNet169", "DenseNet201", *(f"EfficientNetB{i}" for i in range(8))),
    *("EfficientNetV2B0", "EfficientNetV2B1", "EfficientNetV2B2", "EfficientNetV2B3"),
    *("EfficientNetV2L", "EfficientNetV2M", "EfficientNetV2S", "InceptionResNetV2", "InceptionV3"),
    *("MobileNet", "MobileNetV2", "MobileNetV3Large", "MobileNetV3Small", "NASNetLarge", "NASNetMobile"),
    *("ResNet50", "ResNet101", "ResNet152", "ResNet50V2", "ResNet101V2", "ResNet152V2"),
    *("VGG16", "VGG19", "Xception"),
)
SMALLEST = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}
"""Pixels of a side, at least; all others take 32."""
PARAMETERS = {
    "ResNet50V2": (23_564_800, 2048),
    "ResNet152V2": (58_331_648, 2048),
    "MobileNetV2": (2_257_984, 1280),
    "EfficientNetV2B0": (5_919_312, 1280),
}
"""Of the base alone, moving statistics included, and the features that it ends in."""
SUFFIXES = (".h5", ".keras", ".hdf5")
APPLICATION = "trainers.networks.application"


def named(name: str) -> str:
    """The network as keras.applications spells it. Raises ValueError if there is none."""
    known = {one.lower(): one for one in NAMES}
    if str(name).lower() in known:
        return known[str(name).lower()]
    near = difflib.get_close_matches(str(name).lower(), known, 3) or ["resnet50v2", "mobilenetv2"]
    raise ValueError(
        f"model.name={'null' if name is None else name}: no network of keras.applications; "
        f"try {' or '.join(known[one] for one in near)}"
    )


def check(model: Mapping[str, Any], shape: tuple[int, ...] | None, gpus: int, epochs: int) -> None:
    """Raise ValueError if the network cannot be had, takes no example of that shape (None: unknown), or is not to be
    trained as `fine_tune` says.
    """
    if gpus > 1 and model.get("jit"):
        raise ValueError(f"model.jit=true does not work with gpus={gpus}; leave it out, or use gpus=1")
    if model.get("_target_") != APPLICATION:
        _check_no_base(model)
        return
    name, weights = named(model.get("name", "")), model.get("weights")
    if shape is not None:
        _check_shape(name, shape)
    if weights not in (None, "imagenet", "random"):
        check_weights(name, str(weights))
    _check_fine_tuning(model, weights, epochs)


def _check_no_base(model: Mapping[str, Any]) -> None:
    given = [key for key in ("fine_tune", "head_epochs", "fine_tune_lr", "weights") if model.get(key)]
    if given and str(model.get("_target_")).startswith("trainers.networks."):
        raise ValueError(
            f"model.{given[0]}={model[given[0]]}: this model has no base to fine-tune; try model=mobilenetv2"
        )


def _check_shape(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[-1] not in (1, 3)):
        raise ValueError(f"model.name={name} needs images of 1 or 3 channels, but an example has shape {shape}")
    least = SMALLEST.get(name, 32)
    if min(shape[:2]) < least:
        raise ValueError(
            f"model.name={name} takes images of {least} x {least} pixels or more, not {shape[0]} x {shape[1]}; "
            f"try dataset.size={max(least, 64)}"
        )


def _check_fine_tuning(model: Mapping[str, Any], weights: object, epochs: int) -> None:
    fine_tune, head = model.get("fine_tune", True), model.get("head_epochs", 0)
    if weights is None and (fine_tune is not True or head):
        said = f"head_epochs={head}" if fine_tune is True else f"fine_tune={str(fine_tune).lower()}"
        raise ValueError(
            f"model.{said} with model.weights=null: the base would stay as the seed drew it; give "
            "model.weights=imagenet or a file, leave it out, or mean it: model.weights=random"
        )
    if fine_tune is False and head:
        raise ValueError(f"model.head_epochs={head} with model.fine_tune=false: the head learns alone anyway")
    if head and head >= epochs:
        raise ValueError(
            f"model.head_epochs={head} leaves nothing of {epochs} epochs for fine-tuning; try epochs={head + 5}"
        )


def check_weights(name: str, path: str) -> None:
    """Raise ValueError unless `path` is a file of weights for that network, as far as its headers tell."""
    file = Path(path)
    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise ValueError(
            f"model.weights={path} {what} (seen from {Path.cwd()}); it must be null, imagenet or a file of weights"
        )
    if file.suffix not in SUFFIXES:
        raise ValueError(f"model.weights={path}: must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if file.suffix == ".keras" or name not in PARAMETERS:
        return  # zipped, or not known by heart: Keras itself compares when it loads them
    _check_parameters(name, path, file.stat().st_mtime_ns)


@lru_cache
def _check_parameters(name: str, path: str, mtime_ns: int) -> None:
    import h5py

    count = 0

    def add(where: str, node: Any) -> None:
        nonlocal count
        if isinstance(node, h5py.Dataset) and not where.startswith("optimizer"):
            count += math.prod(node.shape)

    try:
        with h5py.File(path) as opened:
            opened.visititems(add)
    except OSError as error:
        raise ValueError(f"model.weights={path} is no file of weights ({error})") from error
    expected, features = PARAMETERS[name]
    head = count - expected
    if head == 0 or (path.endswith(".weights.h5") and head > 0 and head % (features + 1) == 0):
        return
    if head > 0 and head % (features + 1) == 0:
        raise ValueError(
            f"model.weights={path} holds {name} with its {head // (features + 1)} classes on top; "
            "give the file without them (its name ends in notop.h5 or no_top.h5)"
        )
    fitting = next((other for other, (size, _) in PARAMETERS.items() if size == count), None)
    hint = f"; try model={fitting.lower()}" if fitting else ""
    raise ValueError(
        f"model.weights={path} belongs to another network: it holds {count:,} numbers, {name} has {expected:,}{hint}"
    )
