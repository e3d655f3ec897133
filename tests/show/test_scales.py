"""Scales of values: zeros, tiny values and values that are far off on a logarithmic axis."""

import math

import pytest

from sweeps.show.scales import Scale, scale_of


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([], Scale()),
        ([0.0, 0.0], Scale()),
        ([math.nan, math.inf], Scale()),
        ([0.1, 50.0], Scale()),
        ([-1.0, 1e9], Scale()),
        ([0.1, 200.0], Scale(True, 0.1, 200.0)),
        ([0.0, 0.1, 200.0], Scale(True, 0.1, 200.0, floor=0.01)),
        ([0.5, 0.6, 0.7, 0.9, 1e36], Scale(True, 0.5, 0.9, edge=9.0)),
        ([0.1, 1e8], Scale(True, 0.1, 1e8)),
        ([1e-139, 0.0, 0.5, 0.7, 0.9], Scale(True, 0.5, 0.9, floor=0.05)),
    ],
)
def test_scale(values: list[float], scale: Scale) -> None:
    assert scale_of(values) == scale


def test_places() -> None:
    scale = scale_of([0.0, 0.5, 0.7, 0.9, 1e36])
    assert [scale.place(value) for value in (0.0, 0.5, 1.0, 1e36)] == [0.05, 0.5, 1.0, 9.0]
    assert scale.color(0.0) == pytest.approx(math.log10(0.05))
    assert scale.note == "Values below 0.5 are drawn at the bottom. Values above 0.9 are drawn at the edge."
    assert scale.ticks["ticktext"][0] == "0"


def test_values_of_a_maximized_objective_stay_at_their_places() -> None:
    assert scale_of([0.5, 0.6, 0.7, 0.9, 1e36], clips=False) == Scale(True, 0.5, 1e36)


def test_ticks_are_few() -> None:
    ticks = scale_of([0.0, *(10.0**power for power in range(-12, 6))]).ticks
    assert len(ticks["tickvals"]) == len(ticks["ticktext"]) <= 10
    assert scale_of([1.0, 2.0]).ticks == {}
