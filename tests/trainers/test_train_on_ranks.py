"""Trainings on several ranks that equal the training of one process."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
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


def addresses(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    hosts = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets]
    for listener in sockets:
        listener.close()
    return hosts


def on_ranks(count: int, cases: list[list[str]]) -> list[list[dict[str, Any]]]:
    """Return the results of each rank, case by case."""
    where = json.dumps(addresses(count))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.trainers.ranks_and_one", str(rank), where, json.dumps(cases)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    results = []
    try:
        with ThreadPoolExecutor(count) as pool:  # because a rank with a full pipe blocks all ranks
            outputs = list(pool.map(lambda rank: rank.communicate(timeout=300), ranks))
        for rank, (out, err) in zip(ranks, outputs, strict=True):
            assert rank.returncode == 0, err[-3000:]
            results.append([json.loads(line) for line in out.splitlines() if line.startswith("{")])
    finally:
        for rank in ranks:
            rank.kill()
    return results


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the results of two ranks, by case."""
    cache = str(tmp_path_factory.mktemp("cache"))
    cases = {name: [word.replace("CACHE", cache) for word in case] for name, case in (EQUAL | OTHER | REST).items()}
    return dict(zip(cases, zip(*on_ranks(2, list(cases.values())), strict=True), strict=True))


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
