"""Models. Each is f(input_shape, outputs, **hyperparameters) -> keras.Model and returns logits,
without a softmax.

input_shape: shape of one example; outputs: number of classes, or of values to predict. Pixels are
0..1.
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
    """Build the model of a config section, not yet compiled. Raises ValueError if the input shape
    is unsuitable."""
    check_example(section, input_shape)
    model: keras.Model = make("model", section, input_shape=input_shape, outputs=outputs)
    return model


@contextmanager
def precision(mixed: bool, replicas: int = 1) -> Iterator[None]:
    """Set the dtype policy for layers made inside: 16 bits if `mixed`; weights and the loss keep 32
    bits.

    bfloat16 on CPUs and on GPUs from Ampere on; float16, with Keras' loss scaling, on older GPUs.
    Raises ValueError for several older GPUs, because each would scale the loss by its own share of
    a batch.
    """
    previous = keras.config.dtype_policy()
    if mixed:
        gpus = [
            tf.config.experimental.get_device_details(gpu)
            for gpu in tf.config.get_visible_devices("GPU")
        ]
        old = any(gpu.get("compute_capability", (8, 0)) < (8, 0) for gpu in gpus)
        if old and replicas > 1:
            raise ValueError(
                "mixed_precision=true: impossible on several GPUs older than Ampere; remove it, or"
                " use one"
            )
        keras.config.set_dtype_policy("mixed_float16" if old else "mixed_bfloat16")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(previous)


def linear(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    initial_weight: float | None = None,
    initial_bias: float | None = None,
) -> keras.Model:
    """Build y = Wx + b. Without initial values, W is random (by the seed) and b is 0."""
    kernel = (
        "glorot_uniform" if initial_weight is None else keras.initializers.Constant(initial_weight)
    )
    bias = "zeros" if initial_bias is None else keras.initializers.Constant(initial_bias)
    dense = layers.Dense(outputs, kernel_initializer=kernel, bias_initializer=bias, dtype="float32")
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), dense])


def mlp(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    hidden: Sequence[int],
    activation: str,
    dropout: float,
) -> keras.Model:
    """Build dense layers of `hidden` units, each followed by dropout."""
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
    """Build blocks of convolution and 2 x 2 max pooling, then dense layers, for images with or
    without channels."""
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
    """Build a network of keras.applications (the base) with its preprocessing, average pooling and
    a dense layer.

    name: as in keras.applications, in any case. weights: of the base. None or "random": random by
    the seed; "imagenet": downloaded once; else a local file. dropout: before the dense layer.

    An image of one channel is repeated in three channels. Raises ValueError if the weights are
    unavailable.
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
    """Download the weights of a config section's network if they are missing.

    Ranks call this function before they build the network together, because building waits for all
    ranks.
    """
    if section.get("weights") == "imagenet":
        build(section, input_shape, 1)


def _with_weights(maker: Any, weights: str | None, input_shape: tuple[int, ...]) -> keras.Model:
    options = {"include_top": False, "input_shape": input_shape}
    if weights != "imagenet":
        return maker(weights=None if weights == "random" else weights, **options)
    # One at a time until the first success, because Keras downloads inside of `maker`.
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
            f"model.weights=imagenet: the weights cannot be downloaded ({reason})\nUse"
            " model.weights=FILE, copied from ~/.keras/models of another machine, or"
            " model.weights=null"
        ) from error


def base_of(model: keras.Model) -> keras.Model | None:
    """Return the network inside a model, below its head; None if there is none."""
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
    model: keras.Model,
    weights: Sequence[np.ndarray] | None,
    folder: Path,
    input_shape: tuple[int, ...],
    outputs: int,
) -> keras.Model:
    """Write a model and its signature atomically, in MLflow's format; `weights`, if not None,
    replace the model's.

    Keras can read `folder`/data/model.keras. Returns the model as written.
    """
    import mlflow.keras  # here, because it takes 0.7 s
    from mlflow.models.signature import ModelSignature
    from mlflow.types import Schema, TensorSpec

    if isinstance(model, keras.Sequential) or type(model).__name__ == "Functional":
        weights = weights or model.get_weights()
        # A new model, because without an optimizer, schedule or loss it loads anywhere; clone_model
        # would compile it.
        model = type(model).from_config(model.get_config())
    if weights:
        model.set_weights(weights)
    inputs, logits = (
        Schema([TensorSpec(np.dtype("float32"), (-1, *shape))])
        for shape in (input_shape, (outputs,))
    )
    # Listed here, because MLflow would search for minutes.
    requirements = [f"{package.__name__}=={package.__version__}" for package in (keras, tf)]
    unfinished = folder.with_name(f"writing-{folder.name}")
    for old in (unfinished, folder):  # of a lost attempt
        shutil.rmtree(old, ignore_errors=True)
    mlflow.keras.save_model(
        model,
        str(unfinished),
        signature=ModelSignature(inputs, logits),
        pip_requirements=requirements,
    )
    unfinished.rename(folder)
    return model
