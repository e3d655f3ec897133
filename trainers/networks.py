"""Models. Each is f(input_shape, outputs, **hyperparameters) -> keras.Model and ends without a softmax.

input_shape is the shape of one example, outputs the number of classes or of values to predict. Pixels are 0..1.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from omegaconf import DictConfig

from trainers.config.networks import canonical_name, check_example
from trainers.data.download import keras_home
from trainers.data.sources import one_download
from trainers.instantiate import make


def build(section: DictConfig, input_shape: tuple[int, ...], outputs: int) -> keras.Model:
    """The model of a config section, not yet compiled. Raises ValueError if it takes no such example."""
    check_example(section, input_shape)
    model: keras.Model = make("model", section, input_shape=input_shape, outputs=outputs)
    return model


@contextmanager
def precision(mixed: bool, replicas: int = 1) -> Iterator[None]:
    """Layers that are made inside compute in 16 bits if `mixed`; weights and what goes into the loss keep 32.

    bfloat16 wherever the hardware has it, and on CPUs; float16, for which Keras scales the loss, on older GPUs. Raises
    ValueError for several of those: each would scale the loss as its own share of a batch wants it.
    """
    before = keras.config.dtype_policy()
    if mixed:
        gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.get_visible_devices("GPU")]
        old = any(gpu.get("compute_capability", (8, 0)) < (8, 0) for gpu in gpus)
        if old and replicas > 1:
            raise ValueError(
                "mixed_precision=true is wrong on several GPUs older than Ampere; leave it out, or use one"
            )
        keras.config.set_dtype_policy("mixed_float16" if old else "mixed_bfloat16")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def linear(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    initial_weight: float | None = None,
    initial_bias: float | None = None,
) -> keras.Model:
    """y = Wx + b. Without initial values W is drawn by the seed and b is 0."""
    kernel = "glorot_uniform" if initial_weight is None else keras.initializers.Constant(initial_weight)
    bias = "zeros" if initial_bias is None else keras.initializers.Constant(initial_bias)
    dense = layers.Dense(outputs, kernel_initializer=kernel, bias_initializer=bias, dtype="float32")
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), dense])


def mlp(
    input_shape: tuple[int, ...], outputs: int, *, hidden: Sequence[int], activation: str, dropout: float
) -> keras.Model:
    """Dense layers of `hidden` units, each followed by dropout."""
    head = _dense(hidden, activation, dropout)
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), *head, _output(outputs)])


def cnn(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    filters: Sequence[int],
    kernel_size: int,
    hidden: Sequence[int],
    activation: str,
    dropout: float,
) -> keras.Model:
    """Blocks of convolution and 2 x 2 max pooling, then dense layers. Takes images with or without channels."""
    stack: list[layers.Layer] = [keras.Input(input_shape)]
    if len(input_shape) == 2:
        stack.append(layers.Reshape((*input_shape, 1)))
    for count in filters:
        stack.append(layers.Conv2D(count, kernel_size, padding="same", activation=activation))
        stack.append(layers.MaxPooling2D(padding="same"))
    stack += [layers.Flatten(), *_dense(hidden, activation, dropout), _output(outputs)]
    return keras.Sequential(stack)


def application(
    input_shape: tuple[int, ...], outputs: int, *, name: str, weights: str | None, dropout: float
) -> keras.Model:
    """A network of keras.applications (the base) with its own preprocessing, global average pooling and a dense layer.

    Args:
        name: as keras.applications has it, in any case.
        weights: of the base. None or "random": drawn by the seed; "imagenet": downloaded once; else a local file.
        dropout: before the dense layer.

    Images of one channel are shown to it as grey ones of three.

    Raises:
        ValueError: the weights cannot be had.
    """
    if len(input_shape) == 2:
        input_shape = (*input_shape, 1)
    maker = getattr(keras.applications, canonical_name(name))
    inputs = keras.Input(input_shape)
    pixels = layers.Rescaling(255.0, dtype="float32")(inputs)
    if input_shape[-1] == 1:
        pixels = layers.Concatenate(dtype="float32")([pixels] * 3)
    prepared = sys.modules[maker.__module__].preprocess_input(pixels)
    base = _with_weights(maker, weights, (*input_shape[:2], 3))
    features = layers.GlobalAveragePooling2D()(base(prepared))
    if dropout > 0:
        features = layers.Dropout(dropout)(features)
    return keras.Model(inputs, _output(outputs)(features))


def fetch(section: DictConfig, input_shape: tuple[int, ...]) -> None:
    """Download the weights of a config section's network, if it wants some that were never downloaded. Ranks do so
    before they build it together: one that waits for the other's download would keep it waiting.
    """
    if section.get("weights") == "imagenet":
        build(section, input_shape, 1)


def _with_weights(maker: Any, weights: str | None, input_shape: tuple[int, ...]) -> keras.Model:
    options = {"include_top": False, "input_shape": input_shape}
    if weights != "imagenet":
        return maker(weights=None if weights == "random" else weights, **options)
    # Keras downloads inside of `maker`: until one has ended well, they go one by one.
    done = keras_home() / "models" / f"sweepyard-{maker.__name__}-{input_shape[0]}x{input_shape[1]}"
    with one_download():
        if not done.exists():
            model = _with_imagenet(maker, options)
            done.touch()
            return model
    return _with_imagenet(maker, options)


def _with_imagenet(maker: Any, options: dict[str, Any]) -> keras.Model:
    try:
        return maker(weights="imagenet", **options)
    except Exception as error:
        if not isinstance(error, OSError) and "URL fetch failure" not in str(error):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"model.weights=imagenet needs a network to be downloaded once ({reason})\n"
            "Without one: model.weights=FILE, copied from a machine that has ~/.keras/models, or model.weights=null"
        ) from error


def base_of(model: keras.Model) -> keras.Model | None:
    """The network inside a model that its head stands on, if it has one."""
    return next((layer for layer in model.layers if isinstance(layer, keras.Model)), None)


def _dense(hidden: Sequence[int], activation: str, dropout: float) -> list[layers.Layer]:
    stack: list[layers.Layer] = []
    for units in hidden:
        stack.append(layers.Dense(units, activation=activation))
        if dropout > 0:
            stack.append(layers.Dropout(dropout))
    return stack


def _output(outputs: int) -> layers.Dense:
    return layers.Dense(outputs, dtype="float32")


def save(
    model: keras.Model, weights: Sequence[np.ndarray] | None, folder: Path, input_shape: tuple[int, ...], outputs: int
) -> None:
    """Write a model, with other `weights` if they are given, as a folder that MLflow logs, with its signature, or not
    at all. Any Keras reads `folder`/data/model.keras.
    """
    import mlflow.keras  # 0.7 s
    from mlflow.models.signature import ModelSignature
    from mlflow.types import Schema, TensorSpec

    if isinstance(model, keras.Sequential) or type(model).__name__ == "Functional":
        # One that was never compiled, which clone_model's is: neither optimizer, schedule nor loss are in the way of
        # whoever loads it.
        trained, model = model, type(model).from_config(model.get_config())
        model.set_weights(weights or trained.get_weights())
    elif weights:
        model.set_weights(weights)
    takes, gives = (Schema([TensorSpec(np.dtype("float32"), (-1, *one))]) for one in (input_shape, (outputs,)))
    needs = [f"{package.__name__}=={package.__version__}" for package in (keras, tf)]  # MLflow would look for minutes
    aside = folder.with_name(f"writing-{folder.name}")
    for old in (aside, folder):  # of an attempt that was lost
        shutil.rmtree(old, ignore_errors=True)
    mlflow.keras.save_model(model, str(aside), signature=ModelSignature(takes, gives), pip_requirements=needs)
    aside.rename(folder)
