"""The search for the largest batch under a real memory limit, and later commands that use the result."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.command_lines import SWEEP, Done, end, finish, rows, run, start, steps, wait_until

pytestmark = pytest.mark.long

LIMIT = "hydra.launcher.mem_gb=1.2"
WIDE = ["model=mlp", "model.hidden=[100000]", LIMIT, "tracking=none"]  # because 1,250 examples exceed the limit
FIND = [SWEEP, "+find=largest_batch", *WIDE, "hydra.sweeper.study_name=found"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"KERAS_HOME": str(tmp_path_factory.mktemp("home"))}


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory, home: dict[str, str]) -> Done:
    return run(FIND, tmp_path_factory.mktemp("found"), home, timeout_s=240)


@pytest.fixture(scope="module")
def largest(search: Done) -> int:
    assert search.code == 0, search.said
    return int(end(search.study() / "0").metrics["largest_batch"])


def test_table_shows_batch_and_memory(search: Done, largest: int) -> None:
    assert 1 <= largest < 1250
    metrics = end(search.study() / "0").metrics
    assert 0.3 < metrics["memory_gb"] < 1.2
    assert 0.8 * largest < metrics["advised"] <= 0.9 * largest
    header = next(line for line in search.out.splitlines() if line.startswith("┃ trial ┃"))
    assert re.findall(r"\w+", header)[-4:] == ["largest_batch", "per_gpu", "advised", "memory_gb"]
    assert re.search(rf"│ +0 │.*│ {largest} +│", search.out), search.out


def test_each_tried_batch_is_logged(search: Done, largest: int) -> None:
    log = (search.study() / "0/attempts/1/log").read_text()
    assert f"batch_size={largest} fits\n" in log
    assert " does not fit, see tries.log\n" in log
    assert "with 10% in reserve: batch_size=" in log
    assert "saved for trainings on this machine (" in log


def test_single_run_beyond_the_limit_is_refused(largest: int, home: dict[str, str], tmp_path: Path) -> None:
    done = run([SWEEP, *WIDE, f"batch_size={largest + 1}"], tmp_path, home)
    assert done.code == 2
    first, second = done.err.splitlines()
    assert first.startswith(f"batch_size={largest + 1} is above {largest}, the largest batch that fitted on this")
    assert second.startswith(f"To discard this result: rm {home['KERAS_HOME']}")
    assert not (tmp_path / "multirun").exists()


def test_search_skips_batches_above_the_limit(largest: int, home: dict[str, str], tmp_path: Path) -> None:
    sizes = f"batch_size={largest},1250"
    random = ["hydra/sweeper=optuna", "hydra/sweeper/sampler=random", "hydra.sweeper.sampler.seed=1"]
    line = [SWEEP, "-m", *random, "hydra.sweeper.n_trials=2", *WIDE, sizes, "steps=1"]
    done = run(line, tmp_path, home)
    assert done.code == 0, done.said
    ended = {row.params["batch_size"]: row.state for row in rows(done.study())}
    assert ended == {largest: "completed", 1250: "infeasible"}
    for row in rows(done.study()):
        assert (row.folder / "attempts").exists() == (row.state == "completed")
    message = " (batch_size=1250) is infeasible, and was not started: batch_size=1250 does not fit on this machine"
    assert done.out.count(message) == done.out.count("rm ") == 1
    assert "1 of 2 trials are infeasible, and were not started\n" in done.out


def test_grid_skips_infeasible_points_unless_all_are_infeasible(
    largest: int, home: dict[str, str], tmp_path: Path
) -> None:
    line = [SWEEP, "-m", *WIDE, "steps=1"]
    done = run([*line, f"batch_size=1250,{largest}"], tmp_path / "some", home)
    assert done.code == 0, done.said
    assert [row.state for row in rows(done.study())] == ["infeasible", "completed"]
    done = run([*line, "batch_size=1250", "lr=0.1,0.2"], tmp_path / "none", home)
    assert done.code == 2
    assert done.err.startswith("batch_size=1250 does not fit on this machine")
    assert len(done.err.splitlines()) == 2
    assert not (done.folder / "multirun").exists()


def test_killed_search_resumes(tmp_path: Path) -> None:
    home = {"KERAS_HOME": str(tmp_path / "home")}
    trial = tmp_path / "multirun" / "found" / "0"
    process = start(FIND, tmp_path, home)
    wait_until(lambda: len(steps(trial)) >= 2)
    process.send_signal(signal.SIGKILL)
    finish(process, tmp_path)
    try_count = len(json.loads((trial / "checkpoint/tries.json").read_text())["tries"])
    reported = len(steps(trial))  # a try may be reported, and not saved yet
    done = run(FIND, tmp_path, home, timeout_s=240)
    assert done.code == 0, done.said
    assert steps(trial) == list(range(1, len(steps(trial)) + 1))
    assert try_count < len(steps(trial)) < 10
    log = (trial / "attempts/2/log").read_text()
    assert [f"step {step} " in log for step in steps(trial)] == [step > reported for step in steps(trial)]
    largest = int(end(trial).metrics["largest_batch"])
    assert f"batch_size={largest} fits with gpus=0" in log
    assert "(tried: " in log


@pytest.mark.parametrize("swept", [[], ["-m"], ["gpus=0,0"]])
def test_search_on_a_cpu_needs_a_memory_limit(swept: list[str], tmp_path: Path) -> None:
    done = run([SWEEP, *swept, "+find=largest_batch", "model=mlp"], tmp_path)
    assert done.code == 2
    first, second = done.err.splitlines()
    assert first.startswith("gpus=0: the largest batch on a CPU needs a memory limit")
    assert "Type hydra.launcher.mem_gb=8" in second
    assert not done.out
    assert not (tmp_path / "multirun").exists()


def test_whole_small_training_set_fits(tmp_path: Path) -> None:
    line = [SWEEP, "+find=largest_batch", "model=linear,mlp", "hydra.launcher.mem_gb=2", "batch_size=500"]
    done = run(line, tmp_path, {"KERAS_HOME": str(tmp_path / "home")})
    assert done.code == 0, done.said
    objectives = {row.params["model"]: row.objective for row in rows(done.study())}
    assert [objectives[model][:3] for model in ("linear", "mlp")] == [[1250, 1250, 1250]] * 2
    assert "the whole training set fits" in (done.study() / "report.html").read_text()
    assert done.study().name.startswith("largest_batch_")


def test_dataset_above_the_limit_ends_out_of_memory(tmp_path: Path) -> None:
    done = run([SWEEP, "+find=largest_batch", "hydra.launcher.mem_gb=0.1", "tracking=none"], tmp_path)
    assert done.code == 1
    assert rows(done.study())[0].state == "out_of_memory"
