"""Trials are composed as Hydra composes them, only faster; mistakes are answered in two lines."""

import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

import trainers.config.schema  # noqa: F401 - registers the schema that conf/config.yaml starts from
from sweeps.base.errors import UserError
from sweeps.hydra.foreign_settings import adopt
from sweeps.hydra.mistakes import explain
from sweeps.hydra.parts import call_target, set_output_dir
from sweeps.hydra.settings import SweeperConf
from sweeps.space.grammar import parse
from sweeps.study.plan.compose import Composer, check, describe_gpus, processes
from sweeps.study.plan.typed_space import in_space, read_space
from sweeps.trial.job import Point
from tests.command_lines import some
from trainers.config import largest_batch

CONF = Path(__file__).parents[2] / "conf"


@pytest.fixture(scope="module")
def loader() -> Iterator[ConfigLoader]:
    with initialize_config_dir(str(CONF), job_name="sweep", version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.fixture(scope="module")
def master(loader: ConfigLoader) -> DictConfig:
    """Return the configuration of the driver, with an override of all trials."""
    return compose("config", ["epochs=2", "hydra.mode=MULTIRUN"], return_hydra_config=True)


@pytest.fixture(scope="module")
def composer(loader: ConfigLoader, master: DictConfig) -> Composer:
    return Composer(loader, master)


OVERRIDES = [
    [],
    ["lr=0.5"],
    ["lr=0.5", "batch_size=8"],
    ["batch_size=8", "lr=0.5"],
    ["epochs=9"],
    ["optimizer=sgd"],
    ["optimizer=sgd", "lr=0.5"],
    ["lr=0.5", "optimizer=sgd"],
    ["optimizer.beta_2=0.5"],
    ["optimizer=nadam", "optimizer.beta_2=0.5", "model=cnn"],
    ["optimizer.beta_2=0.5", "optimizer=nadam"],
    ["model.hidden=[]"],
    ["model.hidden=[64,32]"],
    ["model.hidden=[256]", "dataset=mnist", "dataset.path=null"],
    ["dataset=line"],
    ["dataset=line", "dataset.points=100"],
    ["dataset=line", "loss=huber", "loss.delta=2.0"],
    ["loss=huber", "dataset=line"],
    ["+trainer.new_option=3"],
    ["+trainer.nested={a:1,b:[2,3]}"],
    ["+brand_new=x", "lr=0.1"],
    ["++lr=0.5"],
    ["++trainer.other=1", "trainer.early_stopping_patience=4"],
    ["~trainer.checkpoint_interval_s"],
    ["~optimizer.amsgrad", "optimizer.beta_1=0.5"],
    ["tracking=none", "tracking.experiment=mine"],
    ["dataset.path='a b/c=d,e.npz'", "dataset=mnist"],
    ["lr=1e-4"],
    ["gpus=2", "seed=7"],
    ["batch_size=${epochs}"],
    ["+model@trainer.second=linear", "lr=0.5"],
]


@some("overrides", OVERRIDES, 8, ids=" ".join)
def test_composed_config_equals_that_of_hydra(
    overrides: list[str], composer: Composer, loader: ConfigLoader, master: DictConfig
) -> None:
    hydras = loader.load_sweep_config(master, overrides)
    hydras.hydra.job.id, hydras.hydra.job.num = "4", 4  # as Hydra's launcher sets them
    set_output_dir(hydras)
    adopt(hydras.hydra)
    for _ in range(2):  # the second time from what was kept
        ours = composer.compose(overrides, 4)
        assert OmegaConf.to_container(ours) == OmegaConf.to_container(hydras)
        assert OmegaConf.is_struct(ours) == OmegaConf.is_struct(hydras)


def test_one_trial_never_changes_the_next(composer: Composer, master: DictConfig) -> None:
    before = OmegaConf.to_container(master)
    first = composer.compose(["lr=0.5"], 0)
    first.optimizer.beta_2 = 0.1
    first.hydra.launcher.mem_gb = 99
    second = composer.compose(["lr=0.25"], 1)
    assert (first.lr, second.lr) == (0.5, 0.25)
    assert second.optimizer.beta_2 == 0.999
    assert second.hydra.launcher.mem_gb != 99
    assert second.hydra.job.num == 1
    assert OmegaConf.to_container(master) == before


def test_resources_follow_the_trial(composer: Composer) -> None:
    assert [composer.compose([f"gpus={n}"], n).hydra.launcher.gpus_per_node for n in (0, 1, 4)] == [0, 1, 4]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["lr=abc"], ["lr=abc", "'abc'", "Float"]),
        (["batch_size=[1]"], ["batch_size"]),
        (["optimizer=adm"], ["optimizer=adm does not exist", "optimizer=adam?", "adadelta, adagrad, adam"]),
        (["hydra/launcher=submitit_slrum"], ["submitit_slrum does not exist. Did you mean hydra/launcher="]),
        (["optimizer=adma"], ["optimizer=adma does not exist. Did you mean optimizer=adam?"]),
        (["optimizer.beta2=1"], ["'optimizer.beta2'", "'optimizer.beta_2'?\nType: optimizer.beta_2=1"]),
        (["optimizer.zzz=1"], ["'optimizer.zzz'", "Known here: optimizer.learning_rate", "optimizer.epsilon"]),
        (["epohcs=1"], ["'epohcs'", "'epochs'?\nType: epochs=1"]),
        (["optimizer=sgd", "optimizer.beta_2=1"], ["configuration with optimizer=sgd. Known here: optimizer.learning"]),
        (["quite_unknown_words=1"], ["'quite_unknown_words' is not in the configuration"]),
        (["~nothing_there"], ["nothing_there"]),
        (["lr="], ["lr", "Float"]),
        (["lr=[1"], ["'lr=[1' cannot be read: ] is missing at its end.\nType: lr=1"]),
        (["dataset.path=/müller"], ["cannot be read: ü needs quotes.\nType: 'dataset.path=\"/müller\"'"]),
        (["batch_size=${no_such_key}", "lr=0.1"], ["batch_size: ", "'no_such_key' not found"]),
        (["batch_size=${oc.env:NO_SUCH_VARIABLE}"], ["batch_size: ", "'NO_SUCH_VARIABLE' not found"]),
        (["batch_size=${no_such_resolver:1}"], ["batch_size: ", "no_such_resolver"]),
        (["batch_size=???"], ["batch_size: ", "missing"]),
        (["epochs=${epochs}"], ["epochs: Recursive interpolation"]),
        (["optimizer.epsilon=${..lrr}"], ["optimizer.epsilon: ", "lrr"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_composition_errors_are_explained(overrides: list[str], expected: list[str], composer: Composer) -> None:
    with pytest.raises(UserError) as caught:
        check(composer.compose(overrides, 0))
    text = str(caught.value)
    assert 1 <= len(text.splitlines()) <= 2, text
    for fragment in expected:
        assert fragment in text


@pytest.mark.parametrize(
    ("error", "expected"), [(ValueError("one line"), "one line"), (ValueError("first\n\n  second  "), "first\nsecond")]
)
def test_other_errors_keep_their_words(error: Exception, expected: str, master: DictConfig) -> None:
    assert explain(error, master) == expected


@pytest.mark.parametrize(
    ("overrides", "valid"),
    [(["lr=0.1"], True), (["lr=0"], False), (["batch_size=4000"], False), (["dataset=line"], True)],
)
def test_a_config_is_checked_by_its_own_dataclasses(overrides: list[str], valid: bool, composer: Composer) -> None:
    config = composer.compose(overrides, 0)
    if valid:
        check(config)
    else:
        with pytest.raises(UserError):
            check(config)
    assert "hydra" in config


def test_an_apps_own_checks_see_the_settings_of_the_trial(
    composer: Composer, master: DictConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    monkeypatch.setattr(largest_batch, "check", lambda cfg, rows: places.append(largest_batch.hardware(cfg.gpus)))
    monkeypatch.setattr(HydraConfig.instance(), "cfg", master)
    for lines in (["cluster=plain"], ["cluster=power9", "gpus=2"], ["hydra.launcher.mem_gb=8"]):
        check(composer.compose(["hydra/launcher=slurm", *lines], 0))
    assert places == [
        "a SLURM node (partition=main, cpus_per_task=2, mem_gb=4)",
        "a SLURM node (partition=gpu, gres=gpu, cpus_per_gpu=40, mem_gb=60)",
        "a SLURM node (mem_gb=8)",
    ]
    assert HydraConfig.instance().cfg is master


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["batch_size=interval(8,64)"], "whole number\nType: 'batch_size=int(interval(8,64))'"),
        (["batch_size=tag(log,interval(8,64))"], "Type: 'batch_size=tag(log,int(interval(8,64)))'"),
        (
            ["optimizer=adam,sgd", "optimizer.beta_2=0.9,0.99"],
            "optimizer=sgd has no 'optimizer.beta_2'. In place of optimizer.beta_2=0.9,0.99 type:\n"
            r"""'+hydra.sweeper.conditional_params={optimizer\=adam: {optimizer.beta_2: "0.9,0.99"}}'""",
        ),
        (
            ["optimizer=adam,sgd,nadam", "optimizer.beta_2=interval(0.9,0.99)"],
            r"""{optimizer\=adam\,nadam: {optimizer.beta_2: "interval(0.9,0.99)"}}""",
        ),
        (
            ["optimizer=sgd,momentum", "optimizer.beta_2=0.9"],
            "'optimizer.beta_2' is not in the configuration with optimizer=",
        ),
        (["xyz=interval(-5,5)"], "All keys, with what they mean: --help all"),
        (["lr=-1,1"], "lr=-1.0"),
    ],
)
def test_error_of_a_point_names_the_space(composer: Composer, lines: list[str], message: str) -> None:
    space = parse(composer.parse(lines), {}, {})

    def compose(point: Point) -> DictConfig:
        return composer.compose(space.overrides(point), 0)

    def refused(point: Point) -> UserError | None:
        try:
            check(compose(point))
        except UserError as error:
            return in_space(error, space, point, compose, lambda other: check(compose(other)))
        return None

    answer = str(next(filter(None, map(refused, space.corners()))))
    assert message in answer
    assert len(answer.splitlines()) <= 2
    if "conditional_params" in answer:  # what it says to type can be typed
        composer.compose(shlex.split(answer.splitlines()[1]), 0)


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        ("dataset.augment.rotation=5 dataset.augment=light", True),
        ("dataset.augment=light +dataset.augment.rotation=5", True),
        ("dataset.augment.rotation=5 dataset.augment.preset=light", False),
        ("dataset.augment={preset:light} +dataset.augment.rotation=5", False),
        ("~dataset.augment +dataset.augment.rotation=5", False),
        ("optimizer=adam optimizer.beta_2=0.9", False),
        ("batch_schedule=doubling batch_schedule.maximum=64", False),
    ],
)
def test_composed_configuration_has_every_typed_value(composer: Composer, lines: str, lost: bool) -> None:
    config = composer.compose(lines.split(), 0)
    check(config)  # a study that was begun goes on
    if not lost:
        check(config, starts=True)
        return
    with pytest.raises(UserError, match="conflict, because light has no parts") as caught:
        check(config, starts=True)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("hydra.launcher.nodes=2", "hydra.launcher.nodes=2 and nodes=1 conflict.\nUse nodes=2, and remove"),
        ("hydra.launcher.tasks_per_node=3", "ranks=1 conflict.\nUse ranks=3, and remove hydra.launcher.tasks"),
        ("hydra/launcher=basic ranks=2", "ranks=2: this launcher starts one process.\nUse hydra/launcher=local"),
    ],
)
def test_trial_has_the_processes_of_the_apps_keys(composer: Composer, lines: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        check(composer.compose(lines.split(), 0))
    assert message in str(caught.value)
    check(composer.compose(["hydra/launcher=basic", "ranks=1"], 0))
    config = composer.compose(["nodes=2", "ranks=3", "batch_size=6"], 0)
    check(config)
    assert processes(config) == 6


@pytest.mark.parametrize(("count", "swept", "notes"), [(1, [], 1), (2, [], 0), (1, ["gpus"], 0), (None, [], 0)])
def test_other_gpus_of_a_foreign_app_are_noted(count: int | None, swept: list[str], notes: int) -> None:
    config = OmegaConf.create({"gpus": count, "hydra": {"launcher": {"gpus_per_node": 2}}})
    assert len([*describe_gpus(config, swept)]) == notes


def test_nested_targets_are_called_without_a_warning() -> None:
    nested = {"_target_": "builtins.dict", "in_a_list": [{"_target_": "fractions.Fraction", "numerator": 2}]}
    with warnings.catch_warnings(action="error"):
        assert call_target(nested, _convert_="all") == {"in_a_list": [2]}


@pytest.mark.parametrize(
    "typed, settings, message",
    [
        ("seed=1,2", {"exclude": ["Sed=1"]}, "'Sed=1' has Sed, which is not swept.\nDid you mean seed?"),
        ("optimizer=adam,sgd", {"exclude": ["optimizer=sdg"]}, "optimizer=sdg, which no trial has.\nDid you mean sgd?"),
        ("optimizer=adam,sgd", {"exclude": ["optimizer>3"]}, "an order of optimizer, which has no numbers.\n"),
        ("seed=1,2", {"exclude": ["not seed"]}, "has seed without a value.\nCompare it, as in seed=1"),
        ("lr=interval(0,1)", {"exclude": ["lr=5"]}, "lr=5, which no trial has.\nChoose among: interval(0,1)"),
        ("seed=1,2", {"exclude": ["seed>0"]}, "leaves no point to try: seed>0.\nRemove a condition"),
        ("optimizer=zip(lr=[1,2],seed=[1,2])", {}, "would not be set.\nChoose another name, as in optimizer_and_more"),
        (
            "seed=1,2",
            {"also": ["seed=3 hydra.job.name=x"]},
            "hydra.job.name=x: all trials share a setting of Hydra.\nType",
        ),
        ("seed=1,2", {"also": ["seed"]}, "hydra.sweeper.also: 'seed' is not a grid.\nType each as text"),
        ("seed=1,2", {"also": ["+a=1", "a=2"]}, "is typed twice, in zip(...) or hydra.sweeper.also.\nRemove one"),
        ("lr=interval(0,1)", {"also": ["seed=5"]}, "a search needs seed in each grid.\nType it in each, as in seed=0"),
        ("lr=interval(0,1)", {"also": ["+new=5"]}, "a search needs +new in each grid.\nRun a study for each grid"),
    ],
)
def test_wrong_restrictions_are_answered_in_two_lines(
    composer: Composer, master: DictConfig, typed: str, settings: dict[str, list[str]], message: str
) -> None:
    sampler = {"_target_": "optuna.samplers.TPESampler"} if "interval" in typed else None
    with pytest.raises(UserError) as refusal:
        read_space(composer, master, SweeperConf(sampler=sampler, **settings), typed.split(), is_new=True)  # type: ignore[arg-type]
    assert message in str(refusal.value) and str(refusal.value).count("\n") == 1
