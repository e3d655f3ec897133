import inspect
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from omegaconf import OmegaConf
from sklearn.linear_model import ElasticNet, Lasso

from tests.composing import CONF
from tests.trainers.recorder import Recorder, compose, without_times
from trainers import optimizers
from trainers.trainer import train

# The arguments of every Keras optimizer; other arguments are an optimizer's own hyperparameters.
COMMON = {
    *("clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum", "ema_overwrite_frequency"),
    *("loss_scale_factor", "gradient_accumulation_steps", "name", "kwargs", "options", "self"),
}
# because the name sgd means an optimizer without momentum
LEFT_OUT = {"sgd": {"momentum", "nesterov"}}


@pytest.mark.parametrize("path", sorted((CONF / "optimizer").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_hyperparameter_is_spelled_out(path) -> None:  # type: ignore[no-untyped-def]
    section = OmegaConf.to_container(OmegaConf.load(path), resolve=True)["optimizer"]  # type: ignore[call-overload, index]
    module, _, name = section.pop("_target_").rpartition(".")
    cls = getattr(keras.optimizers if module == "keras.optimizers" else optimizers, name)
    own = set(inspect.signature(cls.__init__).parameters) - COMMON - LEFT_OUT.get(path.stem, set())
    assert set(section) == own
    optimizer = cls(**section)
    assert all(getattr(optimizer, name) == section[name] for name in own - {"learning_rate"})


def least_squares() -> tuple[np.ndarray, np.ndarray]:
    """Return 200 examples of 12 features, 3 of which have an effect."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 12))
    return x, x @ np.array([3.0, -2.0, 0.5] + [0.0] * 9) + random.normal(scale=0.1, size=200)


@pytest.mark.parametrize(
    ("optimizer", "lr"), [(optimizers.ProximalGradientDescent, 0.1), (optimizers.ProximalAdagrad, 1.0)]
)
@pytest.mark.parametrize(("l1", "l2"), [(0.4, 0.0), (0.4, 0.2), (0.0, 0.0)])
def test_proximal_training_converges_to_the_lasso(
    optimizer: type[keras.optimizers.Optimizer], lr: float, l1: float, l2: float
) -> None:
    x, y = least_squares()
    w = keras.Variable(np.full(12, 0.3), dtype="float64", trainable=True)
    stepper = optimizer(learning_rate=lr, l1_regularization_strength=l1, l2_regularization_strength=l2)
    stepper.build([w])

    @tf.function
    def step() -> None:
        error = tf.linalg.matvec(x, w.value) - y
        stepper.apply([tf.linalg.matvec(x, error, transpose_a=True) * 2 / len(y)], [w])

    for _ in range(600):
        step()
    # scikit-learn minimizes half of the sum of the mean squared error and the penalties.
    strict = {"tol": 1e-12, "max_iter": 100_000, "fit_intercept": False}
    if l2:
        expected = ElasticNet(alpha=(l1 + l2) / 2, l1_ratio=l1 / (l1 + l2), **strict).fit(x, y).coef_
    elif l1:
        expected = Lasso(alpha=l1 / 2, **strict).fit(x, y).coef_
    else:
        expected = np.linalg.lstsq(x, y, rcond=None)[0]
    # Keras keeps the learning rate in float32.
    np.testing.assert_allclose(w.numpy(), expected, atol=1e-6)
    np.testing.assert_array_equal(w.numpy() == 0, expected == 0)
    assert (w.numpy() == 0).sum() == (9 if l1 else 0)


@pytest.mark.parametrize("l1, l2", [(0.0, 0.0), (0.3, 0.1)])
@pytest.mark.parametrize("kind", ["gd", "adagrad"])
def test_a_step_is_that_of_tensorflow(kind: str, l1: float, l2: float) -> None:
    start, gradient = (np.array([1.0, -0.2, 0.0, 0.05], np.float32), np.array([0.5, -1.0, 0.0, 2.0], np.float32))
    theirs = tf.Variable(start)
    ops = tf.raw_ops
    if kind == "gd":
        ours = optimizers.ProximalGradientDescent(0.1, l1, l2)
        ops.ResourceApplyProximalGradientDescent(var=theirs.handle, alpha=0.1, l1=l1, l2=l2, delta=gradient)
    else:
        ours = optimizers.ProximalAdagrad(0.1, 0.1, l1, l2)
        accumulator = tf.Variable(np.full(4, 0.1, np.float32))
        ops.ResourceApplyProximalAdagrad(
            var=theirs.handle, accum=accumulator.handle, lr=0.1, l1=l1, l2=l2, grad=gradient
        )
    w = keras.Variable(start)
    ours.apply([gradient], [w])
    np.testing.assert_allclose(w.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("name", ["proximal_gd", "proximal_adagrad"])
def test_proximal_training_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    cfg = compose(
        f"optimizer={name}",
        "optimizer.l1_regularization_strength=0.002",
        "epochs=3",
        "model.hidden=[16]",
        "trainer.checkpoint_interval_s=0",
    )
    straight = Recorder(tmp_path / "straight")
    expected = train(cfg, straight)
    train(cfg, Recorder(tmp_path / "stopped", stop_after=1))
    resumed = Recorder(tmp_path / "stopped")
    assert without_times(train(cfg, resumed)) == without_times(expected)
    weights = straight.checkpoint()["variable_0"]
    np.testing.assert_array_equal(resumed.checkpoint()["variable_0"], weights)
    assert (weights == 0).sum() > 20


@pytest.mark.parametrize("cls", [optimizers.ProximalGradientDescent, optimizers.ProximalAdagrad])
def test_a_proximal_optimizer_is_saved_with_its_settings(cls: type[keras.optimizers.Optimizer]) -> None:
    optimizer = cls(0.5, l1_regularization_strength=0.1, l2_regularization_strength=0.2, use_ema=True)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert copy.get_config() == optimizer.get_config()
