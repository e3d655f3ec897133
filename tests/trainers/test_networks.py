"""Known networks: preprocessing, trained layers, and resumed trainings."""

import fcntl
import sys
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from keras.src.legacy.saving.legacy_h5_format import save_weights_to_hdf5_group
from mlflow.models import Model
from omegaconf import DictConfig
from sklearn.linear_model import LinearRegression

from tests.command_lines import some
from tests.trainers.recorder import Recorder, compose, without_times
from trainers import networks, phases
from trainers.config import networks as known
from trainers.data import dataset as data
from trainers.line import is_line, least_squares, line_of
from trainers.model import build
from trainers.schedules import plan
from trainers.trainer import train

MOBILE = ("model=mobilenetv2", "dataset=npz", "batch_size=8", "trainer.checkpoint_interval_s=0")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of images of 32 x 32 pixels whose brightness shows the class."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 40).astype(np.uint8)
    x = (random.integers(0, 100, (40, 32, 32, 3)) + 120 * y[:, None, None, None]).astype(np.uint8)
    path = tmp_path_factory.mktemp("images") / "images.npz"
    np.savez(path, x_train=x[:24], y_train=y[:24], x_test=x[24:], y_test=y[24:])
    return path


@pytest.fixture(scope="module")
def mobile() -> keras.Model:
    """Return a base whose statistics differ from a new base's statistics."""
    keras.utils.set_random_seed(7)
    base = keras.applications.MobileNetV2(include_top=False, weights=None, input_shape=(32, 32, 3))
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_mean.assign(layer.moving_mean + 0.01)
    return base


@pytest.fixture(scope="module")
def weights(mobile: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save the base's weights and return the file."""
    path = tmp_path_factory.mktemp("weights") / "mobile.weights.h5"
    mobile.save_weights(path)
    return path


def configured(images: Path, *overrides: str) -> DictConfig:
    return compose(*MOBILE, f"dataset.path={images}", *overrides)


def base_weights(model: keras.Model) -> dict[str, np.ndarray]:
    base = networks.base_of(model)
    assert base is not None
    return {weight.path: weight.numpy() for weight in base.weights}


def test_checks_know_the_networks_of_keras() -> None:
    assert set(known.NETWORKS) == {name for name in dir(keras.applications) if name[0].isupper()}
    # Three more below; the others are as certain, but slow.
    dense = keras.applications.DenseNet121(include_top=False, weights=None, input_shape=(32, 32, 3))
    assert known.NETWORKS["DenseNet121"] == (dense.count_params(), dense.output_shape[-1], 32)


@pytest.mark.parametrize("name", known.NETWORKS)
def test_the_smallest_images_are_those_that_keras_takes(name: str) -> None:
    least = known.NETWORKS[name].least
    with pytest.raises(ValueError, match=str(least)):
        getattr(keras.applications, name)(include_top=False, weights=None, input_shape=(least - 1, least - 1, 3))


# A network for each range: -1..1, reversed and centred colours, and a range inside the network.
@pytest.mark.long
@pytest.mark.parametrize("name", ["MobileNetV2", "VGG16", "EfficientNetV2B0"])
def test_network_receives_pixels_in_its_own_range(name: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype(np.float32)
    keras.utils.set_random_seed(0)
    model = networks.application((32, 32, 3), 3, name=name.lower(), weights=None, dropout=0.0)
    module = sys.modules[getattr(keras.applications, name).__module__]
    base = networks.base_of(model)
    assert known.NETWORKS[name] == (base.count_params(), base.output_shape[-1], 32)
    features = base(module.preprocess_input(pixels.copy()), training=False)
    expected = model.layers[-1](keras.ops.mean(features, axis=(1, 2)))
    np.testing.assert_allclose(model(pixels / 255, training=False), expected, rtol=1e-3, atol=1e-4)
    # The saved model loads without code of this repository.
    networks.save(model, None, tmp_path / "model", (32, 32, 3), 3)
    copy = keras.models.load_model(tmp_path / "model" / "data" / "model.keras")
    np.testing.assert_allclose(copy(pixels / 255), model(pixels / 255), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(32, 32), (32, 32, 1)])
def test_grey_images_are_shown_in_three_channels(shape: tuple[int, ...]) -> None:
    model = networks.application(shape, 2, name="vgg16", weights=None, dropout=0.2)
    assert model(np.zeros((1, *shape), np.float32)).shape == (1, 2)


def test_images_with_two_channels_are_refused() -> None:
    section = compose("model=mobilenetv2", "dataset=cifar10").model
    with pytest.raises(ValueError, match=r"needs images of 1 or 3 channels, but an example has shape \(32, 32, 2\)"):
        networks.build(section, (32, 32, 2), 2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "learning"),
    [
        ("model.fine_tune=false", 0),
        ("model.fine_tune=5", 3),  # of the base's last five layers, one has no weights and two are batch normalizations
        ("model.fine_tune=true", None),
    ],
)
def test_networks_that_learn(settings: str, learning: int | None, images: Path, weights: Path, tmp_path: Path) -> None:
    cfg = configured(images, f"model.weights={weights}", *settings.split(), "epochs=1")
    loaded = data.load(cfg.dataset, "classification", 0)
    model = build(cfg, loaded)
    base = networks.base_of(model)
    normalizing = [layer for layer in base.layers if isinstance(layer, keras.layers.BatchNormalization)]
    assert not any(layer.trainable for layer in normalizing)
    before = base_weights(model)
    model.run_eagerly = True  # because tracing a step takes longer than the step
    model.train_on_batch(loaded.x[:8] / np.float32(255), loaded.y[:8])
    moved = {path for path, value in base_weights(model).items() if (value != before[path]).any()}
    assert not any("bn" in path.lower() or "moving" in path for path in moved)
    assert bool(moved) == (learning != 0)
    if settings == "model.fine_tune=5":
        last = {weight.path for layer in base.layers[-5:] for weight in layer.weights}
        assert moved <= last


def tiny(input_shape: tuple[int, ...], outputs: int, *, name: str, weights: str | None, dropout: float) -> keras.Model:
    """Return a smallest network with a base."""
    shape = [keras.Input(input_shape), keras.layers.Conv2D(2, 3), keras.layers.BatchNormalization()]
    base = keras.Sequential([*shape, keras.layers.GlobalAveragePooling2D()])
    inputs = keras.Input(input_shape)
    head = [base, keras.layers.Dropout(dropout), keras.layers.Dense(outputs)]
    outcome = inputs
    for layer in head:
        outcome = layer(outcome)
    return keras.Model(inputs, outcome)


@pytest.mark.long
def test_the_head_first_and_then_the_base_at_its_own_rate(images: Path, tmp_path: Path) -> None:
    cfg = configured(images)
    cfg.epochs = 4
    cfg.model.update({"_target_": "tests.trainers.test_networks.tiny", "weights": "some", "dropout": 0.2})
    cfg.model.update({"head_epochs": 2, "fine_tune_lr": 1e-5})
    straight = Recorder(tmp_path / "straight")
    expected = train(cfg, straight)
    rates = [metrics["learning_rate"] for metrics in straight.reported]
    assert rates == pytest.approx([1e-3, 1e-3, 1e-5, 1e-5])
    # Stopped inside of each phase, and exactly between the two.
    for stop_after in (1, 2, 3):
        folder = tmp_path / str(stop_after)
        train(cfg, Recorder(folder, stop_after))
        resumed = Recorder(folder)
        assert f'"phase": {2 if stop_after > 2 else 1}' in str(resumed.checkpoint()["progress"])
        assert without_times(train(cfg, resumed)) == without_times(expected)
        for name, array in straight.checkpoint().items():
            if name != "progress":
                np.testing.assert_array_equal(resumed.checkpoint()[name], array)


@pytest.mark.long
def test_the_base_learns_in_the_second_phase(images: Path, tmp_path: Path) -> None:
    cfg = configured(images)
    cfg.model.update({"_target_": "tests.trainers.test_networks.tiny", "weights": "some", "head_epochs": 2})
    kernels = {}
    for epochs in (1, 2, 3):
        cfg.epochs = epochs
        trial = Recorder(tmp_path / str(epochs))
        if epochs < 3:
            cfg.model.update({"fine_tune": False, "head_epochs": 0})
        else:
            cfg.model.update({"fine_tune": True, "head_epochs": 2})
        train(cfg, trial)
        kernels[epochs] = next(a for a in trial.checkpoint().values() if a.shape == (3, 3, 3, 2))
    np.testing.assert_array_equal(kernels[1], kernels[2])
    assert (kernels[3] != kernels[2]).any()


def test_the_base_learns_only_in_its_phase(images: Path, weights: Path) -> None:
    cfg = configured(images, f"model.weights={weights}", "model.head_epochs=1", "epochs=3")
    head, both = phases.phases(cfg, plan(cfg, 20))
    assert (head.first, head.end, head.trainable, both.first, both.end, both.trainable) == (0, 1, False, 1, 3, True)
    assert phases.phases(compose("epochs=3"), plan(cfg, 20)) == [phases.Phase(1, 0, 3, 0.001, True)]


@some("name", ["mobile.weights.h5", "no_top.h5", "whole.h5", "whole.keras"], 4)
def test_a_file_of_weights_is_loaded_exactly(name: str, mobile: keras.Model, weights: Path, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "mobile.weights.h5":
        path = weights
    elif name == "no_top.h5":  # the format of Keras's downloaded files
        with h5py.File(path, "w") as file:
            save_weights_to_hdf5_group(file, mobile)
    else:
        mobile.save(path)
    known.check_weights("MobileNetV2", str(path))
    model = networks.application((64, 64, 3), 2, name="MobileNetV2", weights=str(path), dropout=0.0)
    for ours, theirs in zip(networks.base_of(model).get_weights(), mobile.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module")
def efficient() -> keras.Model:
    """Return a base with an optimizer, whose saved variables are no weights of the network."""
    base = keras.applications.EfficientNetB0(include_top=False, weights=None, input_shape=(32, 32, 3))
    base.compile("adam", "mse")
    base.optimizer.build(base.trainable_variables)
    return base


@pytest.mark.long
@pytest.mark.parametrize("name", ["base.weights.h5", "base.h5", "base.keras"])
def test_weights_of_another_network_are_recognized(name: str, efficient: keras.Model, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    efficient.save_weights(path) if "weights" in name else efficient.save(path)
    known.check_weights("EfficientNetB0", path)
    for other in ("EfficientNetB1", "VGG16"):
        with pytest.raises(ValueError, match=r"belongs to another network.*; try model.name=EfficientNetB0$"):
            known.check_weights(other, path)


def test_an_archive_without_weights_is_no_file_of_weights(tmp_path: Path) -> None:
    for name, content in (("a.keras", b"no archive"), ("b.keras", None)):
        if content:
            (tmp_path / name).write_bytes(content)
        else:
            zipfile.ZipFile(tmp_path / name, "w").close()
        with pytest.raises(ValueError, match="is no file of weights"):
            known.check_weights("VGG16", str(tmp_path / name))


def test_imagenet_without_a_network_is_explained_in_two_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("URL fetch failure on https://storage.googleapis.com: None -- Name or service not known")

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras.src.applications.vgg16.file_utils.get_file", offline)
    with pytest.raises(ValueError, match=r"model.weights=imagenet: the weights cannot be downloaded") as error:
        networks.application((32, 32, 3), 2, name="vgg16", weights="imagenet", dropout=0.0)
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(), r"the weights cannot be downloaded \(OSError\)\n"),
        (Exception("URL fetch failure on https://x: 404 -- Not Found"), r"be downloaded \(URL fetch failure.*\)\n"),
        (ValueError("Incomplete or corrupted file detected."), "^Incomplete or corrupted file detected.$"),
        (MemoryError(), "^$"),
    ],
)
def test_failed_download_is_the_only_download_error(
    error: Exception, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras.src.applications.vgg16.file_utils.get_file", fail)
    with pytest.raises((ValueError, MemoryError), match=expected):
        networks.application((32, 32, 3), 2, name="vgg16", weights="imagenet", dropout=0.0)


@pytest.mark.long
def test_only_the_first_download_is_alone(weights: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    locked = []

    def get_file(*_: object, **__: object) -> str:
        with (tmp_path / "sweepyard.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked.append(False)
            except BlockingIOError:
                locked.append(True)
        return str(weights)

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras.src.applications.mobilenet_v2.file_utils.get_file", get_file)
    for _ in range(2):
        networks.application((32, 32, 3), 2, name="mobilenetv2", weights="imagenet", dropout=0.0)
    assert locked == [True, False]


@pytest.mark.long
def test_base_may_keep_its_random_weights(images: Path) -> None:
    bases = []
    for settings in (("model.weights=random", "model.fine_tune=false"), ("model.weights=random",), ()):
        cfg = configured(images, "model.name=mobilenet", *settings)  # a network with half as many layers
        keras.utils.set_random_seed(0)
        bases.append(networks.base_of(build(cfg, data.load(cfg.dataset, "classification", 0))))
    for frozen, free, unnamed in zip(*(base.get_weights() for base in bases), strict=True):
        np.testing.assert_array_equal(frozen, unnamed)
        np.testing.assert_array_equal(free, unnamed)
    everything = len(bases[2].trainable_variables)
    assert [len(base.trainable_variables) for base in bases] == [0, everything, everything]


@some("model", [("model=cnn", "model.filters=[4]", "model.hidden=[8]"), ("model=mlp",)], 2)
def test_mixed_precision_is_reset_after_a_trial(model: tuple[str, ...], tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    cfg = compose(*model, "mixed_precision=true", "epochs=3", "trainer.checkpoint_interval_s=0", "lr=0.01")
    built = build(cfg, data.load(cfg.dataset, "classification", 0))
    assert {layer.compute_dtype for layer in built.layers[1:-1] if layer.weights} == {"bfloat16"}
    assert built.layers[-1].compute_dtype == "float32"
    assert keras.config.dtype_policy().name == "float32"
    assert train(cfg, recorder)["test_accuracy"] > 0.5
    assert keras.config.dtype_policy().name == "float32"
    assert {array.dtype for array in recorder.checkpoint().values()} & {np.dtype("float32")}


@pytest.mark.long
def test_steps_can_be_compiled_by_xla(tmp_path: Path) -> None:
    plain = train(compose("epochs=2", "model.hidden=[8]"), Recorder(tmp_path / "plain"))
    jit = train(compose("epochs=2", "model.hidden=[8]", "model.jit=true"), Recorder(tmp_path / "jit"))
    assert without_times(jit) == pytest.approx(without_times(plain), rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(("which", "attained"), [("best", "val_accuracy"), ("last", "test_accuracy")])
def test_model_is_saved(which: str, attained: str, tmp_path: Path) -> None:
    settings = ("epochs=6", "lr=0.05", "model.hidden=[4]", "seed=3", "trainer.checkpoint_interval_s=0")
    ours = ("lr_schedule=step", "loss=focal")
    cfg = compose(*settings, *ours, f"trainer.save_model={which}")
    train(cfg, Recorder(tmp_path, stop_after=4))
    assert not (tmp_path / "model").exists()
    recorder = Recorder(tmp_path)
    result = train(cfg, recorder)
    file = tmp_path / "model" / "data" / "model.keras"
    model = keras.models.load_model(file)
    with zipfile.ZipFile(file) as archive:  # because a Keras without this repository has no module `trainers`
        assert b"trainers." not in archive.read("config.json")
    signature = Model.load(str(tmp_path / "model")).signature
    assert [spec.shape for schema in (signature.inputs, signature.outputs) for spec in schema.inputs] == [
        (-1, 8, 8),
        (-1, 10),
    ]
    loaded = data.load(cfg.dataset, "classification", 3)
    name, subset = ("validation", "val") if which == "best" else ("test", "test")
    x, y, rows = loaded.subsets[name]
    accuracy = np.mean(np.argmax(model.predict(x[rows], verbose=0), axis=-1) == y[rows])
    assert accuracy == pytest.approx(result[f"{subset}_accuracy"], abs=1e-6)
    x, y, rows = loaded.subsets["test"]
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (y[rows], np.argmax(model.predict(x[rows], verbose=0), axis=-1)), 1)
    assert recorder.confusion.matrix == confusion.tolist()
    assert (recorder.confusion.subset, recorder.confusion.classes[9]) == ("test", "9")
    assert attained in result
    assert not list(tmp_path.glob("writing*"))


def test_model_is_saved_only_if_requested(tmp_path: Path) -> None:
    train(compose("epochs=1"), Recorder(tmp_path))
    assert not list(tmp_path.rglob("*.keras"))


def test_line_names_its_file(tmp_path: Path) -> None:
    cfg = compose(
        "dataset=line", "optimizer=sgd", "lr=0.1", "epochs=20", "model.initial_weight=5", "model.initial_bias=-1"
    )
    recorder = Recorder(tmp_path)
    result = train(cfg, recorder)
    loaded = data.load(cfg.dataset, "regression", 0)
    x, y = loaded.x[loaded.training_rows][:, 0], loaded.y[loaded.training_rows][:, 0]
    weight, bias = np.polyfit(x, y, 1)
    assert (result["weight"], result["bias"]) == pytest.approx((weight, bias), abs=0.02)
    assert result["mse"] == pytest.approx(np.mean((y - weight * x - bias) ** 2), rel=0.05)
    assert result["r2"] == pytest.approx(1 - result["mse"] / np.var(y), rel=1e-3)
    note = recorder.notes["closed form (least squares)"]
    assert (note["weight"], note["bias"]) == pytest.approx((weight, bias))


@pytest.mark.parametrize("inputs", [1, 3])
def test_the_closed_form_is_that_of_scikit_learn(inputs: int) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, inputs)).astype(np.float32), random.normal(size=(20, 1)).astype(np.float32)
    theirs = LinearRegression().fit(x.astype(float), y[:, 0].astype(float))
    *weights, bias, mse, r2 = least_squares(x, y).values()
    assert [*weights, bias] == pytest.approx([*theirs.coef_, theirs.intercept_], rel=1e-6)
    assert r2 == pytest.approx(theirs.score(x, y[:, 0]), rel=1e-6)
    assert mse == pytest.approx(np.mean((y[:, 0] - theirs.predict(x)) ** 2), rel=1e-6)


def test_thousand_weights_are_not_compared() -> None:
    assert least_squares(np.zeros((3, 28, 28), np.float32), np.zeros((3, 1), np.float32)) == {}


def test_line_through_pixels_is_validated_as_trained() -> None:
    model = networks.linear((1,), 1, initial_weight=2.0, initial_bias=0.0)
    pixels, y = np.array([[0], [51], [255]], np.uint8), np.array([[0.0], [0.4], [2.0]], np.float32)
    assert line_of(model, pixels, y)["mse"] == pytest.approx(0, abs=1e-12)
    assert least_squares(pixels, y) == pytest.approx({"weight": 2.0, "bias": 0.0, "mse": 0.0, "r2": 1.0}, abs=1e-7)


def test_line_starts_at_the_given_column(tmp_path: Path) -> None:
    model = networks.linear((2,), 1, initial_weight=5.0, initial_bias=-1.0)
    assert model(np.array([[1.0, 2.0]])).numpy()[0, 0] == pytest.approx(14.0)
    assert line_of(model, np.zeros((3, 2)), np.zeros((3, 1))) == {
        "weight_0": 5.0,
        "weight_1": 5.0,
        "bias": -1.0,
        "mse": 1.0,
    }
    assert not is_line(networks.linear((2,), 3))


@pytest.mark.long
def test_a_base_from_scratch_learns_as_a_whole(images: Path) -> None:
    cfg = configured(images)
    base = networks.base_of(build(cfg, data.load(cfg.dataset, "classification", 0)))
    assert all(layer.trainable for layer in base.layers)
