"""Losses for classification that Keras lacks. Each takes logits of shape (batch, classes).

Labels are classes of shape (batch,) or rows of shape (batch, classes), such as one-hot rows: the
losses are the same.
"""

from typing import Any

import keras
import tensorflow as tf


class _Classification(keras.losses.Loss):  # type: ignore[misc]
    """Converts labels to rows of the logits' dtype for `of_rows`."""

    subclass_settings: tuple[str, ...] = ()
    """Names of a subclass's settings, for get_config."""

    def __init__(self, label_smoothing: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.label_smoothing = label_smoothing

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        classes = y_pred.shape[-1]
        if len(y_true.shape) < 2 or y_true.shape[-1] != classes:
            y_true = tf.one_hot(tf.cast(tf.reshape(y_true, (-1,)), tf.int32), classes)
        rows = tf.cast(y_true, y_pred.dtype)
        if self.label_smoothing:
            rows = rows * (1 - self.label_smoothing) + self.label_smoothing / classes
        return self.of_rows(rows, y_pred)

    def of_rows(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example, shape (batch,), or of the whole batch, shape ()."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        names = ("label_smoothing", *self.subclass_settings)
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable("sweepyard")
class Softmax(_Classification):
    """Cross entropy of a softmax over all classes; equal to `cross_entropy` and
    `sparse_softmax`."""

    def of_rows(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax_cross_entropy_with_logits(labels, logits)


@keras.saving.register_keras_serializable("sweepyard")
class Sigmoid(_Classification):
    """Binary cross entropy of each class against all others; the mean over classes.

    `pos_weight` is the weight of false negatives relative to false positives: above 1 it raises
    recall at the cost of precision (tf.nn.weighted_cross_entropy_with_logits).
    """

    subclass_settings = ("pos_weight",)

    def __init__(self, pos_weight: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.pos_weight = pos_weight

    def of_rows(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        each = tf.nn.weighted_cross_entropy_with_logits(labels, logits, self.pos_weight)
        return tf.reduce_mean(each, axis=-1)


@keras.saving.register_keras_serializable("sweepyard")
class Focal(_Classification):
    """Sigmoid cross entropy that gives little weight to well-classified examples; the mean over
    classes.

    -alpha_t (1 - p_t)^gamma log(p_t), with p_t the probability of the right answer and alpha_t =
    alpha if a class
    is present, else 1 - alpha: Lin et al., Focal Loss for Dense Object Detection, ICCV 2017, eq. 5.
    """

    subclass_settings = ("alpha", "gamma")

    def __init__(self, alpha: float = 0.25, gamma: float = 2.0, **options: Any) -> None:
        super().__init__(**options)
        self.alpha = alpha
        self.gamma = gamma

    def of_rows(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        cross_entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        # 1 - p_t from logits, because subtracting a probability near 1 would lose digits.
        wrong = labels * tf.sigmoid(-logits) + (1 - labels) * tf.sigmoid(logits)
        weight = labels * self.alpha + (1 - labels) * (1 - self.alpha)
        return tf.reduce_mean(weight * wrong**self.gamma * cross_entropy, axis=-1)


@keras.saving.register_keras_serializable("sweepyard")
class WeightedKappa(_Classification):
    """log(1 - kappa) of a batch, for ordinal classes: a large mistake costs more than a small one.

    kappa is Cohen's, weighted by the distance between classes to the `power` (2: quadratic, 1:
    linear). De la Torre, Puig and Valls, Weighted kappa loss function for multi-class
    classification of ordinal data in deep learning, Pattern Recognition Letters 105, 2018. The loss
    is defined for a whole batch and so depends on the batch size.
    """

    subclass_settings = ("power",)

    def __init__(self, power: float = 2.0, **options: Any) -> None:
        super().__init__(**options)
        self.power = power

    def of_rows(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        classes = tf.range(logits.shape[-1], dtype=logits.dtype)
        cost = tf.abs(classes[:, None] - classes[None, :]) ** self.power
        predicted = tf.nn.softmax(logits)
        disagreement = tf.reduce_mean(tf.reduce_sum(tf.matmul(labels, cost) * predicted, axis=-1))
        # The expected cost if labels and predictions were independent.
        label_fraction = tf.reduce_mean(labels, axis=0)
        predicted_fraction = tf.reduce_mean(predicted, axis=0)
        by_chance = tf.reduce_sum(label_fraction[:, None] * cost * predicted_fraction[None, :])
        epsilon = keras.config.epsilon()
        return tf.math.log((disagreement + epsilon) / (by_chance + epsilon))
