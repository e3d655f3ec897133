"""hydra/sweeper=grid, optuna and hydra/launcher=local, slurm in an app whose keys mean something else, or nothing."""

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from sweeps.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf

LIKE_OURS = """
loss: {objective: score, direction: maximize}
tracking: {enabled: false, uri: "sqlite:///x.db", experiment: theirs}
gpus: 2
trainer: {preload: [json]}
"""


GRID, DEFAULT = "optuna.samplers.GridSampler", "sweeps.choose.sampler.build.DefaultSampler"


@pytest.mark.parametrize("sweeper, n_trials, sampler", [("grid", None, GRID), ("optuna", 20, DEFAULT)])
@pytest.mark.parametrize("launcher", ["local", "slurm"])
@pytest.mark.parametrize(
    "theirs, sweep, gpus, preload",
    [
        ("x: 1", (None, "minimize", True, None, "sweepyard"), 0, []),
        ("loss: 0.1\ntracking: gps\ntrainer: big", (None, "minimize", True, None, "sweepyard"), 0, []),
        ("nodes: 64\nranks: [a]\ntrainer: x", (None, "minimize", True, None, "sweepyard"), 0, []),
        ("loss: null\ntrainer: {lr: 1}", (None, "minimize", True, None, "sweepyard"), 0, []),
        (LIKE_OURS, ("score", "maximize", False, "sqlite:///x.db", "theirs"), 2, ["json"]),
    ],
)
def test_any_app_composes(
    theirs: str, sweep: tuple[Any, ...], gpus: int, preload: list[str],
    sweeper: str, n_trials: int | None, sampler: str, launcher: str, tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "config.yaml").write_text(theirs)
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        groups = [f"hydra/sweeper={sweeper}", f"hydra/launcher={launcher}"]
        hydra = compose("config", groups, return_hydra_config=True).hydra
    how, where = OmegaConf.to_object(hydra.sweeper), OmegaConf.to_object(hydra.launcher)
    assert isinstance(how, SweeperConf)
    assert (how.objective, how.direction, how.tracking, how.tracking_uri, how.experiment) == sweep
    assert (how.n_trials, how.sampler["_target_"]) == (n_trials, sampler)
    assert isinstance(where, LocalLauncherConf | SlurmLauncherConf)
    assert (where.gpus_per_node, where.preload) == (gpus, preload)
    assert (where.nodes, where.tasks_per_node) == (1, 1)
