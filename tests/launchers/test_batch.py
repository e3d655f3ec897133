"""Another project's launcher in our loop, and our launchers under another project's sweeper."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from sweeps.launchers.batch import BatchTrials, run_locked
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Objective, Request, State
from sweeps.trial.run.sent_job import Job
from tests.command_lines import THEIRS, run, some

GRID = Objective(needed=False)
Act = Callable[[Job], Any]


class Theirs(Launcher):
    """A launcher with Hydra's contract alone, which acts for the trials and raises the errors of `fatal` trials."""

    def __init__(self, jobs: Sequence[Job], act: Act, fatal: bool = False) -> None:
        self.jobs, self.act, self.fatal = {job.number: job for job in jobs}, act, fatal
        self.batches: list[list[list[str]]] = []

    def setup(self, **_: Any) -> None:
        """Skip the set-up."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        self.batches.append([list(overrides) for overrides in job_overrides])
        return [self._run(number) for number in range(initial_job_idx, initial_job_idx + len(job_overrides))]

    def _run(self, number: int) -> JobReturn:
        returned = JobReturn(status=JobStatus.COMPLETED)
        try:
            returned.return_value = self.act(self.jobs[number])
        except Exception as error:
            if self.fatal:
                raise
            returned = JobReturn(status=JobStatus.FAILED)
            returned.return_value = error
        return returned


def make_jobs(folder: Path, count: int, objective: Objective) -> list[Job]:
    jobs = []
    for number in range(count):
        trial = TrialFolder(folder / str(number))
        config = OmegaConf.create({"hydra": {"overrides": {"task": [f"+x={number}"], "hydra": []}}})
        attempt = trial.new_attempt().number
        jobs.append(Job("s", number, attempt, config, Request(), trial, b"", objective))
    return jobs


def hears_a_stop(job: Job) -> float:
    job.attempt_folder.append_stop_answer(State.PRUNED)
    return 0.5


def raises(job: Job) -> float:
    raise RuntimeError("too large")


def exits(job: Job) -> float:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "act, objective, state, words, values",
    [
        (lambda job: 0.5, Objective(), State.COMPLETED, "", [0.5]),
        (lambda job: {"a": 2.0}, Objective(("a",), named=True), State.COMPLETED, "", [2.0]),
        (lambda job: {"a": 2.0}, Objective(("b",), named=True), State.FAILED, "returned no 'b'", []),
        (lambda job: None, GRID, State.COMPLETED, "", []),
        (lambda job: None, Objective(), State.FAILED, "returns its objective", []),
        (hears_a_stop, Objective(), State.PRUNED, "", [0.5]),
        (raises, GRID, State.FAILED, "RuntimeError: too large", []),
        (exits, GRID, State.FAILED, "sys.exit(3)", []),
    ],
)
def test_how_a_trial_of_theirs_ends(
    tmp_path: Path, act: Act, objective: Objective, state: State, words: str, values: list[float]
) -> None:
    (job,) = jobs = make_jobs(tmp_path, 1, objective)
    trials = BatchTrials(Theirs(jobs, act), size=1)
    assert trials.submit(job)
    ((number, outcome),) = trials.poll(0.1)
    end = job.attempt_folder.close(outcome)
    assert (number, end.state, end.objective) == (0, state, values)
    assert words in end.error
    assert bool(end.error) == (state is State.FAILED)
    assert end.started_at is not None


def test_batch_has_the_largest_allowed_size(tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path, 3, GRID)
    theirs = Theirs(jobs, lambda job: float(job.number))
    trials = BatchTrials(theirs, size=2)
    assert [trials.submit(job) for job in jobs] == [True, True, False]
    assert not trials.has_room()
    assert trials.poll(0.0) == []  # the timeout is too short for a batch
    assert [(number, end.objective) for number, end in trials.poll(0.1)] == [(0, [0.0]), (1, [1.0])]
    assert trials.poll(0.1) == []
    assert trials.submit(jobs[2])
    assert [number for number, _ in trials.poll(0.1)] == [2]
    assert theirs.batches == [[["+x=0"], ["+x=1"]], [["+x=2"]]]


def test_error_of_a_foreign_launcher_ends_only_its_batch(tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path, 2, GRID)
    trials = BatchTrials(Theirs(jobs, raises, fatal=True), size=2)
    assert [trials.submit(job) for job in jobs] == [True, True]
    ends = trials.poll(0.1)
    assert [(number, end.state, end.error) for number, end in ends] == [
        (number, State.FAILED, "RuntimeError: too large") for number in (0, 1)
    ]


def test_full_disk_is_reported_by_the_trial(tmp_path: Path) -> None:
    (job,) = jobs = make_jobs(tmp_path, 1, GRID)
    (job.attempt_folder.path / "started").mkdir()
    trials = BatchTrials(Theirs(jobs, raises), size=1)
    assert trials.submit(job)
    assert [end.error for _, end in trials.poll(0.1)] == ["RuntimeError: too large"]


def test_each_task_of_a_foreign_trial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = make_jobs(tmp_path, 1, GRID)
    folder = SimpleNamespace(runtime=SimpleNamespace(output_dir=str(job.folder.path)))
    monkeypatch.setattr(HydraConfig, "get", lambda: folder)

    def second_task(_: DictConfig) -> list[str]:
        monkeypatch.setenv("SLURM_PROCID", "1")
        return [str(run_locked(lambda _: "second", job.config)), "first"]

    assert run_locked(second_task, job.config) == ["second", "first"]


@pytest.mark.parametrize(
    "launcher, expected",
    [
        ({}, Request()),
        ({"nodes": 2, "gpus_per_node": 4, "timeout_min": 60}, Request(8, timeout_min=60, nodes=2)),
        ({"gpus_per_node": None, "timeout_min": 5}, Request(timeout_min=5)),
    ],
)
def test_request_of_a_foreign_launcher(launcher: dict[str, Any], expected: Request) -> None:
    config = OmegaConf.create({"hydra": {"launcher": launcher}})
    assert BatchTrials(Theirs([], raises), 1).request(config) == expected


@some(
    "how, code, words, state",
    [
        ("raises", 1, "RuntimeError: too large", "failed"),
        ("exits", 3, "+how=exits", "failed"),
        ("is_killed", 1, "trial 0 lost: its process was killed from outside: Killed. Its log: ", "lost"),
    ],
    3,
)
def test_our_launcher_under_their_sweeper(tmp_path: Path, how: str, code: int, words: str, state: str) -> None:
    done = run([THEIRS, "-m", "hydra/launcher=local", f"+how={how}"], tmp_path)
    assert (done.code, "Add hydra/sweeper=grid or" in done.err) == (code, True)
    assert words in done.said
    assert f"#0 : +how={how}   {state}" in done.out
    (end,) = tmp_path.glob("multirun/*/*/0/attempts/1/end.json")
    assert json.loads(end.read_text())["state"] == state
    assert not list(tmp_path.glob("multirun/*/*/.returns*"))


def test_batch_is_numbered_as_in_hydra(tmp_path: Path) -> None:
    """Check that a skipped number begins a new batch, because Hydra's launch() counts on from the first trial."""
    jobs = make_jobs(tmp_path, 4, GRID)
    trials = BatchTrials(Theirs(jobs, lambda job: float(job.number)), size=10)
    assert [trials.submit(jobs[number]) for number in (1, 3)] == [True, False]
    assert [(number, end.objective) for number, end in trials.poll(0.1)] == [(1, [1.0])]
    assert trials.submit(jobs[3])
    assert [(number, end.objective) for number, end in trials.poll(0.1)] == [(3, [3.0])]
