"""Forecasts of what is known: exact laws, and the published tables of tests/data."""

import statistics
from pathlib import Path
from typing import Any

import pytest

from sweeps.results.prediction import AMDAHL, EPOCHS, EXCHANGE, doubts, epoch_time, forecast, time_to_stable
from sweeps.results.scaling import Sample, Scaling, compare
from sweeps.results.scaling_table import read_samples

DATA = Path(__file__).parents[1] / "data"


def page_of(**epochs: Any) -> Scaling:
    """n1=[..] are the epoch times at one GPU; stable1=(epochs, seconds) its way to a stable objective."""
    samples = []
    for name, seconds in epochs.items():
        if name.startswith("n"):
            stable = epochs.get(f"stable{name[1:]}", (None, None))
            known = {"epochs_to_stable": stable[0], "time_to_stable_s": stable[1]}
            samples.append(Sample("", int(name[1:]), 1, int(name[1:]), seconds, **known))
    return compare(Scaling("demo", "GPUs", "GPU-hours", "acc", "epoch time", [], []), samples)


@pytest.mark.parametrize(
    ("measured", "wanted", "forms", "expected"),
    [
        ({1: 12.0, 2: 7.0}, 4, [AMDAHL], 10 / 4 + 2),  # 10/n + 2
        ({1: 10.0, 2: 6.0}, 4, [EXCHANGE], 10 / 4 + 2 * 2 / 4),  # 10/n + 2 log2(n)/n
        ({1: 10.0, 2: 5.0, 4: 2.5}, 16, [AMDAHL, EXCHANGE], 10 / 16),
        ({1: 10.0, 2: 4.0}, 1, [AMDAHL], (1 / 10 + 1 / 8) / (1 / 100 + 1 / 64)),  # better than ideal: w/n is left
        ({1: 5.0, 2: 10.0}, 8, [AMDAHL], (1 / 5 + 1 / 10) / (1 / 25 + 1 / 100)),  # slower with two: a constant is left
        ({1: 12.0, 4: 18.0}, 2, [EPOCHS], 14),  # 10 + 2 n
    ],
)
def test_exact_laws(measured: dict[int, float], wanted: int, forms: Any, expected: float) -> None:
    assert forecast(measured, wanted, forms).value == pytest.approx(expected)


@pytest.mark.parametrize("law", [lambda n: 10 / n + 2, lambda n: 10 / n, lambda n: 10 / n * (1 + 0.2 * (n - 1) ** 0.3)])
def test_more_counts_make_a_forecast_surer_and_the_truth_is_in_the_interval(law: Any) -> None:
    few, more = ({n: law(n) for n in known} for known in ((1, 2, 4), (1, 2, 4, 8, 16)))
    near, far = forecast(more, 32), forecast(few, 32)
    assert near.low <= law(32) <= near.high
    assert far.low <= law(32) <= far.high
    assert near.high / near.low < far.high / far.low


def test_two_counts_do_not_tell_the_forms_apart() -> None:
    found = forecast({1: 12.0, 2: 7.0}, 4)
    amdahl, exchange = 10 / 4 + 2, 12 / 4 + 2 * 2 / 4
    assert found.value == pytest.approx((amdahl * exchange**3) ** 0.25)
    assert found.low < exchange < amdahl < found.high


def test_noise_widens_the_interval() -> None:
    measured = {1: 12.0, 2: 7.0}
    quiet, loud = forecast(measured, 4), forecast(measured, 4, noise=0.2)
    assert (loud.value, loud.low < quiet.low, loud.high > quiet.high) == (quiet.value, True, True)


@pytest.mark.parametrize("file", ["tensorflow_2017.csv", "nvidia_bert_2021.csv"])
def test_published_tables_leave_one_out(file: str) -> None:
    tables: dict[str, dict[int, float]] = {}
    for sample in read_samples(DATA / file):
        tables.setdefault(sample.series, {})[sample.count] = sample.epoch_s[0]
    errors, inside = [], []
    for table in tables.values():
        for count, value in table.items():
            found = forecast({n: s for n, s in table.items() if n != count}, count)
            errors.append(abs(found.value / value - 1))
            inside.append(found.low <= value <= found.high)
    assert len(errors) > 40
    assert statistics.median(errors) < 0.05  # 10% is what was asked for
    assert round(statistics.mean(inside), 1) >= 0.9


def test_the_data_is_what_was_published() -> None:
    """Epoch times are computed from the published speeds: 1,281,167 images, a million sentences."""
    for file, examples in (("tensorflow_2017.csv", 1281167), ("nvidia_bert_2021.csv", 1e6)):
        for sample in read_samples(DATA / file):
            assert sample.epoch_s[0] == pytest.approx(examples / sample.images_s[0], rel=1e-5)


def test_the_time_to_stable_is_epochs_by_epoch_time_and_the_start() -> None:
    """Epochs 10 + n, an epoch 8/n seconds, and 5 s of tracing before."""
    known = {f"n{n}": [8 / n] for n in (1, 2, 4)} | {f"stable{n}": (10 + n, (10 + n) * 8 / n + 5) for n in (1, 2, 4)}
    (series,) = page_of(**known).series
    found = time_to_stable(series, 8)
    assert found
    assert found.value == pytest.approx(18 * 1 + 5)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("known", [{"n1": [2.0], "stable1": (3, 6.0)}, {"n1": [2.0], "n2": [1.0], "stable1": (3, 6.0)}])
def test_no_time_to_stable_from_one_count(known: dict[str, Any]) -> None:
    (series,) = page_of(**known).series
    assert time_to_stable(series, 8) is None
    assert (epoch_time(series, 8) is None) == ("n2" not in known)


@pytest.mark.parametrize(
    ("known", "wanted", "expected"),
    [
        ({"n1": [8.0], "n2": [4.0], "n4": [2.0]}, 4, []),
        ({"n1": [8.0]}, 4, ["one count tells nothing of others: measure a second"]),
        ({"n1": [8.0], "n2": [4.0]}, 2, ["two counts fit any form: measure a third"]),
        (
            {"n1": [8.0, 6.0, 10.0], "n2": [7.0], "n4": [6.0]},
            2,
            ["epochs of one count differ by up to 50%, more than counts do (33%)"],
        ),
        (
            {"n1": [8.0], "n2": [4.0], "n4": [2.0]},
            32,
            [
                "32 is 8 times the largest count measured",
                "more than 4 GPUs may take more nodes than any trial used, whose network is not in it",
            ],
        ),
    ],
)
def test_when_not_to_believe_it(known: dict[str, Any], wanted: int, expected: list[str]) -> None:
    scaling = page_of(**known)
    assert doubts(scaling, scaling.series[0], wanted) == expected
