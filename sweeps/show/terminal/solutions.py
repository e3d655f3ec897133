"""optimization_results.yaml: the result of a search for scripts, in the format of
hydra-optuna-sweeper."""

from statistics import fmean
from typing import Any

from omegaconf import OmegaConf

from sweeps.base.files import write_whole
from sweeps.record.study import StudySnapshot
from sweeps.show.findings import Findings, findings_of

FILE = "optimization_results.yaml"


def write(study: StudySnapshot | Findings) -> None:
    """Write the best trial, the best configuration with its mean, or the Pareto front; nothing
    without results."""
    findings = findings_of(study)
    answer = findings.answer
    content = dict[str, Any](name="optuna")
    if answer.best_trial is None:
        return
    if len(findings.study.directions) > 1:
        content["solutions"] = [
            {"params": trial.params, "values": trial.objective} for trial in answer.front
        ]
    elif best := answer.best_configuration:
        content |= {"best_params": best.params, "best_value": fmean(best.values)}
    else:
        content |= {
            "best_params": answer.best_trial.params,
            "best_value": answer.best_trial.objective[0],
        }
    write_whole(findings.study.folder / FILE, OmegaConf.to_yaml(OmegaConf.create(content)))
