"""Parameters and fit of a trained line y = Wx + b, and of the least-squares line."""

import keras
import numpy as np
from keras import layers

_MAX_INPUTS = 8


def is_line(model: keras.Model) -> bool:
    """Return whether the model is a line y = Wx + b with one output."""
    dense = [layer for layer in model.layers if not isinstance(layer, layers.Flatten)]
    return len(dense) == 1 and isinstance(dense[0], layers.Dense) and dense[0].units == 1


def line_of(model: keras.Model, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return weight, bias, mse and r2 (explained fraction of the variance) of the model on points.

    x has shape (rows, ...), y has shape (rows, 1). With several inputs: weight_0, weight_1, ...
    """
    weights, bias = model.get_weights()
    return _describe(np.append(weights, bias), x, y)


def least_squares(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return weight, bias, mse and r2 of the line with the least mse (Gauss, 1809), as
    scikit-learn's LinearRegression.

    The result is empty for more than 8 inputs, because nobody compares so many weights.
    """
    if np.prod(x.shape[1:]) > _MAX_INPUTS:
        return {}
    line, *_ = np.linalg.lstsq(_with_ones(x), y.astype(np.float64), rcond=None)
    return _describe(line, x, y)


def _describe(line: np.ndarray, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the metrics of a line; `line` contains the weights, then the bias."""
    line = line.astype(np.float64).reshape(-1, 1)
    *weights, bias = line[:, 0].tolist()
    metrics = {f"weight_{index}": weight for index, weight in enumerate(weights)}
    if len(weights) == 1:
        metrics = {"weight": weights[0]}
    metrics["bias"] = bias

    errors = y - _with_ones(x) @ line
    metrics["mse"] = float(np.mean(errors**2))
    variance = float(np.var(y, dtype=np.float64))
    if variance > 0:
        metrics["r2"] = 1 - metrics["mse"] / variance
    return metrics


def _with_ones(x: np.ndarray) -> np.ndarray:
    points = x.reshape(len(x), -1).astype(np.float64)
    if x.dtype == np.uint8:  # because the model trains on 0..1
        points /= 255
    return np.hstack([points, np.ones((len(x), 1))])
