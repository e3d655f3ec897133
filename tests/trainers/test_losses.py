"""Losses against numbers worked out by hand, in plain Python, or by Keras and scikit-learn."""

import math

import keras
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from tests.command_lines import some
from tests.composing import CONF
from tests.trainers.recorder import Recorder, compose
from trainers import losses
from trainers.instantiate import make
from trainers.trainer import train

LOGITS = np.array([[2.0, 0.0, -1.0], [0.5, 0.5, 3.0], [-1.0, 4.0, 0.0], [0.0, 0.0, 0.0]], np.float32)
CLASSES = np.array([0, 1, 1, 2], np.int32)
ROWS = np.eye(3, dtype=np.float32)[CLASSES]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def by_hand(pos_weight: float = 1.0, alpha: float | None = None, gamma: float = 0.0) -> float:
    """Compute the mean over examples and classes with scalars."""
    total = 0.0
    for logits, rows in zip(LOGITS, ROWS, strict=True):
        for logit, label in zip(logits, rows, strict=True):
            right = sigmoid(logit) if label else sigmoid(-logit)
            weight = 1.0 if alpha is None else (alpha if label else 1 - alpha)
            total += -weight * (pos_weight if label else 1) * (1 - right) ** gamma * math.log(right)
    return total / LOGITS.size


def softmax_by_hand() -> float:
    shares = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    return -float(np.mean(np.log(shares[range(4), CLASSES])))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (losses.Softmax(), softmax_by_hand()),
        (losses.Softmax(label_smoothing=0.1), float(keras.losses.CategoricalCrossentropy(True, 0.1)(ROWS, LOGITS))),
        (losses.Sigmoid(), by_hand()),
        (losses.Sigmoid(), float(keras.losses.BinaryCrossentropy(True)(ROWS, LOGITS))),
        (losses.Sigmoid(pos_weight=3.0), by_hand(pos_weight=3.0)),
        (losses.Focal(), by_hand(alpha=0.25, gamma=2.0)),
        (losses.Focal(alpha=0.7, gamma=0.5), by_hand(alpha=0.7, gamma=0.5)),
        (
            losses.Focal(alpha=0.4, gamma=3.0),
            float(keras.losses.BinaryFocalCrossentropy(True, 0.4, 3.0, from_logits=True)(ROWS, LOGITS)),
        ),
    ],
)
def test_loss_has_the_expected_value(loss: keras.losses.Loss, expected: float) -> None:
    assert float(loss(CLASSES, LOGITS)) == pytest.approx(expected, rel=1e-5)
    assert float(loss(CLASSES[:, None], LOGITS)) == pytest.approx(expected, rel=1e-5)
    assert float(loss(ROWS, LOGITS)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("power", "weights"), [(2.0, "quadratic"), (1.0, "linear")])
def test_kappa_is_that_of_scikit_learn(power: float, weights: str) -> None:
    random = np.random.default_rng(0)
    labels, answers = random.integers(0, 4, size=(2, 300))
    answers[::2] = labels[::2]
    sure = 1000 * np.eye(4, dtype=np.float32)[answers]
    loss = float(losses.WeightedKappa(power=power)(labels, sure))
    assert 1 - math.exp(loss) == pytest.approx(cohen_kappa_score(labels, answers, weights=weights), abs=1e-5)


def test_kappa_of_unsure_answers_by_hand() -> None:
    # Two classes, labels 0 and 1, probability .75 of the right class: disagreement .25, by chance .5.
    logits = np.log(np.array([[0.75, 0.25], [0.25, 0.75]], np.float32))
    assert float(losses.WeightedKappa()(np.array([0, 1]), logits)) == pytest.approx(math.log(0.5), abs=1e-5)
    assert np.isfinite(float(losses.WeightedKappa()(np.array([0]), np.array([[1000.0, 0.0]], np.float32))))


@pytest.mark.parametrize("loss", [losses.Sigmoid(), losses.Focal()])
def test_large_logits_stay_finite(loss: keras.losses.Loss) -> None:
    huge = np.array([[1e4, -1e4, 1e4]], np.float32)
    assert np.isfinite(float(loss(np.array([1]), huge)))


CLASSIFICATIONS = ("cross_entropy", "sparse_softmax", "softmax", "sigmoid", "weighted", "focal", "weighted_kappa")


@some("name", CLASSIFICATIONS, 4)
def test_every_loss_of_a_classification_learns_digits(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    recorder = Recorder(tmp_path)
    result = train(compose(f"loss={name}", "epochs=3", "lr=0.01"), recorder)
    # Digits are in no order: kappa, for which a 5 is almost a 6, makes mistakes between neighbours.
    assert result["test_accuracy"] > (0.2 if name == "weighted_kappa" else 0.8)
    assert recorder.reported[-1]["loss"] < recorder.reported[0]["loss"]


@pytest.mark.parametrize("path", sorted((CONF / "loss").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_loss_is_saved_with_its_settings(path) -> None:  # type: ignore[no-untyped-def]
    task = "dataset=digits" if path.stem in CLASSIFICATIONS else "dataset=line"
    loss = make("loss", compose(task, f"loss={path.stem}").loss)
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert copy.get_config() == loss.get_config()
