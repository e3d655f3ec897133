"""Where pruned trials would have ended: curves and losses against tables."""

import math

from sweeps.choose.curves import estimate_ends


def test_a_pruned_trial_ends_the_median_change_of_completed_trials_after_its_last_report() -> None:
    curves = [{1: 9.0, 2: 5.0}, {1: 8.0, 2: 7.0}, {1: 7.0}, {1: 9.0, 2: 6.0}, {3: 1.0}, {}]
    losses = [4.0, 4.0, 6.0, math.inf, math.inf, math.inf]
    assert estimate_ends(curves, losses) == [4.0, 4.0, 6.0, 4.0, math.inf, math.inf]
    assert estimate_ends([{1: 3.0}, *curves], [math.inf, *losses])[0] == -1.0
