"""The search as tables, and a trial that searches; tests/test_largest_batch.py has real tries."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from sweeps.launchers.local.fork_server import _MEMORY_WORDS
from sweeps.trial.job import World
from tests.composing import CONF
from tests.trainers.recorder import Recorder, compose
from trainers.batch import largest_batch
from trainers.batch.batch_search import MOST_TRIES, Estimate, Try, first_size
from trainers.batch.batch_search import next_size as next_of
from trainers.batch.largest_batch import find
from trainers.config import largest_batch as kept
from trainers.data.arrays import Data
from trainers.subprocess_run import OutOfMemory, run_in_subprocess

LIMITS: list[tuple[int, int, int, int]] = [  # the largest size that fits, start, unit and most
    *[(fits, 32, 1, 50_000) for fits in (1, 2, 3, 31, 32, 33, 63, 64, 100, 1000, 2816, 49_999, 50_000, 10**9)],
    *[(fits, 32, 4, 1250) for fits in (4, 7, 8, 100, 1247, 1248, 1250, 10**9)],
    *[(fits, 1250, 1, 1250) for fits in (1, 5, 700, 1249, 1250)],
    *[(fits, 7, 7, 7) for fits in (7, 8)],
]


def next_size(tried: dict[int, bool], start: int, unit: int, most: int, precision: float) -> int | None:
    tries = [Try(size, fit) for size, fit in tried.items()]
    return next_of(tries, start, unit, most, precision, Estimate(most))


def search(fits: int, start: int, unit: int, most: int, precision: float = 0.06) -> dict[int, bool]:
    tried: dict[int, bool] = {}
    while size := next_size(tried, start, unit, most, precision):
        assert size not in tried
        assert unit <= size <= most
        assert size % unit == 0
        tried[size] = size <= fits
        assert len(tried) < 40
    return tried


@pytest.mark.parametrize(("fits", "start", "unit", "most"), LIMITS)
def test_largest_batch_is_within_six_percent(fits: int, start: int, unit: int, most: int) -> None:
    most = most // unit * unit
    tried = search(fits, start, unit, most)
    largest = max(size for size, fit in tried.items() if fit)
    truth = min(fits, most) // unit * unit
    assert largest <= truth
    assert largest == truth or truth - largest < max(unit, 0.06 * largest)
    assert (largest == most) == all(tried.values())


@pytest.mark.parametrize(
    ("fits", "start", "unit", "most", "tried"),
    [
        (100, 32, 1, 1000, [32, 64, 128, 96, 112, 104, 100]),
        (100, 32, 1, 90, [32, 64, 90]),
        (3, 32, 1, 1000, [32, 16, 8, 4, 2, 3]),
        (20, 32, 8, 1000, [32, 16, 24]),
        (7, 32, 8, 1000, [32, 16, 8]),
        (10**9, 32, 2, 1248, [32, 64, 128, 256, 512, 1024, 1248]),
    ],
)
def test_order_of_tried_batches(fits: int, start: int, unit: int, most: int, tried: list[int]) -> None:
    assert list(search(fits, start, unit, most)) == tried


def test_search_resumes_from_any_tried_batches() -> None:
    whole = search(1000, 32, 1, 50_000)
    for made in range(len(whole)):
        part = dict(list(whole.items())[:made])
        assert next_size(part, 32, 1, 50_000, 0.06) == list(whole)[made]


def search_by_memory(room_gb: float, example_gb: float, guess: float, unit: int, most: int) -> list[Try]:
    """Search where a training takes 1 GB and memory for each example, which the estimate has times `guess`."""
    estimate = Estimate(most, room_gb, 1.0, example_gb * guess)
    start, tries = first_size(estimate, 32), list[Try]()
    while size := next_of(tries, start, unit, most, 0.06, estimate):
        memory_gb = 1 + size * example_gb
        assert size not in [tried.batch_size for tried in tries]
        tries.append(Try(size, memory_gb <= room_gb, memory_gb if memory_gb <= room_gb else 0.0))
    return tries


@pytest.mark.parametrize("unit", [1, 4])
@pytest.mark.parametrize("example_gb", [1.0, 0.1, 0.007, 1e-4, 1e-6])
@pytest.mark.parametrize(("guess", "most_tries"), [(1.0, 3), (0.25, 7), (4.0, 6)])
def test_estimate_shortens_the_search(guess: float, most_tries: int, example_gb: float, unit: int) -> None:
    tries = search_by_memory(8.5, example_gb, guess, unit, 60_000)
    largest = max(tried.batch_size for tried in tries if tried.fits)
    truth = min(int(7.5 / example_gb), 60_000) // unit * unit
    assert truth - largest < max(unit, 0.06 * largest) or largest == truth
    assert len(tries) <= most_tries < MOST_TRIES


def test_number_of_tries_is_bounded() -> None:
    tries = [Try(10 + i, True) for i in range(MOST_TRIES - 1)] + [Try(1000, False)]
    assert next_of(tries, 32, 1, 60_000, 0.06, Estimate(60_000)) is None
    assert next_of([Try(1000 - i, False) for i in range(30)], 32, 1, 60_000, 0.06, Estimate(60_000)) == 485


@pytest.mark.parametrize(
    ("tried", "most", "next_"),
    [
        ({512: True}, 250, None),
        ({512: True, 1024: False}, 250, None),
        ({200: True, 1024: False}, 250, 250),
        ({1024: False}, 250, 250),
    ],
)
def test_shrunk_bound_ends_the_search(tried: dict[int, bool], most: int, next_: int | None) -> None:
    assert next_size(tried, 32, 1, most, 0.06) == next_


@pytest.mark.parametrize(
    ("validation", "test", "judged"),
    [
        (100, 900, ("test", 900)),
        (900, 100, ("validation", 900)),
        (1000, 1030, ("validation", 1000)),  # 1030 are judged in two halves
        (0, 3000, ("test", 1000)),
        (0, 0, ("training", 40)),
    ],
)
def test_the_largest_batch_of_evaluation_is_judged(validation: int, test: int, judged: tuple[str, int]) -> None:
    x, y = np.zeros((4000, 8), np.float32), np.zeros(4000, np.int32)
    rows = np.arange(4000, dtype=np.int32)
    data = Data(x, y, rows[:40], rows[:validation], x, y, rows[:test], outputs=2)
    once = largest_batch._shrink_evaluation(data, devices=1)
    assert max((len(subset.rows), name) for name, subset in once.subsets.items()) == (judged[1], judged[0])


class Trial(Recorder):
    def __init__(self, folder: Path, stop_after: int | None = None, world: World | None = None) -> None:
        super().__init__(folder, stop_after)
        self.world = world or World()


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set a launcher with a memory limit, and an own folder of results."""
    monkeypatch.setattr(kept, "_launcher", lambda: {"_target_": kept.HERE, "mem_gb": 4.0})
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch, limited: None) -> list[int]:
    """Replace the tries: at most 300 examples fit, at a megabyte each, without a process."""
    made: list[int] = []

    def train(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> float:
        made.append(size)
        if size > 300:
            raise OutOfMemory("there is no room")
        return size / 1000

    def here(work: Callable[[], Any], limit_gb: float | None, timeout_s: float, log: Path | None) -> Any:
        return work()

    monkeypatch.setattr(largest_batch, "_measure_training", train)
    monkeypatch.setattr(largest_batch, "_estimate", lambda *_: Estimate(1250))
    monkeypatch.setattr(largest_batch, "run_in_subprocess", here)
    return made


def search_of(*overrides: str) -> DictConfig:
    with hydra.initialize_config_dir(str(CONF), version_base=None):
        cfg = hydra.compose("config", ["+find=largest_batch", "model=mlp", *overrides])
    OmegaConf.to_object(cfg)  # raises ValueError unless valid
    return cfg


FOUND = [32, 64, 128, 256, 512, 384, 320, 288, 304]


def test_a_trial_reports_each_try_and_returns_the_largest(tries: list[int], tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    expected = {"largest_batch": 288, "per_gpu": 288, "advised": 259, "memory_gb": 0.288}
    assert find(search_of(), trial) == {**expected, "tries": 9, "whole_training_set": False}  # type: ignore[arg-type]
    assert tries == FOUND
    assert trial.steps == list(range(1, 10))
    assert [report["batch_size"] for report in trial.reported] == FOUND
    assert [report["fits"] for report in trial.reported] == [size <= 300 for size in FOUND]
    assert set(expected) <= set(trial.reported[0])
    assert trial.notes["largest batch"] == (
        "batch_size=288 fits with gpus=0 (0.288 GB), 304 does not; with 10% in reserve: batch_size=259 "
        f"(tried: {', '.join(map(str, FOUND))}) (batch_size=304: there is no room)"
    )


def test_log_of_a_trial_has_no_false_outcome(
    tries: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Keep words of a memory error out of the log, because fork_server.py searches the log of a killed trial."""

    def train(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> float:
        os.write(2, b"OOM when allocating\n")
        os.write(1, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
        if size > 300:
            raise MemoryError("std::bad_alloc")
        return size / 1000

    def run(work: Callable[[], Any], limit_gb: float | None, timeout_s: float, log: Path | None) -> Any:
        return run_in_subprocess(work, 100, 60, log)

    monkeypatch.setattr(largest_batch, "_measure_training", train)
    monkeypatch.setattr("sys.stderr", open(2, "w", buffering=1, closefd=False))  # noqa: SIM115 - not pytest's
    monkeypatch.setattr(largest_batch, "run_in_subprocess", run)
    assert find(search_of(), Trial(tmp_path))["largest_batch"] == 288  # type: ignore[arg-type]
    output = "".join(capfd.readouterr())
    assert "batch_size=288 fits\n" in output
    assert "batch_size=304 does not fit, see tries.log\n" in output
    assert not [word for word in (*_MEMORY_WORDS, "does not fit:") if word in output]
    tried = (tmp_path / "tries.log").read_text()
    assert tried.count("'std::bad_alloc'\n") == tried.count("OOM when allocating\n") == len(FOUND)
    assert "batch_size=288 fits\n" in tried
    assert "batch_size=304: MemoryError: std::bad_alloc\n" in tried


def test_several_gpus_share_the_batch(tries: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "machine", lambda gpus, mem_gb: f"{gpus} of them")
    result = find(search_of("gpus=4"), Trial(tmp_path))  # type: ignore[arg-type]
    assert (result["largest_batch"], result["per_gpu"], result["advised"]) == (288, 72, 256)


def test_search_starts_with_the_memory_of_one_gpu(
    tries: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "machine", lambda gpus, mem_gb: f"{gpus} of them")
    find(search_of("gpus=2", "batch_per_gpu=100"), Trial(tmp_path))  # type: ignore[arg-type]
    assert tries[:2] == [200, 400]


@pytest.mark.parametrize(("most", "words"), [("null", "the whole training set fits"), ("200", "trainer.most fits")])
def test_search_ends_if_every_batch_fits(
    tries: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str, words: str
) -> None:
    monkeypatch.setattr(largest_batch, "_estimate", lambda *_: Estimate(250))
    trial = Trial(tmp_path)
    result = find(search_of(f"trainer.most={most}"), trial)  # type: ignore[arg-type]
    assert result["largest_batch"] == result["advised"] == (200 if most == "200" else 250)
    assert result["whole_training_set"] == (most == "null")
    assert trial.notes["largest batch"].startswith(words)
    compose("model=mlp", "batch_size=1250")  # no bound


def test_a_stopped_trial_resumes(tries: list[int], tmp_path: Path) -> None:
    stopped = find(search_of(), Trial(tmp_path, stop_after=4))  # type: ignore[arg-type]
    assert stopped["largest_batch"] == 256
    result = find(search_of(), trial := Trial(tmp_path))  # type: ignore[arg-type]
    assert result["largest_batch"] == 288
    assert tries == FOUND
    assert trial.steps == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"where": 1}', '{"where": "AMD", "tries": [{"size": 3}]}'])
def test_record_that_is_damaged_or_of_another_machine_is_ignored(
    tries: list[int], tmp_path: Path, content: str
) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "tries.json").write_text(content)
    assert find(search_of(), Trial(tmp_path))["largest_batch"] == 288  # type: ignore[arg-type]
    assert tries == FOUND


def test_not_even_one_example_fits(tries: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> float:
        raise OutOfMemory("no")

    monkeypatch.setattr(largest_batch, "_measure_training", never)
    with pytest.raises(MemoryError, match="not even the smallest batch fits: batch_size=1: no"):
        find(search_of(), Trial(tmp_path))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("ValueError: no such layer"), "batch_size=32: ValueError: no such layer"),
        (
            TimeoutError("it took longer than 5 s"),
            "batch_size=32: it took longer than 5 s\nIncrease trainer.try_timeout_s",
        ),
    ],
)
def test_any_other_end_of_a_try_is_that_of_the_trial(
    tries: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fails(cfg: DictConfig, size: int, limit_gb: float | None, trial: Trial) -> float:
        raise error

    monkeypatch.setattr(largest_batch, "_measure_training", fails)
    with pytest.raises(RuntimeError) as raised:
        find(search_of(), Trial(tmp_path))  # type: ignore[arg-type]
    assert str(raised.value).startswith(words)


def test_several_ranks_are_refused(tries: list[int], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found for one process"):
        find(search_of(), Trial(tmp_path, world=World(size=2)))  # type: ignore[arg-type]


def test_largest_batch_is_recorded_for_the_training(tries: list[int], tmp_path: Path) -> None:
    find(search_of(), Trial(tmp_path))  # type: ignore[arg-type]
    (file,) = (tmp_path / "home" / "sweepyard" / "largest_batch").glob("*.json")
    answer = json.loads(file.read_text())
    assert (answer["largest_batch"], answer["too_large"], answer["memory_gb"]) == (288, 304, 0.288)
    compose("model=mlp", "batch_size=288", "lr=0.5", "seed=3", "epochs=2", "optimizer.beta_1=0.5")
    with pytest.raises(ValueError, match="batch_size=289 is above 288, the largest batch that fitted"):
        compose("model=mlp", "batch_size=289", "lr=0.5", "seed=3", "epochs=2", "optimizer.beta_1=0.5")
    compose("model=mlp", "batch_size=289", "model.hidden=[8]")


def test_answer_that_cannot_be_written_is_returned(
    tries: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    cfg = search_of(f"dataset.cache={tmp_path}/file")
    assert find(cfg, Trial(tmp_path))["largest_batch"] == 288  # type: ignore[arg-type]
    assert "the answer cannot be saved for trainings" in capsys.readouterr().out
