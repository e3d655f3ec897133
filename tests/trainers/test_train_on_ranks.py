"""Trainings on several ranks that equal the training of one process."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(900)  # because ranks that wait for each other crawl on a busy machine
OPTIMIZERS = [
    *("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamax", "adadelta", "nadam", "adamw", "ftrl"),
    *("lion", "proximal_gd", "proximal_adagrad"),
]
SMALL = ["model.hidden=[8]"]
NORMALIZED = ["model._target_=tests.trainers.ranks_and_one.normalized", "model.hidden=[4]"]
EQUAL: dict[str, list[str]] = {
    **{name: [f"optimizer={name}", *SMALL] for name in OPTIMIZERS},
    "convolutions": ["model=cnn", "model.filters=[4]", *SMALL, "optimizer=momentum", "lr=0.05"],
    "averaged weights": ["optimizer=sgd", "+optimizer.use_ema=true", *SMALL],
    "one-hot labels": ["dataset.labels=one_hot", "loss=softmax", *SMALL],
    "another batch": ["batch_size=46", *SMALL],
    "a rest of 7 examples": [
        "batch_size=46",
        "dataset.validation_split=0.16733",
        "optimizer=momentum",
        *SMALL,
    ],  # 1,249 examples
    "read from a file": ["dataset.size=12", "dataset.resident_gb=0", "dataset.cache=CACHE", *SMALL],
    "synchronized batch norm": [*NORMALIZED, "model.sync_batch_norm=true"],
}
"""What trains on ranks as on one."""
OTHER = {
    "batch norm by rank": NORMALIZED,
    "dropout": [*SMALL, "model.dropout=0.3"],
    "in 16 bits": [*SMALL, "all_reduce_dtype=bfloat16"],
}
"""What does not."""
REST = {"a rest of 1 example": ["batch_size=48", "dataset.validation_split=0.16733", *SMALL]}


def on_ranks(count: int, cases: list[list[str]], folder: Path) -> list[list[dict[str, Any]]]:
    """Return the results of each rank, case by case."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tests.trainers.ranks_and_one"]
    ranks = []
    for rank in range(count):
        words = [str(rank), str(count), str(folder), json.dumps(cases)]
        # Files, because a rank with a full pipe blocks all ranks.
        out, err = (folder / f"{rank}.out").open("w"), (folder / f"{rank}.err").open("w")
        ranks.append(subprocess.Popen([*command, *words], cwd=ROOT, env=environment, stdout=out, stderr=err))
    deadline = time.monotonic() + 880
    try:
        # Until one fails, because the others wait for it without end.
        while any(rank.poll() is None for rank in ranks) and not any(rank.returncode for rank in ranks):
            assert time.monotonic() < deadline, _last_lines(folder)
            time.sleep(0.1)
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.wait() for rank in ranks] == [0] * count, _last_lines(folder)
    lines = [(folder / f"{rank}.out").read_text().splitlines() for rank in range(count)]
    return [[json.loads(line) for line in of_rank if line.startswith("{")] for of_rank in lines]


def _last_lines(folder: Path) -> str:
    return "\n".join(f"{file.name}: {file.read_text()[-3000:]}" for file in sorted(folder.glob("*.err")))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the results of two ranks, by case."""
    cache = str(tmp_path_factory.mktemp("cache"))
    cases = {name: [word.replace("CACHE", cache) for word in case] for name, case in (EQUAL | OTHER | REST).items()}
    results = on_ranks(2, list(cases.values()), tmp_path_factory.mktemp("ranks"))
    return dict(zip(cases, zip(*results, strict=True), strict=True))


def apart(rank: dict[str, Any], alone: dict[str, Any]) -> tuple[float, float]:
    """Return the largest distance of a weight, and of a metric."""
    metrics = [value - rank["metrics"][name] for name, value in alone["metrics"].items()]
    weights = np.subtract(rank["weights"], alone["weights"], dtype=float)
    return float(np.abs(weights).max()), float(np.abs(metrics).max())


@pytest.mark.long
@pytest.mark.parametrize("case", EQUAL)
def test_ranks_give_the_weights_and_metrics_of_one_process(outcomes: dict[str, Any], case: str) -> None:
    # Keras works out a synchronized variance as E(x^2) - E(x)^2, which loses digits.
    least = 1e-10 if case == "synchronized batch norm" else 1e-12
    for rank in outcomes[case]:
        weights, metrics = apart(rank, outcomes[case][0]["alone"])
        assert weights < least
        assert metrics < 1e-10


@pytest.mark.long
@pytest.mark.parametrize("case", OTHER)
def test_ranks_agree_although_draws_and_rounding_differ(outcomes: dict[str, Any], case: str) -> None:
    chief, other = outcomes[case]
    assert apart(chief, chief["alone"])[0] > 1e-6  # or the cases above could not fail
    assert chief["weights"] == other["weights"]  # moving statistics included
    assert chief["metrics"]["val_loss"] == other["metrics"]["val_loss"]


@pytest.mark.long
def test_a_rest_of_fewer_examples_than_ranks_counts_once(outcomes: dict[str, Any]) -> None:
    for rank in outcomes["a rest of 1 example"]:
        weights, metrics = apart(rank, outcomes["a rest of 1 example"][0]["alone"])
        assert weights < 1e-12
        assert metrics < 1e-3  # because both ranks report the example


@pytest.mark.long
def test_dropout_draws_by_rank(outcomes: dict[str, Any]) -> None:
    (first,), (second,) = (rank["seeds"] for rank in outcomes["dropout"])
    assert first[0] + 1 == second[0]
    assert first[1] == second[1] > 0
