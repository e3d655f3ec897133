"""Where a setting belongs that was typed elsewhere, and what no setting may be."""

import pytest
from omegaconf import OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SlurmLauncherConf, SweeperConf, read, suggest_setting


@pytest.mark.parametrize(
    ("word", "typed"),
    [
        ("n_jobs", "hydra.sweeper.n_jobs=..."),
        ("hydra.sweeper.n_jobs", ""),
        ("hydra.launcher.n_jobs", "hydra.sweeper.n_jobs=..."),
        ("hydra.launcher.n_workers", "hydra.sweeper.n_jobs=..."),
        ("hydra.launcher.time", ""),  # the nearest there is meant
        ("hydra.launcher.timeout_min", ""),
        ("hydra.sweeper.time", "hydra.launcher.timeout_min=..."),
        ("hydra.sweeper.partition", "hydra/launcher=slurm hydra.launcher.partition=..."),
        ("hydra.launcher.partition", "hydra/launcher=slurm hydra.launcher.partition=..."),
        ("sampler", "hydra/sweeper/sampler=..."),
        ("hydra.launcher.pruner", "hydra/sweeper/pruner=..."),
        ("model.n_jobs", ""),
        ("lr", ""),
    ],
)
def test_where_a_setting_belongs(word: str, typed: str) -> None:
    assert suggest_setting(word) == typed


@pytest.mark.parametrize("name", ["max_hours", "max_gpu_hours"])
def test_budget_of_zero_is_refused(name: str) -> None:
    message = f"hydra.sweeper.{name}=0.0: nothing could start.\nFor no limit, type: hydra.sweeper.{name}=null"
    with pytest.raises(UserError, match=message):
        read(OmegaConf.structured(SweeperConf(**{name: 0})), SweeperConf)
    assert getattr(read(OmegaConf.structured(SweeperConf(**{name: 0.001})), SweeperConf), name) == 0.001


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ({"driver": "jobs"}, "hydra.launcher.driver=jobs: unknown place.\nChoose here or job"),
        ({"driver": "job", "detach": True}, "hydra.launcher.driver=job and detach=true conflict: .*\nRemove hydra"),
        ({"driver_timeout_min": 0}, "hydra.launcher.driver_timeout_min=0: it must be 1 or more"),
    ],
)
def test_place_of_the_driver(typed: dict[str, object], problem: str) -> None:
    config = OmegaConf.structured(SlurmLauncherConf)
    config.update(typed)
    with pytest.raises(UserError, match=problem):
        read(config, SlurmLauncherConf)
