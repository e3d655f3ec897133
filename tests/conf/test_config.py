import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from tests.conf.composing import CONF, check, compose


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def test_the_choices_are_the_documented_ones() -> None:
    optimizers = "sgd momentum nesterov adagrad rmsprop adam adamax adadelta nadam adamw ftrl lion"
    assert choices("optimizer") == sorted(optimizers.split())
    assert set(choices("dataset")) >= {"digits", "mnist", "fashion_mnist", "cifar10", "line"}
    assert choices("model") == ["cnn", "linear", "mlp"]


@pytest.mark.parametrize(
    ("group", "choice"),
    [(group, choice) for group in ("optimizer", "model", "dataset", "tracking") for choice in choices(group)],
)
def test_every_choice_is_valid(group: str, choice: str, tmp_path: Path) -> None:
    needed = [f"dataset.path={write_npz(tmp_path)}"] if choice == "npz" else []
    check(f"{group}={choice}", "batch_size=4", *needed)


@pytest.mark.parametrize("loss", choices("loss"))
def test_every_loss_fits_a_dataset(loss: str) -> None:
    check(f"dataset={'digits' if loss == 'cross_entropy' else 'line'}", f"loss={loss}")


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
            {"trainer._target_": "json.dumps", "trainer.preload": []},
        ),
        (("dataset=mnist",), {"dataset.validation_split": 1 / 6}),
        (("model.hidden=[]",), {"model.hidden": []}),
    ],
)
def test_what_is_composed(overrides: tuple[str, ...], expected: dict[str, object]) -> None:
    check(*overrides)
    cfg = compose(*overrides)
    assert {key: OmegaConf.select(cfg, key) for key in expected} == expected


BAD_VALUES = [
    ("lr=0", "lr=0.0: the learning rate must be > 0 and finite; try lr=0.001"),
    ("lr=-1", "lr=-1.0: the learning rate must be > 0 and finite; try lr=0.001"),
    ("lr=nan", "lr=nan: the learning rate must be > 0 and finite; try lr=0.001"),
    ("lr=inf", "lr=inf: the learning rate must be > 0 and finite; try lr=0.001"),
    ("batch_size=0", "batch_size=0: a step needs >= 1 example; try batch_size=32"),
    (
        "batch_size=1251",
        "batch_size=1251 is larger than the training set (1250 examples after the validation split); "
        "try batch_size=1024 or less",
    ),
    ("epochs=0", "epochs=0: training needs >= 1 epoch; try epochs=5"),
    ("gpus=-1", "gpus=-1: must be >= 0; gpus=0 trains on the CPU"),
    ("gpus=3", "batch_size=32 cannot be shared equally by gpus=3; try batch_size=30"),
    ("gpus=64", "batch_size=32 cannot be shared equally by gpus=64; try batch_size=64"),
    ("seed=-1", "seed=-1: must be 0 <= seed < 2**32; try seed=0"),
    ("loss=mse", "The loss is for regression, the dataset is a classification; try loss=cross_entropy"),
    (
        "dataset=line loss=cross_entropy",
        "The loss is for classification, the dataset is a regression; try loss=mse",
    ),
    (
        "dataset.task=clustering",
        "dataset.task=clustering: must be classification or regression, or null if it fits any",
    ),
    ("optimizer.beta_1=1", "optimizer.beta_1=1: must be a number >= 0 and < 1"),
    ("optimizer.beta_2=-0.1", "optimizer.beta_2=-0.1: must be a number >= 0 and < 1"),
    ("optimizer.beta_1=abc", "optimizer.beta_1=abc: must be a number >= 0 and < 1"),
    ("optimizer.beta_1=null", "optimizer.beta_1=null: must be a number >= 0 and < 1"),
    ("optimizer.epsilon=0", "optimizer.epsilon=0: must be a number > 0"),
    ("optimizer.weight_decay=-1", "optimizer.weight_decay=-1: must be a number >= 0 or null"),
    ("optimizer.amsgrad=1", "optimizer.amsgrad=1: must be true or false"),
    ("optimizer=momentum optimizer.momentum=1.1", "optimizer.momentum=1.1: must be a number >= 0 and <= 1"),
    ("optimizer=nesterov optimizer.momentum=true", "optimizer.momentum=True: must be a number >= 0 and <= 1"),
    ("optimizer=rmsprop optimizer.rho=2", "optimizer.rho=2: must be a number >= 0 and <= 1"),
    (
        "optimizer=ftrl optimizer.learning_rate_power=0.5",
        "optimizer.learning_rate_power=0.5: must be a number <= 0",
    ),
    ("+optimizer.clipnorm=0", "optimizer.clipnorm=0: must be a number > 0 or null"),
    (
        "gpus=2 +optimizer.global_clipnorm=1",
        "optimizer.global_clipnorm is wrong with gpus=2; leave it out, or use gpus=1",
    ),
    (
        "gpus=2 optimizer._target_=keras.optimizers.ScheduleFreeAdamW",
        "ScheduleFreeAdamW is wrong with gpus=2; use gpus=1, or optimizer=adamw",
    ),
    ("model.hidden=128", "model.hidden=128: must be a list of whole numbers >= 1"),
    ("model.hidden=[128,0]", "model.hidden=[128, 0]: must be a list of whole numbers >= 1"),
    ("model.dropout=1", "model.dropout=1: must be a number >= 0 and < 1"),
    ("dataset.validation_split=0", "dataset.validation_split=0: must be a number > 0 and < 1"),
    ("dataset.validation_split=0.9999", "dataset.validation_split=0.9999 leaves no training example of 1500"),
    (
        "trainer.early_stopping_patience=0",
        "trainer.early_stopping_patience=0: must be a whole number >= 1 or null",
    ),
    ("trainer.checkpoint_interval_s=-1", "trainer.checkpoint_interval_s=-1: must be a number >= 0"),
    ("trainer.preload=torch", "trainer.preload=torch: must be a list of names, such as [torch,numpy]"),
    (
        "trainer=own",
        "trainer._target_ is missing; it must be the dotted name of a callable, such as my_module.f",
    ),
    ("dataset=npz", "dataset.path is null: name a .npz file, as in dataset.path=my.npz"),
]


@pytest.mark.parametrize(("overrides", "message"), BAD_VALUES)
def test_a_bad_value_is_explained(overrides: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        check(*overrides.split())
    assert str(error.value) == message


@pytest.mark.parametrize(
    "override", ["lr=abc", "gpus=1.5", "epochs=many", "optimizer.bta_1=0.5", "lrr=1", "model.x=1"]
)
def test_hydra_refuses_wrong_types_and_unknown_keys(override: str) -> None:
    with pytest.raises(ConfigCompositionException):
        compose(override)


def test_a_loader_of_ones_own_gives_path_its_own_meaning() -> None:
    check("dataset._target_=json.loads", "+dataset.path=a/folder", "dataset.n_train=null", "batch_size=9999")


def test_an_unknown_task_must_be_named() -> None:
    with pytest.raises(ValueError, match=r"dataset\.task and loss\.task are both null"):
        check("dataset.task=null", "loss.task=null")
    check("dataset.task=null")


def test_checking_imports_nothing_heavy() -> None:
    code = (
        "import sys; from tests.conf.composing import check; check(); "
        "sys.exit(str([m for m in ('tensorflow', 'keras', 'trainers', 'sklearn') if m in sys.modules] or ''))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], cwd=CONF.parent, capture_output=True, text=True, check=False
    )
    assert child.stderr.strip() == ""


def write_npz(folder: Path) -> Path:
    import numpy as np

    x, y = np.zeros((30, 2, 2)), np.zeros(30, int)
    np.savez(folder / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return folder / "mine.npz"
