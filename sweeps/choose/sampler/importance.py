"""The importance of each parameter of a search."""

import math
from dataclasses import replace

import optuna
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import create_trial

from sweeps.choose.sampler.encoding import Encoding
from sweeps.record.study import MIN_FOR_IMPORTANCE, StudySnapshot, by_first, verdict
from sweeps.space.space import SearchSpace
from sweeps.trial.job import State

_MAX_TREES = 64
_MIN_TREES = 8
_MAX_WORK = 12_800  # trees times trials; 64 trees of 1,000 trials take 30 seconds


def with_importance(study: StudySnapshot, space: SearchSpace) -> StudySnapshot:
    """Return the study with the importance of its params, if a sampler chose the trials."""
    return replace(study, importance=importance(study, space)) if study.searched else study


def importance(study: StudySnapshot, space: SearchSpace) -> dict[str, float]:
    """Return the share of each parameter in the first objective's variance (fANOVA, Hutter et al.,
    ICML 2014).

    The result is empty for fewer than two parameters, or if too few trials have completed.
    """
    encoding = Encoding(space)
    groups = by_first(study.rows).values() if len(space.parameters) > 1 else []
    ends = [
        (trials[0].configuration, verdict(trials, study.repeats))
        for trials in groups
        if not trials[0].outside
    ]
    completed = [
        (point, end)
        for point, end in ends
        if end and end.state is State.COMPLETED and end.objective
    ]
    if len(completed) < MIN_FOR_IMPORTANCE:
        return {}  # before the rest imports scikit-learn, because that takes a second
    optuna_study = optuna.create_study()
    for point, end in completed:
        if math.isfinite(end.objective[0]) and space.contains(point):
            values = encoding.encode(point)
            kinds = {name: encoding.distributions[name] for name in values}
            optuna_study.add_trial(
                create_trial(value=end.objective[0], params=values, distributions=kinds)
            )
    trees = max(_MIN_TREES, min(_MAX_TREES, _MAX_WORK // len(completed)))
    try:
        return get_param_importances(
            optuna_study, evaluator=FanovaImportanceEvaluator(n_trees=trees, seed=0)
        )
    except (ValueError, RuntimeError):  # because all values are equal
        return {}
