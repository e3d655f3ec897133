"""Losses for classifications, beside those of Keras. Each sees logits of shape (batch, classes).

Labels are classes of shape (batch,) or rows of shape (batch, classes), such as one-hot ones: the numbers are the same.
"""

from typing import Any

import keras
import tensorflow as tf


class _Classification(keras.losses.Loss):  # type: ignore[misc]
    """Hands `of_rows` its labels as rows, in the logits' type."""

    own: tuple[str, ...] = ()
    """Settings of a subclass, to be saved with it."""

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
        """The loss of each example, shape (batch,), or one for all of them, shape ()."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **{name: getattr(self, name) for name in ("label_smoothing", *self.own)}}


@keras.saving.register_keras_serializable("sweepyard")
class Softmax(_Classification):
    """Cross entropy of a softmax over all classes. `cross_entropy` and `sparse_softmax` give the same numbers."""

    def of_rows(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax_cross_entropy_with_logits(labels, logits)


@keras.saving.register_keras_serializable("sweepyard")
class Sigmoid(_Classification):
    """Cross entropy of each class by itself, against all others; the mean over classes.

    `pos_weight` weighs what is missed against what is found where it is not: above 1 it raises recall at the cost
    of precision (tf.nn.weighted_cross_entropy_with_logits).
    """

    own = ("pos_weight",)

    def __init__(self, pos_weight: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.pos_weight = pos_weight

    def of_rows(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        each = tf.nn.weighted_cross_entropy_with_logits(labels, logits, self.pos_weight)
        return tf.reduce_mean(each, axis=-1)


@keras.saving.register_keras_serializable("sweepyard")
class Focal(_Classification):
    """Sigmoid cross entropy in which what is already classified well counts little; the mean over classes.

    -alpha_t (1 - p_t)^gamma log(p_t), with p_t the probability of the right answer and alpha_t = alpha where a class
    is there, 1 - alpha where it is not: Lin et al., Focal Loss for Dense Object Detection, ICCV 2017, eq. 5.
    """

    own = ("alpha", "gamma")

    def __init__(self, alpha: float = 0.25, gamma: float = 2.0, **options: Any) -> None:
        super().__init__(**options)
        self.alpha = alpha
        self.gamma = gamma

    def of_rows(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        cross_entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        # 1 - p_t, from logits: the difference of 1 and a probability near it would have lost its digits.
        wrong = labels * tf.sigmoid(-logits) + (1 - labels) * tf.sigmoid(logits)
        weight = labels * self.alpha + (1 - labels) * (1 - self.alpha)
        return tf.reduce_mean(weight * wrong**self.gamma * cross_entropy, axis=-1)


@keras.saving.register_keras_serializable("sweepyard")
class WeightedKappa(_Classification):
    """log(1 - kappa) of a batch, for classes that are in an order: a large mistake costs more than a small one.

    kappa is Cohen's, weighted by the distance between classes to the `power` (2: quadratic, 1: linear). De la Torre,
    Puig and Valls, Weighted kappa loss function for multi-class classification of ordinal data in deep learning,
    Pattern Recognition Letters 105, 2018. It belongs to a batch as a whole: another batch size is another loss.
    """

    own = ("power",)

    def __init__(self, power: float = 2.0, **options: Any) -> None:
        super().__init__(**options)
        self.power = power

    def of_rows(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        places = tf.range(logits.shape[-1], dtype=logits.dtype)
        cost = tf.abs(places[:, None] - places[None, :]) ** self.power
        found = tf.nn.softmax(logits)
        disagreement = tf.reduce_mean(tf.reduce_sum(tf.matmul(labels, cost) * found, axis=-1))
        # What the same shares of labels and answers would cost if they had nothing to do with each other.
        shares = tf.reduce_mean(labels, axis=0), tf.reduce_mean(found, axis=0)
        by_chance = tf.reduce_sum(shares[0][:, None] * cost * shares[1][None, :])
        tiny = keras.config.epsilon()
        return tf.math.log((disagreement + tiny) / (by_chance + tiny))
