"""The sweepers and launchers in apps whose config keys have other meanings."""

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from sweeps.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf

SAME_KEYS = """
loss: {objective: score, direction: maximize}
tracking: {enabled: false, uri: "sqlite:///x.db", experiment: theirs}
gpus: 2
trainer: {preload: [json]}
"""


GRID, DEFAULT = "optuna.samplers.GridSampler", "sweeps.choose.sampler.build.DefaultSampler"


@pytest.mark.parametrize("sweeper, n_trials, sampler", [("grid", None, GRID), ("optuna", 20, DEFAULT)])
@pytest.mark.parametrize("launcher", ["local", "slurm"])
@pytest.mark.parametrize(
    "app_config, sweep, gpus, preload",
    [
        ("x: 1", (None, "minimize", True, None, "sweepyard"), 0, []),
        ("loss: 0.1\ntracking: gps\ntrainer: big", (None, "minimize", True, None, "sweepyard"), 0, []),
        ("nodes: 64\nranks: [a]\ntrainer: x", (None, "minimize", True, None, "sweepyard"), 0, []),
        ("loss: null\ntrainer: {lr: 1}", (None, "minimize", True, None, "sweepyard"), 0, []),
        (SAME_KEYS, ("score", "maximize", False, "sqlite:///x.db", "theirs"), 2, ["json"]),
    ],
)
def test_sweepers_and_launchers_compose_in_any_app(
    app_config: str, sweep: tuple[Any, ...], gpus: int, preload: list[str],
    sweeper: str, n_trials: int | None, sampler: str, launcher: str, tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "config.yaml").write_text(app_config)
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        groups = [f"hydra/sweeper={sweeper}", f"hydra/launcher={launcher}"]
        hydra = compose("config", groups, return_hydra_config=True).hydra
    sweeper_config, launcher_config = OmegaConf.to_object(hydra.sweeper), OmegaConf.to_object(hydra.launcher)
    assert isinstance(sweeper_config, SweeperConf)
    assert (
        sweeper_config.objective,
        sweeper_config.direction,
        sweeper_config.tracking,
        sweeper_config.tracking_uri,
        sweeper_config.experiment,
    ) == sweep
    assert (sweeper_config.n_trials, sweeper_config.sampler["_target_"]) == (n_trials, sampler)
    assert isinstance(launcher_config, LocalLauncherConf | SlurmLauncherConf)
    assert (launcher_config.gpus_per_node, launcher_config.preload) == (gpus, preload)
    assert (launcher_config.nodes, launcher_config.tasks_per_node) == (1, 1)
