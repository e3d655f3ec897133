"""How much each parameter of a search matters."""

import math

import optuna
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState, create_trial

from sweeps.choose.sampler.encoding import Encoding
from sweeps.record.replicates import by_first, verdict
from sweeps.record.space import SearchSpace
from sweeps.record.study import MIN_FOR_IMPORTANCE, StudySnapshot
from sweeps.trial.job import State

_TREES, _FEWEST, _WORK = 64, 8, 12_800  # trees times trials: 64 trees took half a minute of 1,000


def importance(study: StudySnapshot, space: SearchSpace) -> dict[str, float]:
    """Return the share of each parameter in the first objective's variance (fANOVA, Hutter et al., ICML 2014).

    Empty for fewer than two parameters, and until enough trials have completed.
    """
    encoding = Encoding(space)
    groups = by_first(study.rows).values() if len(space.parameters) > 1 else []
    ends = [(trials[0].configuration, verdict(trials, study.repeats)) for trials in groups if not trials[0].outside]
    completed = [(point, end) for point, end in ends if end and end.state is State.COMPLETED and end.objective]
    if len(completed) < MIN_FOR_IMPORTANCE:
        return {}  # without scikit-learn, whose import takes a second
    own = optuna.create_study()
    for point, end in completed:
        if math.isfinite(end.objective[0]) and encoding.holds(point):
            values = encoding.encode(point)
            kinds = {name: encoding.distributions[name] for name in values}
            state = TrialState.COMPLETE
            own.add_trial(create_trial(state=state, value=end.objective[0], params=values, distributions=kinds))
    trees = max(_FEWEST, min(_TREES, _WORK // len(completed)))
    try:
        return get_param_importances(own, evaluator=FanovaImportanceEvaluator(n_trees=trees, seed=0))
    except (ValueError, RuntimeError):  # all of them are equal: nothing to tell apart
        return {}
