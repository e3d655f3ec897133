"""The compiled passes equal Keras' own loops."""

import keras
import numpy as np
import pytest

from tests.command_lines import some
from trainers.compiled import compile_passes
from trainers.data.arrays import Data


def make_model(dropout: float = 0.0) -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dropout(dropout), keras.layers.Dense(3)]
    model = keras.Sequential(layers)
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(2500, 4)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0).astype(np.int32)


def as_data(x: np.ndarray, y: np.ndarray, test: int | None = None, **settings: object) -> Data:
    """Return data with all rows for training; the first `test` rows are the test set."""
    rows = np.arange(len(x), dtype=np.int32)
    return Data(x, y, rows, rows[:10], x, y, rows[:test], outputs=3, **settings)  # type: ignore[arg-type]


@some("batch_size", [32, 1250, 999, 2500], 4)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_an_epoch_equals_fit(arrays: tuple[np.ndarray, np.ndarray], batch_size: int, dropout: float) -> None:
    x, y = arrays
    plain = make_model(dropout)
    history = plain.fit(x, y, batch_size=batch_size, epochs=1, shuffle=False, verbose=0).history
    ours = make_model(dropout)
    train, _ = compile_passes(ours, as_data(x, y))
    (metrics,) = train(np.arange(len(x), dtype=np.int32), batch_size)
    assert metrics == pytest.approx({name: values[0] for name, values in history.items()}, rel=1e-5)
    for a, b in zip(ours.variables, plain.variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_metrics_are_of_their_own_pass_alone(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    model = make_model()
    model.optimizer.learning_rate = 0.0
    data = as_data(*arrays)
    train, evaluate = compile_passes(model, data)
    expected = [train(rows, 32)[0]["accuracy"] for rows in (data.validation_rows, data.training_rows)]
    assert expected[0] != expected[1]
    for _ in range(2):
        accuracies = [evaluate(name)["accuracy"] for name in ("validation", "training")]
        assert accuracies == pytest.approx(expected)
        assert train(data.validation_rows, 32)[0]["accuracy"] == pytest.approx(expected[0])


@some("rows", [1, 3, 1023, 1024, 1025, 2500], 6)
def test_evaluation_equals_evaluate(arrays: tuple[np.ndarray, np.ndarray], rows: int) -> None:
    x, y = arrays
    model = make_model()
    _, evaluate = compile_passes(model, as_data(x, y, test=rows))
    ours = evaluate("test")
    expected = model.evaluate(x[:rows], y[:rows], batch_size=rows, verbose=0, return_dict=True)
    assert ours == pytest.approx(expected, rel=1e-5)


def test_rows_are_trained_in_the_order_given(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = arrays
    order = np.random.default_rng(1).permutation(len(x))
    weights = []
    for inputs, labels, rows in ((x, y, order), (x[order], y[order], np.arange(len(x)))):
        model = make_model()
        train, _ = compile_passes(model, as_data(inputs, labels))
        train(rows.astype(np.int32), 32)
        weights.append(model.get_weights())
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_pixels_become_shares_of_255() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size=(64, 4), dtype=np.uint8)
    y = np.zeros(64, np.int32)
    losses = []
    for x in (pixels, pixels.astype(np.float32) / 255):
        _, evaluate = compile_passes(make_model(), as_data(x, y))
        losses.append(evaluate("test")["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
