"""Models. Each is f(input_shape, outputs, **hyperparameters) -> keras.Model and ends without a softmax.

input_shape is the shape of one example, outputs the number of classes or of values to predict.
"""

from collections.abc import Sequence

import keras
from keras import layers


def linear(input_shape: tuple[int, ...], outputs: int) -> keras.Model:
    """y = Wx + b."""
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), layers.Dense(outputs)])


def mlp(
    input_shape: tuple[int, ...], outputs: int, *, hidden: Sequence[int], activation: str, dropout: float
) -> keras.Model:
    """Dense layers of `hidden` units, each followed by dropout."""
    head = _dense(hidden, activation, dropout)
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), *head, layers.Dense(outputs)])


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
    """Blocks of convolution and 2 x 2 max pooling, then dense layers. Takes images with or without channels.

    Raises ValueError if an example is no image.
    """
    if len(input_shape) not in (2, 3):
        raise ValueError(f"model=cnn needs images, but an example has shape {input_shape}; try model=mlp")
    stack: list[layers.Layer] = [keras.Input(input_shape)]
    if len(input_shape) == 2:
        stack.append(layers.Reshape((*input_shape, 1)))
    for count in filters:
        stack.append(layers.Conv2D(count, kernel_size, padding="same", activation=activation))
        stack.append(layers.MaxPooling2D(padding="same"))
    stack += [layers.Flatten(), *_dense(hidden, activation, dropout), layers.Dense(outputs)]
    return keras.Sequential(stack)


def _dense(hidden: Sequence[int], activation: str, dropout: float) -> list[layers.Layer]:
    stack: list[layers.Layer] = []
    for units in hidden:
        stack.append(layers.Dense(units, activation=activation))
        if dropout > 0:
            stack.append(layers.Dropout(dropout))
    return stack
