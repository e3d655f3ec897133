"""HEBO, asked for batches of points. `searchers.py` runs this file in HEBO's own environment.

Each line of stdin has the ended trials (indices and loss) and the number of points to choose; each line of stdout has
the chosen indices.
"""

import json
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from pymoo.config import Config

warnings.simplefilter("ignore")
Config.warnings["not_compiled"] = False  # because pymoo would print how to compile itself
from hebo.design_space.design_space import DesignSpace  # noqa: E402  # because it warns when it is imported
from hebo.optimizers.hebo import HEBO  # noqa: E402
from pymoo.core.mixed import MixedVariableDuplicateElimination  # noqa: E402


def mark_duplicates(_: object, population: Any, others: Any, is_duplicate: Any) -> Any:
    """Mark the individuals that equal a later individual, or any of `others`; as pymoo does, but by their hashes."""
    points = [frozenset(individual.X.items()) for individual in population]
    if others is None:
        last = {point: i for i, point in enumerate(points)}
        is_duplicate[:] = [last[point] != i for i, point in enumerate(points)]
    else:
        taken = {frozenset(individual.X.items()) for individual in others}
        is_duplicate[:] = [point in taken for point in points]
    return is_duplicate


MixedVariableDuplicateElimination._do = mark_duplicates  # because pymoo compares each pair: a quarter of the time


def main() -> None:
    sizes, seed = json.loads(sys.argv[1]), int(sys.argv[2])
    np.random.seed(seed)  # because HEBO draws from it
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    space = DesignSpace().parse(
        [
            {"name": key, "type": "cat", "categories": [*range(size)]}
            if is_word
            else {"name": key, "type": "int", "lb": 0, "ub": size - 1}
            for key, (size, is_word) in sizes.items()
        ]
    )
    search, answers = HEBO(space, scramble_seed=seed), sys.stdout
    sys.stdout = sys.stderr  # because HEBO prints
    for line in sys.stdin:
        ended, count = json.loads(line)
        if ended:
            losses = np.array([[loss] for _, loss in ended])
            search.observe(pd.DataFrame([indices for indices, _ in ended]), losses)
        chosen = search.suggest(n_suggestions=count)
        points = [{key: int(value) for key, value in row.items()} for row in chosen.to_dict("records")]
        print(json.dumps(points), file=answers, flush=True)


if __name__ == "__main__":
    main()
