import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from sweeps.base.errors import UserError
from tests.command_lines import some
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


@some(("group", "choice"), [(group, choice) for group in GROUPS for choice in choices(group)], 4)
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
    ("loss=mse", "the loss is for regression, the data set for classification; try loss=cross_entropy"),
    ("dataset=line loss=cross_entropy", "the loss is for classification, the data set for regression; try loss=mse"),
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
    ("optimizer=ftrl optimizer.learning_rate_power=0.5", "optimizer.learning_rate_power=0.5: must be a number <= 0"),
    ("+optimizer.clipnorm=0", "optimizer.clipnorm=0: must be a number > 0 or null"),
    *(
        (f"gpus=2 +optimizer.{key}={value}", f"optimizer.{key} is wrong with gpus=2; remove it, or use gpus=1")
        for key, value in [("global_clipnorm", 1), ("clipnorm", 1), ("clipvalue", 0.5)]
    ),
    (
        "gpus=2 loss=weighted_kappa",
        "loss=weighted_kappa needs the whole batch, but gpus=2 shares each batch among devices; use gpus=1",
    ),
    ("gpus=2 model.jit=true", "model.jit=true does not work with gpus=2; remove it, or use gpus=1"),
    (
        "optimizer=adamw optimizer.weight_decay=null",
        "optimizer.weight_decay=null: adamw needs a weight decay >= 0; try optimizer=adam",
    ),
    (
        "model.activation=reluu",
        "model.activation=reluu: no such name in keras.activations; did you mean relu or relu6 or elu?",
    ),
    (
        "model=cnn model.activation=7",
        "model.activation=7: no such name in keras.activations; try model.activation=relu",
    ),
    ("loss=weighted loss.pos_weight=0", "loss.pos_weight=0: must be a number > 0"),
    ("loss=focal loss.alpha=1.5", "loss.alpha=1.5: must be a number >= 0 and <= 1"),
    ("loss=focal loss.gamma=-1", "loss.gamma=-1: must be a number >= 0"),
    ("steps=0", "steps=0: must be >= 1, or null for a budget of epochs=5"),
    ("images=-1", "images=-1: must be >= 1, or null for a budget of epochs=5"),
    ("steps=10 images=10", "steps=10 and images=10 are two budgets. Remove one."),
    ("lr_schedule=step lr_schedule.factor=0", "lr_schedule.factor=0: must be a number > 0"),
    ("lr_schedule=one_cycle lr_schedule.warmup_share=1", "lr_schedule.warmup_share=1: must be a number > 0 and < 1"),
    (
        "lr_schedule=polynomial lr_schedule.decay_epochs=3",
        "lr_schedule=polynomial reaches 0 in epoch 4 of 5: nothing would be learned there; try lr_schedule.final=0.01",
    ),
    (
        "lr_schedule=warmup lr_schedule.start=0",
        "lr_schedule=warmup reaches 0 in epoch 1 of 5: nothing would be learned there; try lr_schedule.start=0.1",
    ),
    (
        "lr_schedule=step lr_schedule.every_epochs=1 lr_schedule.factor=0.1 epochs=50",
        "lr_schedule=step reaches 0 in epoch 36 of 50: nothing would be learned there; try lr_schedule.factor=0.9",
    ),
    (
        "lr_schedule=exponential lr_schedule.factor=0.001 steps=600",
        "lr_schedule=exponential reaches 0 in epoch 12 of 15: nothing would be learned there; "
        "try lr_schedule.factor=0.9",
    ),
    (
        "batch_schedule=doubling epochs=9",
        "batch_schedule=doubling reaches batch_size=2048 in epoch 7, which is larger than the training set "
        "(1250 examples after the validation split); try batch_schedule.maximum=1024 or less",
    ),
    (
        "batch_schedule=linear gpus=4 batch_size=40",
        "batch_schedule=linear reaches batch_size=50 in epoch 2, which cannot be shared equally by gpus=4; "
        "start and grow by multiples of 4",
    ),
    ("batch_schedule=linear batch_schedule.increase=0", "batch_schedule.increase=0: must be a whole number >= 1"),
    ("trainer.save_model=first", "trainer.save_model=first: must be best, last or none"),
    ("model=application", "model.name=null: no network of keras.applications; try ResNet50V2 or MobileNetV2"),
    (
        "model=application model.name=resnet50v",
        "model.name=resnet50v: no network of keras.applications; try ResNet50V2 or ResNet50 or ResNet152V2",
    ),
    (
        "model=mobilenetv2 dataset=digits",
        "model.name=MobileNetV2 needs images of 32 x 32 pixels or more, not 8 x 8; try dataset.size=64",
    ),
    (
        "model=application model.name=Xception dataset=cifar10",
        "model.name=Xception needs images of 71 x 71 pixels or more, not 32 x 32; try dataset.size=71",
    ),
    (
        "model=mobilenetv2 dataset=line",
        "model.name=MobileNetV2 needs images of 1 or 3 channels, but an example of line has shape (1,)",
    ),
    (
        "model=mobilenetv2 dataset=cifar10 model.fine_tune=false",
        "model.fine_tune=false with model.weights=null: the base would be frozen with random weights. Use "
        "model.weights=imagenet or a file of weights, remove model.fine_tune=false, "
        "or confirm with model.weights=random",
    ),
    (
        "model=mobilenetv2 dataset=cifar10 model.head_epochs=2",
        "model.head_epochs=2 with model.weights=null: the base would be frozen with random weights. Use "
        "model.weights=imagenet or a file of weights, remove model.head_epochs=2, "
        "or confirm with model.weights=random",
    ),
    (
        "model=mobilenetv2 dataset=cifar10 model.weights=imagenet model.head_epochs=5",
        "model.head_epochs=5 leaves none of 5 epochs for fine-tuning; try epochs=10",
    ),
    (
        "model=mobilenetv2 dataset=cifar10 model.weights=imagenet model.head_epochs=1 model.fine_tune=false",
        "model.head_epochs=1 has no effect with model.fine_tune=false. Remove one of the two",
    ),
    (
        "model=mobilenetv2 dataset=cifar10 model.fine_tune=0",
        "model.fine_tune=0: must be true, false or a number of layers >= 1",
    ),
    ("+model.fine_tune=true", "model.fine_tune=True: this model has no base to fine-tune; try model=mobilenetv2"),
    (
        "gpus=2 optimizer._target_=keras.optimizers.ScheduleFreeAdamW",
        "ScheduleFreeAdamW is wrong with gpus=2; use gpus=1, or optimizer=adamw",
    ),
    ("model.hidden=128", "model.hidden=128: must be a list of whole numbers >= 1"),
    ("model.hidden=[128,0]", "model.hidden=[128, 0]: must be a list of whole numbers >= 1"),
    ("model.dropout=1", "model.dropout=1: must be a number >= 0 and < 1"),
    ("dataset.validation_split=0", "dataset.validation_split=0: must be a number > 0 and < 1"),
    ("dataset.validation_split=0.9999", "dataset.validation_split=0.9999 leaves no training example of 1500"),
    ("trainer.early_stopping_patience=0", "trainer.early_stopping_patience=0: must be a whole number >= 1 or null"),
    ("trainer.checkpoint_interval_s=-1", "trainer.checkpoint_interval_s=-1: must be a number >= 0"),
    (
        "trainer.validate_every_steps=20",
        "trainer.validate_every_steps=20: needs reports within epochs. Add trainer.report_every_steps=20",
    ),
    (
        "trainer.report_every_steps=10 trainer.validate_every_steps=25",
        "trainer.validate_every_steps=25: must be a multiple of trainer.report_every_steps=10; "
        "try trainer.validate_every_steps=30",
    ),
    (
        "dataset.validation=none loss.objective=loss loss.direction=minimize trainer.validate_every_steps=5",
        "trainer.validate_every_steps=5, but dataset.validation=none leaves no validation data. Remove one.",
    ),
    ("trainer.preload=torch", "trainer.preload=torch: must be a list of names, such as [torch,numpy]"),
    ("trainer=own", "trainer._target_ is missing; it must be the dotted name of a callable, such as my_module.f"),
    (
        "dataset=points gpus=2",
        "batch_size=32 is larger than the training set (4 examples after the validation split); "
        "try batch_size=4 or less",
    ),
    ("dataset=npz", "dataset.path is null. Choose a .npz file, such as dataset.path=my.npz"),
    ("nodes=0", "nodes=0: must be >= 1; nodes=1 trains in one process"),
    ("ranks=-1", "ranks=-1: must be >= 1; ranks=1 trains in one process"),
    (
        "ranks=2 gpus=2",
        "ranks=2 gpus=2: ranks train on CPUs; one process uses all GPUs of a node.\n"
        "Type gpus=2 for the GPUs of each node, with nodes=N for more nodes; or ranks=2 gpus=0",
    ),
    ("nodes=3", "batch_size=32 cannot be shared equally by nodes=3; try batch_size=30"),
    ("nodes=3 gpus=2", "batch_size=32 cannot be shared equally by nodes=3 gpus=2; try batch_size=30"),
    ("nodes=2 +optimizer.clipnorm=1", "optimizer.clipnorm is wrong with nodes=2; remove it, or use nodes=1"),
    (
        "ranks=2 +optimizer.gradient_accumulation_steps=2",
        "optimizer.gradient_accumulation_steps is wrong with ranks=2; remove it, or use ranks=1",
    ),
    ("nodes=2 model.jit=true", "model.jit=true does not work with nodes=2; remove it, or use nodes=1"),
    ("batch_per_gpu=0", "batch_per_gpu=0: must be >= 1, or null to use batch_size"),
    (
        "batch_per_gpu=16 nodes=2 batch_size=64",
        "batch_per_gpu=16 (batch_size=32) and batch_size=64 conflict.\nRemove one.",
    ),
    (
        "batch_per_gpu=700 nodes=2",
        "batch_per_gpu=700 (batch_size=1400) is larger than the training set (1250 examples after the validation "
        "split); try batch_per_gpu=625 or less",
    ),
    ("lr_scaling=cube", "lr_scaling=cube: must be none, linear, sqrt"),
    (
        "lr_scaling=linear",
        "lr_scaling=linear lr_batch_size=null: lr_scaling and lr_batch_size >= 1 need each other. Use both, as in "
        "lr_scaling=linear lr_batch_size=256 (the batch size of lr), or remove both",
    ),
    (
        "lr_batch_size=256",
        "lr_scaling=none lr_batch_size=256: lr_scaling and lr_batch_size >= 1 need each other. Use both, as in "
        "lr_scaling=linear lr_batch_size=256 (the batch size of lr), or remove both",
    ),
    (
        "warmup_epochs=2",
        "warmup_epochs=2.0 raises lr to the scaled lr, and has no effect with lr_scaling=none; try lr_schedule=warmup",
    ),
    ("lr_scaling=sqrt lr_batch_size=8 warmup_epochs=-1", "warmup_epochs=-1.0: must be >= 0"),
    ("all_reduce_dtype=float16", "all_reduce_dtype=float16: must be float32 or bfloat16"),
    ("model.sync_batch_norm=1", "model.sync_batch_norm=1: must be true or false"),
]


@some(("overrides", "message"), BAD_VALUES, 4)
def test_a_bad_value_is_explained(overrides: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        check(*overrides.split())
    assert str(error.value) == message


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
