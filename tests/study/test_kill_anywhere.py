"""kill -9 of the driver at any moment: each trial once, the same ones, and the same winner as without kills.

A moment is one of the operations by which the driver changes files: it is killed before it, after it or, of a write, in
its middle. Time stands still between two of them, so that these are all moments there are.
"""

import json
import math
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sweeps import __main__ as commands
from sweeps.analysis.configurations import best
from sweeps.base.files import read_json
from sweeps.choose.repeats import Seeds
from sweeps.record.definition import Definition
from sweeps.record.study import TrialRecord
from sweeps.space.space import canonical
from sweeps.study.run.requests import Requests
from sweeps.trial.job import Outcome, Point, State
from sweeps.trial.run.process import outcome_of_error, outcome_of_return
from sweeps.trial.run.sent_job import Job
from tests.command_lines import some
from tests.study.fake_launcher import SILENT, Acts, Clock, Drive, FakeLauncher, Script, Study, begin, fake_time

MOMENTS, STUDIES = 200, 10
"""The kills of one kind of study, and the studies that share them."""
SAMPLERS_GO_ON = True
"""Whether the same seed and history give the same next point, however many drivers were killed before."""
_OPERATIONS = ("mkdir", "write", "replace", "rename", "link", "unlink", "truncate")
_HOW = ("before", "after", "amid")
SPACE = {"lr": "tag(log, interval(0.001, 1))", "width": "4,8,16", "optimizer": "a,b"}
GRID = {"lr": "0.1,0.03", "width": "4,8,16"}
SEEDS: dict[str, Any] = {"repeats": 2, "final_race": 2, "final_race_seeds": 3}
TPE = {"_target_": "optuna.samplers.TPESampler", "seed": 7, "n_startup_trials": 3}
BY_HAND: list[Point] = [{"lr": 0.05, "width": 8, "optimizer": "a"}, {"lr": 0.05, "width": 5, "optimizer": "a"}]
STARTS: list[Point] = [
    {"lr": 0.2, "width": 4, "optimizer": "a"},
    {"lr": 0.1, "width": 8, "optimizer": "b"},
    {"lr": 0.03, "width": 16, "optimizer": "a"},
    {"lr": 0.02, "width": 4, "optimizer": "b"},
]
KINDS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "grid": (GRID, SEEDS),
    "started": (SPACE, {**SEEDS, "sampler": TPE, "n_trials": len(STARTS), "start": STARTS}),
    **({"search": (SPACE, {**SEEDS, "sampler": TPE, "n_trials": 7})} if SAMPLERS_GO_ON else {}),
}


class Killed(BaseException):
    """The driver is gone: none of its words says any more."""


class Kills:
    """Ends the driver at the moments that are set, counted in its operations since it started."""

    def __init__(self, is_driver: Callable[[], bool], moments: Iterable[tuple[int, str]] = ()) -> None:
        self._is_driver = is_driver
        self._moments = iter(moments)
        self._left, self._how = math.inf, ""
        self._gone = False
        self.operations = 0
        """All that a driver began."""
        self.count = 0
        """The kills so far."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the operations of one driver, and kill it if one of the moments comes."""
        self._left, self._how = next(self._moments, (math.inf, ""))
        self._gone = False
        with pytest.MonkeyPatch.context() as patch:
            for name in _OPERATIONS:
                patch.setattr(os, name, self._watched(name, getattr(os, name)))
            patch.setattr(os, "fsync", lambda file: None)  # the machine stays up
            yield

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **named: Any) -> Any:
            if not self._is_driver():
                return real(*arguments, **named)
            if self._gone:
                raise Killed
            self.operations += 1
            self._left -= 1
            if self._left >= 0:
                return real(*arguments, **named)
            self._gone = True
            self.count += 1
            if name == "write" and self._how == "amid":
                file, data = arguments
                real(file, data[: len(data) // 2])
            elif self._how == "after":
                real(*arguments, **named)
            raise Killed

        return operation


def loss(params: Point) -> float:
    values: dict[str, Any] = params
    near = abs(math.log10(values["lr"]) + 1.5) + abs(values["width"] - 8) / 16
    offsets = (values.get("optimizer") == "b") / 3 + values["seed"] * 37 % 11 / 1000
    return float(near + offsets)


def works(folder: Path) -> Script:
    """Return a script of trials that return their loss. Width 4 is lost once; width 16 fails until a file exists."""

    def script(job: Job) -> Acts:
        trial = begin(job)
        params = (read_json(job.folder.path / "trial.json") or {})["params"]
        value = loss({"seed": 0, **params})
        for epoch in range(2):
            trial.report({"objective": value + 1 - epoch}, epoch)
            yield
        if params["width"] == 4 and job.attempt == 1:
            return Outcome(State.LOST, "its node failed")
        if params["width"] == 16 and not (folder / "mended").exists():
            end = outcome_of_error(RuntimeError("too wide"))
        else:
            end = outcome_of_return({"objective": value}, job.objective, job.attempt_folder.stop_reason())
        job.attempt_folder.close(end)
        return SILENT

    return script


def make_study(folder: Path, clock: Clock, kind: str) -> Study:
    space, settings = KINDS[kind]
    study = Study(folder / "s", clock, *(f"{key}={values}" for key, values in space.items()), "seed=0", **settings)
    sampler = json.dumps(settings.get("sampler", {"_target_": "optuna.samplers.GridSampler"}))
    definition = Definition(
        "s", ["python", "app.py"], str(folder), ["objective"], ["minimize"], space, "None", {"sampler": sampler}, {}, 12
    )
    (study.folder / "study.json").write_text(json.dumps(asdict(definition)))

    def added() -> Iterator[tuple[Point, str]]:
        """Yield two points, once two trials have ended, until the points are recorded."""
        for number, point in enumerate(BY_HAND):
            params = {key: value for key, value in point.items() if key in space}
            records = study.last.summary.rows
            points = [canonical({key: row.params.get(key) for key in params}) for row in records]
            if sum(row.state.is_over for row in records) >= 2 and canonical(params) not in points:
                yield params, f"{number}.json"

    study.added = added
    return study


def retry_failed(study: Study) -> None:
    """Retry failed trials, as `sweepyard resume s --retry failed` does."""
    (study.folder / "mended").touch()
    words = ["resume", "s", "--root", str(study.folder.parent), "--retry", "failed"]
    with pytest.MonkeyPatch.context() as patch, chdir(study.folder.parent):
        patch.setattr("sys.argv", ["sweeps", *words])
        patch.setattr("os.execvp", lambda *_: sys.exit(0))
        with pytest.raises(SystemExit) as exit_:
            commands.main()
    assert not exit_.value.code
    requests = Requests(study.folder, study.space, Seeds(), None)  # type: ignore[arg-type]
    requests.retry(study.record(study.settings))


def drive_to_its_end(study: Study, launcher: FakeLauncher, kills: Kills) -> Drive:
    """Run one driver after the other, until a driver has nothing left to do."""
    while True:
        try:
            with kills.watching():
                return study.drive(launcher)
        except Killed:
            continue


def run(folder: Path, kind: str, survives: bool, moments: Iterable[tuple[int, str]] = ()) -> tuple[Drive, Kills]:
    """Run the whole study, its race and its failed trials again, and return the last driver."""
    with fake_time() as clock:
        study = make_study(folder, clock, kind)
        launcher = FakeLauncher(works(study.folder), clock, slots=1, survives=survives)
        kills = Kills(lambda: not launcher.acting, moments)
        drive_to_its_end(study, launcher, kills)
        retry_failed(study)
        return drive_to_its_end(study, launcher, kills), kills


def told(row: TrialRecord) -> str:
    return json.dumps([row.params, row.state, row.race, row.by_hand, row.objective], sort_keys=True)


def outcome(done: Drive) -> tuple[list[str], str, int | None]:
    """Return all trials, the winner and the total."""
    winner = best(done.summary)
    assert winner is not None
    return sorted(map(told, done.summary.rows)), f"{winner.name} {winner.values}", done.summary.total


def moments(seed: int, operations: int) -> Iterator[tuple[int, str]]:
    """Return the number of operations of each driver until its kill, and the kind of the kill."""
    chance = random.Random(seed)
    for _ in range(MOMENTS // STUDIES):
        yield chance.randrange(2 * operations * STUDIES // MOMENTS), chance.choice(_HOW)


@pytest.fixture(scope="module", params=[(kind, survives) for kind in KINDS for survives in (False, True)], ids=str)
def undisturbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, bool, Drive, int]:
    kind, survives = request.param
    done, kills = run(tmp_path_factory.mktemp("whole"), kind, survives)
    return kind, survives, done, kills.operations


def test_training_without_kills_is_complete(undisturbed: tuple[str, bool, Drive, int]) -> None:
    _, _, done, operations = undisturbed
    records = done.summary.rows
    assert {row.state for row in records} == {State.COMPLETED}
    assert {row.race for row in records} == {False, True}
    assert sum(row.by_hand for row in records) >= 2
    assert any(row.forgiven for row in records)
    assert any(attempt.state is State.LOST for row in records for attempt in row.attempts)
    assert operations > 200


@some("seed", range(STUDIES), 9)
def test_driver_killed_anywhere_gives_the_same_trials(
    tmp_path: Path, undisturbed: tuple[str, bool, Drive, int], seed: int
) -> None:
    kind, survives, whole, operations = undisturbed
    print(f"kind={kind} survives={survives} seed={seed}: {list(moments(seed, operations))}")
    done, kills = run(tmp_path, kind, survives, moments(seed, operations))
    assert kills.count > 2
    numbers = sorted(row.number for row in done.summary.rows)
    assert numbers == list(range(len(numbers)))
    params = [json.dumps(row.params, sort_keys=True) for row in done.summary.rows]
    assert len(set(params)) == len(params)
    assert outcome(done) == outcome(whole)
