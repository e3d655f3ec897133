"""What a search found, for scripts: optimization_results.yaml, as hydra-optuna-sweeper writes it."""

from typing import Any

from omegaconf import OmegaConf

from sweeps.files import write_whole
from sweeps.results.summary import Row, Summary

FILE = "optimization_results.yaml"


def undominated(summary: Summary) -> list[Row]:
    """The completed trials than which no other is as good in every objective and better in one, best first by the
    first objective. With one objective, all that are as good as the best.
    """
    signs = [-1 if direction == "maximize" else 1 for direction in summary.directions]
    costs = {row.number: [s * v for s, v in zip(signs, row.objective, strict=True)] for row in summary.top()}

    def dominates(one: list[float], other: list[float]) -> bool:
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    return [row for row in summary.top() if not any(dominates(one, costs[row.number]) for one in costs.values())]


def write(summary: Summary) -> None:
    """Write the best trial's values, or with several objectives those of each trial that none dominates; nothing
    where no trial has a result.
    """
    best = summary.best()
    if best is None:
        return
    found: dict[str, Any] = {"name": "optuna"}
    if len(summary.directions) == 1:
        found |= {"best_params": best.params, "best_value": best.objective[0]}
    else:
        found["solutions"] = [{"params": row.params, "values": row.objective} for row in undominated(summary)]
    write_whole(summary.folder / FILE, OmegaConf.to_yaml(OmegaConf.create(found)))
