"""Settings of other plugins of Hydra that ours lack. They are declared, so that files and command
lines may have them.

`foreign_settings.adopt` takes them over. Their names are those of the plugins' own dataclasses:
https://github.com/facebookresearch/hydra/tree/main/plugins
"""

from dataclasses import dataclass, fields
from typing import Any

PACKAGES = {
    "ax": "hydra-ax-sweeper",
    "nevergrad": "hydra-nevergrad-sweeper",
    "ray": "hydra-ray-launcher",
    "ray_aws": "hydra-ray-launcher",
    "rq": "hydra-rq-launcher",
}
"""The package of each sweeper or launcher that ours do not replace."""


@dataclass
class OfSweepers:
    """Settings of Hydra's own sweeper, and of the sweepers of other plugins: Optuna's early
    versions, Ax, Nevergrad."""

    max_batch_size: Any = None
    search_space: Any = None
    ax_config: Any = None
    optim: Any = None
    parametrization: Any = None


@dataclass
class OfSubmitit:
    """Settings of hydra-submitit-launcher."""

    name: Any = None
    submitit_folder: Any = None
    stderr_to_stdout: Any = None
    use_srun: Any = None


@dataclass
class OfJoblib:
    """Settings of hydra-joblib-launcher."""

    n_jobs: Any = None
    inner_max_num_threads: Any = None
    backend: Any = None
    prefer: Any = None
    require: Any = None
    verbose: Any = None
    timeout: Any = None
    pre_dispatch: Any = None
    batch_size: Any = None
    temp_folder: Any = None
    max_nbytes: Any = None
    mmap_mode: Any = None


def foreign_names(kind: type) -> list[str]:
    """Return the names of the settings that other plugins have."""
    names: list[str] = []
    for base in (OfSweepers, OfSubmitit, OfJoblib):
        if issubclass(kind, base):
            names += [setting.name for setting in fields(base)]
    return names


def own_names(kind: Any) -> list[str]:
    """Return the names of the settings that ours have."""
    foreign = foreign_names(kind)
    return [setting.name for setting in fields(kind) if setting.name not in foreign]
