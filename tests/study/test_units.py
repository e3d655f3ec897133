"""Numbers that were typed with a unit."""

import pytest

from sweeps.hydra.units import advise_number

WHOLE, ANY = True, False


@pytest.mark.parametrize(
    ("key", "typed", "whole", "number"),
    [
        ("mem_gb", "8G", ANY, "8"),
        ("mem_gb", "8GB", ANY, "8"),
        ("mem_gb", "8 GiB", ANY, "8"),
        ("mem_gb", "8192M", ANY, "8"),
        ("mem_gb", "512MB", ANY, "0.5"),
        ("mem_gb", "1.5T", ANY, "1536"),
        ("timeout_min", "2-00:00:00", WHOLE, "2880"),
        ("timeout_min", "2-12", WHOLE, "3600"),
        ("timeout_min", "1:30:00", ANY, "90"),
        ("timeout_min", "2h", WHOLE, "120"),
        ("timeout_min", "1h30m", WHOLE, "90"),
        ("timeout_min", "2 days", WHOLE, "2880"),
        ("timeout_min", "90s", WHOLE, "2"),
        ("timeout_min", "90s", ANY, "1.5"),
        ("timeout_min", "0.5", WHOLE, "1"),
        ("max_hours", "8h", ANY, "8"),
        ("max_hours", "90min", ANY, "1.5"),
        ("max_hours", "1:30", ANY, "1.5"),
        ("max_gpu_hours", "1d", ANY, "24"),
        ("poll_s", "5s", ANY, "5"),
        ("signal_delay_s", "2:00", WHOLE, "120"),
        ("max_failure_rate", "20%", ANY, "0.2"),
        ("validation_split", "1/5", ANY, "0.2"),
        ("epochs", "3k", WHOLE, "3000"),
        ("images", "2M", WHOLE, "2000000"),
        ("epochs", "1e3", WHOLE, "1000"),
        ("n_trials", "20.0", WHOLE, "20"),
    ],
)
def test_number_with_a_unit_is_converted(key: str, typed: str, whole: bool, number: str) -> None:
    assert advise_number(key, typed, whole) == f"Type: {key}={number}"


def test_two_meanings_are_both_named() -> None:
    assert advise_number("x_min", "1:30", WHOLE) == "Type x_min=90 for 1 h 30 min, or x_min=2 for 1 min 30 s"


@pytest.mark.parametrize(
    ("key", "typed", "whole"),
    [
        ("lr", "abc", ANY),
        ("batch_size", "1.5", WHOLE),
        ("epochs", "20%", WHOLE),
        ("mem_gb", "8h", ANY),
        ("max_hours", "8G", ANY),
        ("timeout_min", "", WHOLE),
        ("lr", "1/0", ANY),
    ],
)
def test_other_texts_are_no_numbers(key: str, typed: str, whole: bool) -> None:
    assert advise_number(key, typed, whole) == ""
