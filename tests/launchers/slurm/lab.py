"""The cluster's script, and trials to send to it. Not in conftest.py: jobs import it by a name that must be one."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext
from omegaconf import open_dict

from sweeps.launchers.contract import TrialJob, pack_app
from sweeps.trial.folder import TrialFolder

CLUSTER = Path(__file__).parents[3] / "docker/slurm/cluster.sh"


def cluster_sh(*arguments: str) -> str:
    """What the cluster's script prints; raises CalledProcessError if it fails."""
    done = subprocess.run([CLUSTER, *arguments], check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return done.stdout


@contextmanager
def job_maker(tmp_path: Path) -> Iterator[Callable[..., TrialJob]]:
    """(number, task_function, **launcher settings) -> a trial as the driver makes them."""
    (tmp_path / "config.yaml").write_text("x: 1\n")
    with initialize_config_dir(str(tmp_path), job_name="app", version_base="1.3"):
        study = f"study-{tmp_path.name}"

        def make(number: int, task: Callable[[Any], Any], **settings: Any) -> TrialJob:
            sweep = [
                f"hydra.sweep.dir={tmp_path / study}",
                f"hydra.sweep.subdir={number}",
                "hydra/launcher=slurm",
            ]
            config = compose("config", [*sweep, "hydra.mode=MULTIRUN"], return_hydra_config=True)
            with open_dict(config):
                config.hydra.job.id, config.hydra.job.num = f"app_{number}", number
                config.hydra.launcher.update({"mem_gb": 0.5, "cpus_per_task": 1, **settings})
            context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())
            folder = TrialFolder(tmp_path / study / str(number))
            return TrialJob(
                number, study, config, pack_app(task, context), folder, folder.new_attempt(), ("objective",)
            )

        yield make
