"""What a search found, for scripts: optimization_results.yaml, as hydra-optuna-sweeper writes it."""

from statistics import fmean
from typing import Any

from omegaconf import OmegaConf

from sweeps.files import write_whole
from sweeps.results import groups
from sweeps.results.summary import Summary

FILE = "optimization_results.yaml"


def write(summary: Summary) -> None:
    """Write the best trial's values, where configurations have several seeds the best one's and its mean, with several
    objectives those of each trial that none dominates. Nothing where no trial has a result.
    """
    best = summary.best()
    if best is None:
        return
    found: dict[str, Any] = {"name": "optuna"}
    if len(summary.directions) == 1:
        mean = groups.best(summary)
        found |= {"best_params": mean.params if mean else best.params}
        found |= {"best_value": fmean(mean.values) if mean else best.objective[0]}
    else:
        found["solutions"] = [{"params": row.params, "values": row.objective} for row in summary.undominated()]
    write_whole(summary.folder / FILE, OmegaConf.to_yaml(OmegaConf.create(found)))
