import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from sweeps.base.errors import UserError
from tests.command_lines import read_answers, some
from tests.trainers.config.composing import CONF, check, compose


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def test_the_choices_are_the_documented_ones() -> None:
    optimizers = "sgd momentum nesterov adagrad rmsprop adam adamax adadelta nadam adamw ftrl lion"
    assert choices("optimizer") == sorted([*optimizers.split(), "proximal_adagrad", "proximal_gd"])
    assert set(choices("dataset")) >= {"digits", "mnist", "fashion_mnist", "cifar10", "line"}
    pretrained = {"application", "efficientnetv2b0", "mobilenetv2", "resnet152v2", "resnet50v2"}
    assert choices("model") == sorted({"cnn", "linear", "mlp"} | pretrained)
    schedules = {"constant", "warmup", "cosine", "step", "polynomial", "exponential", "one_cycle"}
    assert choices("lr_schedule") == sorted(schedules)
    assert choices("batch_schedule") == ["constant", "doubling", "linear"]


GROUPS = ("optimizer", "model", "dataset", "tracking", "lr_schedule", "batch_schedule")


@some(("group", "choice"), [(group, choice) for group in GROUPS for choice in choices(group)], 8)
def test_every_choice_is_valid(group: str, choice: str, tmp_path: Path) -> None:
    needed = [f"dataset.path={write_npz(tmp_path)}"] if choice == "npz" else []
    if group == "model" and choice not in ("cnn", "linear", "mlp"):
        needed = ["dataset=cifar10", *(["model.name=vgg16"] * (choice == "application"))]
    if choice == "image_folder":
        needed = [f"dataset.path={write_images(tmp_path)}"]
    check(f"{group}={choice}", "batch_size=4", *needed)


@some("loss", choices("loss"), 4)
def test_every_loss_fits_a_dataset(loss: str) -> None:
    check(f"dataset={'line' if loss in ('mse', 'mae', 'huber', 'log_cosh') else 'digits'}", f"loss={loss}")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), {"lr": 0.001, "batch_size": 32, "epochs": 5, "gpus": 0, "seed": 0}),
        (("optimizer=adadelta",), {"lr": 1.0}),
        (("lr=0.5", "optimizer=adadelta"), {"lr": 0.5}),
        (("optimizer=adadelta", "lr=0.5"), {"lr": 0.5}),
        (("lr=1",), {"lr": 1.0}),
        (("optimizer=momentum",), {"optimizer.momentum": 0.9, "optimizer.nesterov": False}),
        (("optimizer=nesterov", "lr=2"), {"optimizer.nesterov": True, "optimizer.learning_rate": 2.0}),
        (("optimizer.beta_2=0.5",), {"optimizer.beta_2": 0.5}),
        (("dataset=line",), {"loss._target_": "keras.losses.MeanSquaredError", "loss.task": "regression"}),
        (("dataset=line",), {"model._target_": "trainers.networks.linear", "dataset.n_train": 1200}),
        (("dataset=line", "loss=huber"), {"loss._target_": "keras.losses.Huber"}),
        (("loss=huber", "dataset=line", "model=mlp"), {"model._target_": "trainers.networks.mlp"}),
        (("+trainer.mine=3", "trainer._target_=json.dumps"), {"trainer.mine": 3}),
        (
            ("trainer=own", "trainer._target_=json.dumps"),
            {"trainer._target_": "json.dumps", "trainer.preload": ["trainers.config.schema", "sweeps.app"]},
        ),
        (("dataset=mnist",), {"dataset.validation_split": 1 / 6}),
        (("model.hidden=[]",), {"model.hidden": []}),
        (
            ("model=resnet50v2", "dataset=cifar10", "model.dropout=0.1"),
            {"model.name": "ResNet50V2", "model.weights": None, "model.fine_tune": True, "model.dropout": 0.1},
        ),
        (("model=resnet50v2", "dataset=cifar10"), {"model.head_epochs": 0, "model.fine_tune_lr": None}),
    ],
)
def test_composed_sections(overrides: tuple[str, ...], expected: dict[str, object]) -> None:
    check(*overrides)
    cfg = compose(*overrides)
    assert {key: OmegaConf.select(cfg, key) for key in expected} == expected


BAD_VALUES = read_answers(Path(__file__).with_name("bad_values.txt"))


@some("overrides", BAD_VALUES, 4)
def test_a_bad_value_is_explained(overrides: str) -> None:
    with pytest.raises(ValueError) as error:
        check(*overrides.split())
    assert [str(error.value)] == BAD_VALUES[overrides]


@pytest.mark.parametrize("override", ["lr=abc", "gpus=1.5", "epochs=many", "optimizer.bta_1=0.5", "lrr=1", "model.x=1"])
def test_hydra_refuses_wrong_types_and_unknown_keys(override: str) -> None:
    with pytest.raises(UserError):
        compose(override)


def test_file_of_weights_is_checked_before_loading(tmp_path: Path) -> None:
    import h5py
    import numpy as np

    def write(name: str, count: int) -> str:
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("a/b", data=np.zeros(count, np.float16), compression="gzip")
        return str(tmp_path / name)

    def said(model: str, path: object) -> str:
        with pytest.raises(ValueError) as error:
            check(f"model={model}", "dataset=cifar10", f"model.weights={path}")
        assert len(str(error.value).splitlines()) <= 2
        return str(error.value).removeprefix(f"model.weights={path} ")

    mobile = write("mobile.h5", 2_257_984)
    check("model=mobilenetv2", "dataset=cifar10", f"model.weights={mobile}")
    assert said("resnet50v2", mobile) == (
        "belongs to another network: it contains 2,257,984 weights, "
        "ResNet50V2 has 23,564,800; try model.name=MobileNetV2"
    )
    topped = write("topped.h5", 2_257_984 + 1281 * 1000)
    assert said("mobilenetv2", topped).startswith(
        "contains MobileNetV2 with a classifier of 1000 classes. Use the file"
    )
    check("model=mobilenetv2", "dataset=cifar10", f"model.weights={write('a.weights.h5', 2_257_984 + 1281)}")
    assert "does not exist (seen from" in said("mobilenetv2", "/no/where.h5")
    assert "is a folder" in said("mobilenetv2", tmp_path)
    (tmp_path / "text.h5").write_text("no")
    assert "is no file of weights" in said("mobilenetv2", tmp_path / "text.h5")
    (tmp_path / "w.ckpt").write_text("no")
    assert said("mobilenetv2", tmp_path / "w.ckpt").endswith("must end in .h5, .keras or .hdf5")


def test_another_backend_is_refused_before_trials_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(ValueError, match=r"KERAS_BACKEND=jax: .*\nType: export KERAS_BACKEND=tensorflow"):
        check().check_here()
    check("trainer=own", "trainer._target_=builtins.print").check_here()


def test_custom_loader_interprets_path() -> None:
    check("dataset._target_=json.loads", "+dataset.path=a/folder", "dataset.n_train=null", "batch_size=9999")


def test_an_unknown_task_must_be_named() -> None:
    with pytest.raises(ValueError, match=r"dataset\.task and loss\.task are both null"):
        check("dataset.task=null", "loss.task=null")
    check("dataset.task=null")


def test_checking_imports_nothing_heavy() -> None:
    code = (
        "import sys; from tests.trainers.config.composing import check; check(); "
        "sys.exit(str([m for m in ('tensorflow', 'keras', 'trainers.trainer', 'sklearn') if m in sys.modules] or ''))"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=CONF.parent, capture_output=True, text=True, check=False)
    assert child.stderr.strip() == ""


def write_npz(folder: Path) -> Path:
    import numpy as np

    x, y = np.zeros((30, 2, 2)), np.arange(30) % 3
    np.savez(folder / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return folder / "mine.npz"


def write_images(folder: Path) -> Path:
    from PIL import Image

    for name in ("a", "b"):
        (folder / name).mkdir()
        for number in range(3):
            Image.new("RGB", (4, 3)).save(folder / name / f"{number}.png")
    return folder
