"""What a search found, for scripts: optimization_results.yaml, as hydra-optuna-sweeper writes it."""

from statistics import fmean
from typing import Any

from omegaconf import OmegaConf

from sweeps.files import write_whole
from sweeps.record.study import StudySnapshot
from sweeps.results.findings import Findings, findings_of

FILE = "optimization_results.yaml"


def write(study: StudySnapshot | Findings) -> None:
    """Write the best trial's values, where configurations have several seeds the best one's and its mean, with several
    objectives those of each trial that none dominates. Nothing where no trial has a result.
    """
    findings = findings_of(study)
    answer, content = findings.answer, dict[str, Any](name="optuna")
    if answer.trial is None:
        return
    if len(findings.study.directions) > 1:
        content["solutions"] = [{"params": row.params, "values": row.objective} for row in answer.front]
    elif mean := answer.configuration:
        content |= {"best_params": mean.params, "best_value": fmean(mean.values)}
    else:
        content |= {"best_params": answer.trial.params, "best_value": answer.trial.objective[0]}
    write_whole(findings.study.folder / FILE, OmegaConf.to_yaml(OmegaConf.create(content)))
