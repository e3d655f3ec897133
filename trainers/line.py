"""What a line y = Wx + b has become, and what it could have been."""

import keras
import numpy as np
from keras import layers

_MOST_INPUTS = 8


def is_line(model: keras.Model) -> bool:
    """Whether it is such a line, with one output."""
    dense = [layer for layer in model.layers if not isinstance(layer, layers.Flatten)]
    return len(dense) == 1 and isinstance(dense[0], layers.Dense) and dense[0].units == 1


def line_of(model: keras.Model, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """weight, bias, mse and r2 (share of the variance that is explained) of the line on the points, x of shape
    (rows, ...) and y of (rows, 1). With several inputs: weight_0, weight_1, ...
    """
    weights, bias = model.get_weights()
    return _described(np.append(weights, bias), x, y)


def least_squares(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The same of the line with the least mse, as sklearn.linear_model.LinearRegression finds it (Gauss, 1809); nothing
    for more than 8 inputs, whose weights nobody compares.
    """
    if np.prod(x.shape[1:]) > _MOST_INPUTS:
        return {}
    return _described(np.linalg.lstsq(_with_ones(x), y.astype(np.float64), rcond=None)[0], x, y)


def _described(line: np.ndarray, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Of the weights and the bias after them."""
    line = line.astype(np.float64).reshape(-1, 1)
    *weights, bias = line[:, 0].tolist()
    names = ["weight"] if len(weights) == 1 else [f"weight_{i}" for i in range(len(weights))]
    mse, spread = float(np.mean((y - _with_ones(x) @ line) ** 2)), float(np.var(y, dtype=np.float64))
    fit = {"mse": mse, "r2": 1 - mse / spread} if spread > 0 else {"mse": mse}
    return {**dict(zip(names, weights, strict=True)), "bias": bias, **fit}


def _with_ones(x: np.ndarray) -> np.ndarray:
    points = x.reshape(len(x), -1).astype(np.float64)
    if x.dtype == np.uint8:  # as it is trained on
        points /= 255
    return np.hstack([points, np.ones((len(x), 1))])
