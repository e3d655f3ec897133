"""How far the forecasts of sweeps/show/figures/prediction.py are from what was measured, on the published tables in
tests/data: each count told by all the others, the largest by the two smallest, and how many are in their 90% interval.

    python benchmarks/scaling_prediction.py [table.csv ...]
"""

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from sweeps.show.figures.prediction import AMDAHL, TIMES, Form, forecast
from sweeps.show.print.scaling_table import read_samples

DATA = Path(__file__).parents[1] / "tests" / "data"
WAYS: dict[str, list[Form]] = {
    "all terms": [TIMES, AMDAHL],
    "Amdahl's": [{name: TIMES[name] for name in ("1/n", "1")}],
    "exchange": [{name: TIMES[name] for name in ("1/n", "log2(2n)/n")}],
}
Case = tuple[dict[int, float], int, float]  # what is known, and the count and value to tell


def tables(file: Path) -> list[dict[int, float]]:
    """Epoch times by count, of the tables with three counts or more."""
    found: dict[str, dict[int, float]] = {}
    for sample in read_samples(file)[1]:
        found.setdefault(sample.series, {})[sample.count] = sample.epoch_s[0]
    return [dict(sorted(table.items())) for table in found.values() if len(table) > 2]


def left_out(table: dict[int, float]) -> Iterator[Case]:
    for count, value in table.items():
        yield {other: table[other] for other in table if other != count}, count, value


def far(table: dict[int, float]) -> Iterator[Case]:
    first, second, *_, last = table
    yield {first: table[first], second: table[second]}, last, table[last]


def line(cases: list[Case], forms: list[Form]) -> str:
    told = [(forecast(known.items(), count, forms), value) for known, count, value in cases]
    errors = sorted(abs(found.value / value - 1) for found, value in told)
    inside = statistics.mean(found.low <= value <= found.high for found, value in told)
    worst = errors[int(0.9 * len(errors))]
    return f"median error {statistics.median(errors):.1%}, of nine in ten {worst:.1%}, in the interval {inside:.0%}"


def main() -> None:
    for file in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(DATA.glob("*.csv")):
        found = tables(file)
        print(f"{file.name}: {len(found)} tables")
        for title, cut in (("each count from all others", left_out), ("the largest from the two smallest", far)):
            cases = [case for table in found for case in cut(table)]
            for name, forms in WAYS.items():
                print(f"  {title}, {name} ({len(cases)}): {line(cases, forms)}")


if __name__ == "__main__":
    main()
