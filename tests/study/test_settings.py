"""Where a setting belongs that was typed elsewhere."""

import pytest

from sweeps.settings import home


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
    assert home(word) == typed
