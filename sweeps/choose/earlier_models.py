"""How far a search trusts earlier studies: their models, each weighted by how well it ranks this
study's results.

Feurer et al., Practical Transfer Learning for Bayesian Optimization, 2018, arXiv 1802.02219 (RGPE).
"""

from collections.abc import Iterable, Sequence

import numpy as np

from sweeps.choose.scores import Array
from sweeps.choose.surrogate import Encoded, Surrogate

_SAMPLES = 50  # bootstrap samples of this study's results


class EarlierModels:
    """A model of each earlier study. Each study's losses have their own scores, so that studies may
    differ in scale."""

    def __init__(
        self, studies: Iterable[tuple[Encoded, Sequence[float]]], parameter_indices: Sequence[int]
    ) -> None:
        """Fit a model to the points and the losses of each study in which two losses differ."""
        self._models: list[Surrogate] = []
        for encoded, losses in studies:
            if len(set(losses)) > 1:
                self._models.append(model := Surrogate(parameter_indices))
                model.fit(encoded, losses, [], [])

    def teach(self, own: Surrogate, count: int, seed: int) -> bool:
        """Add the models to this study's `own` model, which was fitted. Return whether any has a
        weight.

        Until two results differ, the models have all the weight after an even `count` of
        configurations, and none after an odd `count`, because they may mislead.
        """
        if not self._models:
            return False
        weights = [(1 - count % 2) / len(self._models)] * len(self._models)
        if len(set(own.scores)) > 1:
            weights = self._weigh(own, seed)
        own.others = [
            (weight, model)
            for model, weight in zip(self._models, weights, strict=True)
            if weight > 0
        ]
        return bool(own.others)

    def _weigh(self, own: Surrogate, seed: int) -> list[float]:
        """Return the weights of the models; this study's own model has the rest of 1.

        A weight is the share of bootstrap samples in which the model misorders the fewest pairs of
        results. The own model predicts each result from the others, and counts as no worse than
        chance. A model that is clearly worse than the own model has no weight, because many bad
        models would add up.
        """
        count = len(own.scores)
        before = own.scores[:, None] < own.scores
        counts = (
            np.random.RandomState(seed)
            .multinomial(count, np.full(count, 1 / count), _SAMPLES)
            .astype(float)
        )
        pairs = np.einsum("si,ij,sj->s", counts, before, counts)
        counts = counts[pairs > 0]
        pairs = pairs[pairs > 0]

        def misordered(mean: Array) -> Array:
            errors: Array = np.einsum(
                "si,ij,sj->s", counts, before & (mean[:, None] >= mean), counts
            )
            return errors

        own_errors = np.minimum(misordered(own.left_out_means()), pairs / 2)
        errors = np.array([misordered(model.mean(own.points)) for model in self._models])
        errors[np.median(errors, axis=1) > np.percentile(own_errors, 95)] = np.inf
        best = errors.argmin(0)[errors.min(0) < own_errors]
        return [float((best == index).sum()) / len(pairs) for index in range(len(self._models))]
