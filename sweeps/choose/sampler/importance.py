"""The importance of each parameter of a search."""

import math
from dataclasses import replace

import optuna
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import create_trial

from sweeps.choose.sampler.encoding import Encoding
from sweeps.record.study import MIN_FOR_IMPORTANCE, StudySnapshot, by_first, verdict
from sweeps.space.space import SearchSpace
from sweeps.trial.job import Point, State

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
    completed = _completed(study)
    if len(space.parameters) < 2 or len(completed) < MIN_FOR_IMPORTANCE:
        return {}  # before the rest imports scikit-learn, because that takes a second

    encoding = Encoding(space)
    optuna_study = optuna.create_study()
    for point, value in completed:
        if math.isfinite(value) and space.contains(point):
            values = encoding.encode(point)
            kinds = {name: encoding.distributions[name] for name in values}
            trial = create_trial(value=value, params=values, distributions=kinds)
            optuna_study.add_trial(trial)

    trees = max(_MIN_TREES, min(_MAX_TREES, _MAX_WORK // len(completed)))
    evaluator = FanovaImportanceEvaluator(n_trees=trees, seed=0)
    try:
        return get_param_importances(optuna_study, evaluator=evaluator)
    except (ValueError, RuntimeError):  # because all values are equal
        return {}


def _completed(study: StudySnapshot) -> list[tuple[Point, float]]:
    """Return each configuration that completed, and its first objective."""
    completed = []
    for first, *others in by_first(study.rows).values():
        end = verdict([first, *others], study.repeats)
        is_complete = end and end.state is State.COMPLETED and end.objective
        if end and is_complete and not first.outside:
            completed.append((first.configuration, end.objective[0]))
    return completed
