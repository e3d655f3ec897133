"""The confusion matrix of a saved model."""

from itertools import pairwise
from typing import Any

import keras
import numpy as np
from sklearn.metrics import confusion_matrix

from sweeps.trial import Trial
from trainers.compiled import evaluation_bounds
from trainers.data.arrays import Data
from trainers.data.on_disk import OnDisk


def record(trial: Trial, model: keras.Model, dataset: Data) -> None:
    """Record the confusion matrix of the test set, or of the validation set if there is no test
    set."""
    name = next((name for name in ("test", "validation") if name in dataset.subsets), None)
    if name is None:
        return
    x, y, rows = dataset.subsets[name]
    bounds = evaluation_bounds(x, len(rows))
    predicted = [_predict(model, x, rows[start:end]) for start, end in pairwise(bounds)]
    classes = [*(dataset.classes or map(str, range(dataset.outputs)))]
    matrix = confusion_matrix(y[rows], np.concatenate(predicted), labels=range(dataset.outputs))
    trial.record_confusion(name, classes, matrix.tolist())


def _predict(model: keras.Model, x: np.ndarray | OnDisk, rows: np.ndarray) -> Any:
    """Return the predicted classes of these rows, shape (rows,)."""
    examples = x.take(rows) if isinstance(x, OnDisk) else x[rows]
    examples = examples.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)
    return np.argmax(model.predict_on_batch(examples), axis=-1)
