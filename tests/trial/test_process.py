"""The outcome of a trial from the result or the error of its task function."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext

from sweeps.trial import Diverged, MissingObjective, current_trial
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Objective, Outcome, Request, State, World
from sweeps.trial.run.app import pack_app
from sweeps.trial.run.process import outcome_of_job, run_trial
from sweeps.trial.run.sent_job import Job, SentJob

GRID = Objective(needed=False)
SEARCH = Objective()
NAMED = Objective(("val_accuracy",), named=True)
TWO = Objective(("objective_0", "objective_1"))


def returned(value: Any, objective: Objective | None, heard: State | None = None) -> Outcome:
    """Return the outcome of a trial whose task function returned the value, or raised the exception."""
    job = JobReturn(status=JobStatus.FAILED if isinstance(value, BaseException) else JobStatus.COMPLETED)
    job.return_value = value
    return outcome_of_job(job, objective, heard)


def completed(*objective: float, **metrics: float) -> Outcome:
    return Outcome(State.COMPLETED, objective=[*objective], metrics=metrics)


@pytest.mark.parametrize(
    ("value", "objective", "end"),
    [
        ("good", GRID, completed()),
        (object(), GRID, completed()),
        ([1, "x"], GRID, completed()),
        ((), GRID, completed()),
        ([0.5] * 21, GRID, completed()),
        ((1, 2), GRID, completed(objective_0=1.0, objective_1=2.0)),
        (10**400, GRID, completed()),
        ({"a": 0.5, "model": object(), "b": {"c": 1}}, GRID, completed(a=0.5)),
        (0.5, SEARCH, completed(0.5, objective=0.5)),
        (1, SEARCH, completed(1.0, objective=1.0)),
        (True, SEARCH, completed(1.0, objective=1.0)),
        (np.float32(0.5), SEARCH, completed(0.5, objective=0.5)),
        (np.array(0.5), SEARCH, completed(0.5, objective=0.5)),
        ([0.5], SEARCH, completed(0.5, objective=0.5)),
        ((1, 2), TWO, completed(1.0, 2.0, objective_0=1.0, objective_1=2.0)),
        ({"objective": 1, "loss": 2}, SEARCH, completed(1.0, objective=1.0, loss=2.0)),
        ({"val_accuracy": 0.5, "loss": 2}, NAMED, completed(0.5, val_accuracy=0.5, loss=2.0)),
        ({"objective_1": 1, "objective_0": 2}, TWO, completed(2.0, 1.0, objective_1=1.0, objective_0=2.0)),
        (0.5, GRID, completed(0.5, objective=0.5)),
        (None, GRID, completed()),
        (SystemExit(0), GRID, completed()),
        (SystemExit(None), GRID, completed()),
        ({"loss": 2}, GRID, completed(loss=2.0)),
        ({"objective": 1, "loss": float("nan")}, SEARCH, None),  # a metric that is no objective may be NaN
        ("whatever", None, completed()),  # another sweeper checks the value
        (None, None, completed()),
    ],
)
def test_results_that_complete_a_trial(value: Any, objective: Objective | None, end: Outcome | None) -> None:
    outcome = returned(value, objective)
    assert outcome.state is State.COMPLETED
    assert end is None or outcome == end


def test_error_is_reported_though_the_log_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        monkeypatch.setattr("sys.stderr", full)
        assert returned(ValueError("no such layer"), SEARCH).error == "ValueError: no such layer"
        with suppress(OSError):  # because close() writes the buffer
            full.close()


@pytest.mark.parametrize("heard", [State.PRUNED, State.CANCELLED, State.TIMED_OUT])
def test_stopped_trial_keeps_its_metrics(heard: State) -> None:
    end = returned(0.5, SEARCH, heard)
    assert (end.state, end.objective, end.metrics) == (heard, [0.5], {"objective": 0.5})
    assert bool(end.error) == (heard is not State.PRUNED)  # every end without a result has a message
    short = replace(end, objective=[], metrics={})
    assert returned(None, GRID, heard) == short
    for value, objective in ((None, SEARCH), ({"loss": 1.0}, NAMED)):  # stopped before the objective
        assert returned(value, objective, heard) == short


@pytest.mark.parametrize(
    ("value", "objective", "state", "words"),
    [
        # The returned value is no number: the message names the metric.
        ("many", SEARCH, State.FAILED, ["'objective'", "str ('many')", "a metric is one number"]),
        (np.zeros((2, 3)), SEARCH, State.FAILED, ["'objective'", "ndarray of shape (2, 3)"]),
        ([[1, 2]], SEARCH, State.FAILED, ["'objective'", "list ([1, 2])"]),
        ({"loss": [1.0], "objective": 1}, SEARCH, State.FAILED, ["'loss'", "list"]),
        ({"loss": {"a": 1}, "objective": 1}, SEARCH, State.FAILED, ["'loss'", "dict"]),
        ({"val_accuracy": "0.5"}, NAMED, State.FAILED, ["'val_accuracy'", "str"]),
        ({"val_accuracy": None}, NAMED, State.FAILED, ["'val_accuracy'", "NoneType"]),
        ((1, None), TWO, State.FAILED, ["'objective_1'", "NoneType"]),
        (slice(1), SEARCH, State.FAILED, ["'objective'", "slice"]),
        # mistakes of every trial of the study
        (None, SEARCH, State.FAILED, ["returned nothing", "a number, one number for each direction"]),
        (None, NAMED, State.FAILED, ["returned nothing"]),
        (SystemExit(0), SEARCH, State.FAILED, ["returned nothing"]),
        ((1, 2), SEARCH, State.FAILED, ["2 numbers for 1 objectives", "'hydra.sweeper.direction=[minimize,minimize]'"]),
        ((1, 2), NAMED, State.FAILED, ["2 numbers for 1 objectives", "; return a number for each, or a dict"]),
        ((), SEARCH, State.FAILED, ["0 numbers for 1 objectives", "; return a number for each, or a dict"]),
        (
            {"a": 1, "objective_0": 2},
            replace(TWO, named=True),
            State.FAILED,
            ["'hydra.sweeper.objective=[objective_0,a]'"],
        ),
        (10**400, SEARCH, State.FAILED, ["'objective' is a int"]),
        (1, TWO, State.FAILED, ["1 numbers for 2 objectives (objective_0, objective_1)"]),
        ({"val_acc": 1, "x": 2}, NAMED, State.FAILED, ["'val_accuracy'", "hydra.sweeper.objective=val_acc"]),
        ({}, NAMED, State.FAILED, ["'val_accuracy'", "returned nothing"]),
        # numbers that are not finite
        (float("nan"), SEARCH, State.DIVERGED, ["objective is nan"]),
        (float("nan"), GRID, State.DIVERGED, ["objective is nan"]),
        ({"val_accuracy": float("inf")}, NAMED, State.DIVERGED, ["val_accuracy is inf"]),
        ((1, float("-inf")), TWO, State.DIVERGED, ["objective_1 is -inf"]),
        # raised errors
        (Diverged("loss is nan at step 3"), SEARCH, State.DIVERGED, ["loss is nan at step 3"]),
        (ValueError("a bad value"), SEARCH, State.FAILED, ["ValueError: a bad value"]),
        (RuntimeError(), SEARCH, State.FAILED, ["RuntimeError"]),
        (SystemExit(3), SEARCH, State.FAILED, ["sys.exit(3)"]),
        (SystemExit(3), GRID, State.FAILED, ["sys.exit(3)"]),
        (SystemExit("no data"), SEARCH, State.FAILED, ["sys.exit('no data')"]),
        (KeyboardInterrupt(), SEARCH, State.CANCELLED, ["interrupted"]),
        (MemoryError("of 8 GB"), SEARCH, State.OUT_OF_MEMORY, ["MemoryError: of 8 GB"]),
        (type("ResourceExhaustedError", (Exception,), {})("OOM"), SEARCH, State.OUT_OF_MEMORY, ["OOM"]),
        (type("Mine", (MemoryError,), {})("mine"), SEARCH, State.OUT_OF_MEMORY, ["Mine: mine"]),
        (MissingObjective("no 'val_acc'"), NAMED, State.FAILED, ["no 'val_acc'"]),
        (PermissionError(1, "Denied", "/s/0/metrics.jsonl"), SEARCH, State.REFUSED, ["files cannot be written"]),
        (PermissionError(1, "Denied", "/data/train.npz"), SEARCH, State.FAILED, ["PermissionError: [Errno 1] Denied"]),
    ],
    ids=lambda value: repr(value)[:40] if not isinstance(value, Objective | State | list) else "",
)
def test_other_ends_of_a_study(value: Any, objective: Objective, state: State, words: list[str]) -> None:
    end = returned(value, objective)
    assert end.state is state
    for word in words:
        assert word in end.error
    assert end.objective == []


@pytest.mark.parametrize(
    ("value", "objective", "misfit"),
    [
        (None, SEARCH, True),
        ({"loss": 1}, NAMED, True),
        ((1, 2), SEARCH, True),
        (MissingObjective("no 'val_acc'"), NAMED, True),
        ("many", SEARCH, False),
        (ValueError("a bad value"), SEARCH, False),
        (float("nan"), SEARCH, False),
    ],
)
def test_missing_objective_of_a_returned_value(value: Any, objective: Objective, misfit: bool) -> None:
    assert returned(value, objective).missing_objective is misfit


# A trial's whole life, in this process


def reports_twice(cfg: Any) -> float:
    trial = current_trial()
    for step in range(2):
        trial.report({"objective": 1.0 + step, "rank": trial.world.rank}, step)
    return float(cfg.x)


def exits(cfg: Any) -> None:
    raise SystemExit(3)


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "config.yaml").write_text("x: 0.25\n")
    with initialize_config_dir(str(tmp_path), job_name="app", version_base="1.3"):
        where = [f"hydra.sweep.dir={tmp_path}", "hydra.sweep.subdir=0", "hydra.mode=MULTIRUN"]
        where += ["hydra/job_logging=none", "hydra/hydra_logging=none"]

        def make(task: Any) -> Job:
            config = compose("config", where, return_hydra_config=True)
            context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())
            folder, app = TrialFolder(tmp_path / "0"), replace(pack_app(task, context), program=None)
            return Job("s", 0, folder.new_attempt().number, config, Request(), folder, app, SEARCH)

        yield make


def test_a_trial_from_its_job_to_its_end(make_job: Any) -> None:
    job = make_job(reports_twice)
    end = run_trial(SentJob.of(job), began=1.0)
    assert job.attempt_folder.end() == end
    assert (end.state, end.objective, end.started_at) == (State.COMPLETED, [0.25], 1.0)
    assert end.seconds.keys() == {"idle_slot", "queued", "starting", "training"}
    assert [line.step for line in job.folder.read_metrics().values] == [0, 1]
    assert (job.folder.path / ".hydra" / "config.yaml").exists()


def test_a_trial_that_ends_itself(make_job: Any) -> None:
    end = run_trial(SentJob.of(make_job(exits)), began=1.0)
    assert (end.state, end.error) == (State.FAILED, "it called sys.exit(3)")


def test_ranks_above_the_chief_write_nothing(make_job: Any) -> None:
    job = make_job(reports_twice)
    ranks = job.attempt_folder.path / "ranks"
    ranks.mkdir()
    (ranks / "1.address").write_text("127.0.0.1:20000")
    assert run_trial(SentJob.of(job), began=1.0, world=World(size=2)).state is State.COMPLETED
    before = {path: path.stat().st_mtime_ns for path in job.folder.path.rglob("*") if path.is_file()}
    (ranks / "1.address").unlink()
    end = run_trial(SentJob.of(job), began=1.0, world=World(rank=1, size=2, local_rank=1, timeout_s=0.2))
    assert (end.state, end.objective) == (State.COMPLETED, [])  # the chief judges
    after = {path: path.stat().st_mtime_ns for path in job.folder.path.rglob("*") if path.is_file()}
    assert {path for path in after if after[path] != before.get(path)} == {ranks / "1.address"}
    lines = (job.folder.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["metrics"]["rank"] for line in lines] == [0, 0]


def test_error_shows_no_secret_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"HF_TOKEN": "sesame-7", "API_KEY": "sesame-7-8", "SHORT_KEY": "or"}.items():
        monkeypatch.setenv(name, value)
    end = returned(RuntimeError("no answer for sesame-7-8 or sesame-7 from http://me:sesame@host"), GRID)
    assert "sesame" not in capsys.readouterr().err
    closed = TrialFolder(tmp_path).new_attempt().close(end)
    assert closed.error == "RuntimeError: no answer for *** or *** from http://me:***@host"
