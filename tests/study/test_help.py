"""What `--help` says: every setting, from the dataclasses, and how many trials run at a time."""

from collections.abc import Callable

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

import trainers.config.schema  # noqa: F401 - what conf/config.yaml starts from
from sweeps.hydra.foreign_names import own_names
from sweeps.hydra.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf
from sweeps.launchers.local import machine
from sweeps.study.plan import help as sweeps_help
from tests.command_lines import ROOT

Compose = Callable[..., DictConfig]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Compose:
    """Return a function that composes sweep.py's configuration on a machine with 6 cores and 4 GPUs."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(machine, "visible_gpus", lambda: list("0123"))

    def made(*overrides: str) -> DictConfig:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            return compose("config", list(overrides), return_hydra_config=True)

    return made


@pytest.mark.parametrize("kind", [SweeperConf, LocalLauncherConf, SlurmLauncherConf])
def test_every_setting_is_described(kind: type, config: Compose) -> None:
    described, shown = sweeps_help.descriptions(kind), sweeps_help.text(_root_=config())
    assert list(described) == [name for name in own_names(kind) if name[0] != "_"]
    for name, text in described.items():
        assert text.endswith("."), name
        assert text.split()[0] in shown


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ((), ["  hydra.sweeper.n_trials=null ", "  hydra.sweeper.n_jobs=null ", "  hydra/sweeper/sampler=grid "]),
        ((), ["  tracking.uri=null ", "  loss.objective=val_accuracy ", "  gpus=0 ", "  nodes=1 ", "  ranks=1 "]),
        (
            (),
            ["  hydra.launcher.partition=null ", "  hydra.launcher.array_parallelism=256 ", "  trainer.refit=[trainer"],
        ),
        (("hydra/sweeper=optuna", "gpus=2"), ["sampler=default ", "n_trials=20 ", "  gpus=2 "]),
        (("tracking.uri='${oc.env:MY_DB}'",), ["  tracking.uri=$${oc.env:MY_DB} "]),
    ],
)
def test_setting_is_printed_as_typed(config: Compose, words: tuple[str, ...], lines: list[str]) -> None:
    shown = sweeps_help.text(_root_=config(*words))
    for line in lines:
        assert line in shown


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "Trials at a time: 6: this machine has 6 CPU cores, and each takes 1 (hydra.launcher.cpus_per_task). For"),
        (("hydra.launcher.cpus_per_task=4",), "Trials at a time: 1: this machine has 6 CPU cores, and each takes 4"),
        (("gpus=2",), "Trials at a time: 2: this machine has 4 GPUs, and each takes 2"),
        (("gpus=8",), "gpus=8: this machine has 4 GPUs.\nType gpus=4 or less"),
        (("hydra.sweeper.n_jobs=2",), "Trials at a time: 2 (hydra.sweeper.n_jobs). There is room for 6: this"),
        (("hydra/launcher=slurm",), "Trials at a time: 256: the SLURM jobs that may be queued or running"),
        (("hydra/launcher=basic",), ""),
    ],
)
def test_how_many_run_at_a_time_and_why(config: Compose, words: tuple[str, ...], text: str) -> None:
    assert sweeps_help.at_once(config(*words)).startswith(text)
