"""Whatever happens to the files of a study between two drivers: each healthy trial ends with its own numbers.

A driver is killed at a random instant. Then one to three files, of all that the study has, are cut, emptied, doubled or
filled with noise at a random place. The next driver ends without a traceback and without a hang, loses no epoch of a
trial whose own files are whole, and names what it could not read.
"""

import json
import os
import random
import re
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, Lock
from sweeps.record.definition import Definition
from sweeps.record.study_file import read, write_or_check
from sweeps.study.folder.reading import read_study
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from sweeps.trial.run.sent_job import Job
from tests import command_lines as lines
from tests.command_lines import GRID, processes, some, wait_until
from tests.study.fake_launcher import Acts, FakeLauncher, Script, Study, fake_time, result_of, trains
from tests.warm import Running

EPOCHS, POINTS = 4, 6
SEARCH = {"sampler": {"_target_": "optuna.samplers.RandomSampler"}, "n_trials": POINTS}


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def emptied(content: bytes, chance: random.Random) -> bytes:
    return b""


def doubled(content: bytes, chance: random.Random) -> bytes:
    return content + content


def noisy(content: bytes, chance: random.Random) -> bytes:
    at, noise = chance.randrange(len(content) + 1), chance.randbytes(chance.randint(4, 40))
    return content[:at] + noise + content[at + len(noise) :]


@dataclass
class Damage:
    """What was done to one file of a study."""

    name: str
    """Relative to the study's folder."""
    how: str
    content: bytes

    @property
    def trial(self) -> int | None:
        """Return the number of the trial of the file."""
        first = self.name.partition("/")[0]
        return int(first) if first.isdecimal() else None

    @property
    def is_json(self) -> bool:
        try:
            return isinstance(json.loads(self.content), dict)
        except ValueError:
            return False

    @property
    def has_bad_lines(self) -> bool:
        """Return whether a whole line is no JSON, or is out of order."""
        for number, line in enumerate(self.content.splitlines(keepends=True)):
            try:
                if line.endswith(b"\n") and json.loads(line).get("line", number) != number:
                    return True
            except (ValueError, AttributeError):
                return True
        return False


def damage(folder: Path, chance: random.Random) -> list[Damage]:
    """Cut or garble one to three files, and return the damages."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    done = []
    for file in chance.sample(files, min(len(files), chance.randint(1, 3))):
        how = chance.choice([cut, emptied, doubled, noisy])
        content = how(file.read_bytes(), chance)
        file.write_bytes(content)
        done.append(Damage(str(file.relative_to(folder)), how.__name__, content))
    return done


class Killed(BaseException):
    """As kill -9: whatever was to be written next is not."""


@contextmanager
def killed_in(count: int, launcher: FakeLauncher) -> Iterator[None]:
    """Kill the driver in its `count`th write; its writes do not wait for the disk."""
    left = iter(range(count))

    def sync(file: int) -> None:
        if not launcher.acting and next(left, None) is None:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        yield


DEFINITION = Definition("s", ["python"], "/", ["objective"], ["minimize"], {}, "None", {}, {}, POINTS)


def drive(study: Study, launcher: FakeLauncher, stop_at: int | None = None, **changes: object) -> list[str]:
    """Run one driver, which is stopped in its `stop_at`th look, and return its lines."""
    lock = Lock(study.folder / "driver.lock")
    try:
        mended = write_or_check(study.folder, DEFINITION, extend=False)
        study.drive(launcher, lambda: "it was stopped" if launcher.polls == stop_at else "", **changes)
        return [mended, *study.last.lines, *(row.error for row in study.last.summary.rows)]
    finally:
        os.close(lock._file)  # as a killed process leaves it


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder in memory, if possible, because many studies run in it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@some("seed", range(300), 10)
def test_scripted_trials(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    diary: list[tuple[int, int]] = []
    with fake_time() as clock:
        script = trains(EPOCHS, diary=diary)
        launcher = FakeLauncher(script, clock, queue=chance.randint(0, 2), survives=chance.random() < 0.5)
        if chance.random() < 0.5:
            study = Study(folder, clock, f"x=range({POINTS})")
        else:
            study = Study(folder, clock, "x=interval(0,1)", **SEARCH)
        with killed_in(chance.randint(3, 60), launcher):
            try:
                drive(study, launcher, stop_at=chance.choice([None, chance.randint(1, 12)]))
            except Killed:
                print("killed")
        for _ in range(chance.randint(0, 6)):
            launcher.act()
        begun = {n for n in range(POINTS) if (study.trial(n).path / "trial.json").exists()}
        over = ended(study)
        damages = damage(folder, chance)
        print(damages)
        look(folder)
        lines: list[str] = []
        with killed_in(100_000, launcher):
            for _ in range(3):
                lines += drive(study, launcher)
        print("\n".join(lines))
    check(study, damages, diary)
    check_names(damages, begun, over, "\n".join(lines))


def look(folder: Path) -> None:
    """Read the study as `sweepyard status` does."""
    with suppress(UserError, CorruptFile, FileNotFoundError):  # which it answers in a line
        read_study(folder, read(folder))


def ended(study: Study) -> dict[int, bool]:
    """Return the trials that have ended, and whether the journal has their outcomes."""
    over = {n: False for n in range(POINTS) if (newest := study.trial(n).newest()) and newest.is_over}
    journal = study.folder / "journal.jsonl"
    for line in journal.read_text().splitlines() if journal.exists() else ():
        event = json.loads(line)
        if event["op"] == "ended":
            over[event["number"]] = True
    return over


def check(study: Study, damages: list[Damage], diary: list[tuple[int, int]]) -> None:
    """Check that each undamaged trial has its own numbers, and the study each of its points once."""
    touched = {damage_.trial for damage_ in damages}
    rows = {row.number: row for row in study.last.summary.rows}
    for number in set(range(POINTS)) - touched:
        assert (rows[number].state, rows[number].objective) == (State.COMPLETED, [result_of(number)])
        assert study.steps(number) == list(range(EPOCHS)), number
        assert [step for trial, step in diary if trial == number] == list(range(EPOCHS)), number
    readable = [row for row in rows.values() if row.params]
    assert len({json.dumps(row.params) for row in readable}) == len(readable)
    assert len(readable if study.settings.sampler is None else rows) == POINTS
    assert {row.state for row in readable} == {State.COMPLETED}


def check_names(damages: list[Damage], begun: set[int], over: dict[int, bool], output: str) -> None:
    """Check that each unreadable file that was needed is named."""
    names = {damage_.name for damage_ in damages}
    for damage_ in damages:
        trial, _, name = damage_.name.partition("/")
        if {"journal.jsonl", f"{trial}/trial.json"} <= names:
            continue  # nobody knows any more which trial it was
        if damage_.name == "study.json" and not damage_.is_json:
            assert "study.json cannot be read" in output
        elif damage_.name == "journal.jsonl":
            left = {n for n in begun if f"{n}/trial.json" not in names}
            lacks = max(left, default=-1) >= damage_.content.count(b'"op":"queued"')
            assert "journal.jsonl" in output or not (damage_.has_bad_lines or lacks)
        elif name == "attempts/1/end.json" and not damage_.is_json and over[int(trial)] is False:
            assert f"{damage_.name} cannot be read" in output
        elif name == "metrics.jsonl" and damage_.has_bad_lines and int(trial) not in over:
            assert re.search(rf"damaged lines? in \S*{re.escape(damage_.name)}", output), output


def chaotic(chance: random.Random, diary: list[tuple[int, int]]) -> Script:
    """Return the script of a trial that trains a little, and ends in a way that leaves it open."""
    outcomes = [
        Outcome(State.LOST, "its node failed"),
        Outcome(State.LOST),
        Outcome(State.TIMED_OUT),
        Outcome(State.CANCELLED, "it was cancelled by its owner"),
    ]

    def script(job: Job) -> Acts:
        if chance.random() < 0.1:
            yield
            return Outcome(State.REFUSED, chance.choice(["no such partition", "no such account"]))
        acts = trains(EPOCHS, diary=diary)(job)
        for _ in range(chance.randint(0, 2 * EPOCHS)):
            try:
                next(acts)
            except StopIteration as stop:
                return stop.value
            yield
        return chance.choice(outcomes)

    return script


@some("seed", range(60), 2)
def test_random_ends_and_restarted_drivers(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    diary: list[tuple[int, int]] = []
    with fake_time() as clock:
        script = chaotic(chance, diary)
        launcher = FakeLauncher(script, clock, queue=chance.randint(0, 2), survives=chance.random() < 0.5)
        study = Study(folder, clock, f"x=range({POINTS})", max_attempts=chance.randint(1, 4))
        for _ in range(chance.randint(1, 6)):
            with killed_in(chance.randint(1, 60), launcher), suppress(Killed):
                drive(study, launcher, stop_at=chance.choice([None, chance.randint(1, 12)]))
            launcher.act()
        launcher.script = trains(EPOCHS, diary=diary)
        with killed_in(100_000, launcher):
            for _ in range(2):
                drive(study, launcher, max_attempts=1000)
    check(study, [], diary)
    for row in study.last.summary.rows:
        assert [end.state for end in row.attempts if not end.error] == [State.COMPLETED]
        assert [attempt.number for attempt in study.trial(row.number).attempts()] == list(
            range(1, len(row.attempts) + 1)
        )


APP = """
import time
import hydra
from sweeps.trial import current_trial

@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    trial = current_trial()
    saved = trial.checkpoint_folder / "epoch"
    first = saved.read_text(errors="replace") if saved.exists() else ""
    for epoch in range(int(first) if first.isdecimal() else 0, 4):
        time.sleep(0.05)
        trial.report({"objective": cfg.x + 3 - epoch}, step=epoch)
        saved.parent.mkdir(exist_ok=True)
        saved.with_name("new").write_text(str(epoch + 1))
        saved.with_name("new").rename(saved)
        if trial.should_stop():
            break
    return cfg.x

if __name__ == "__main__":
    main()
"""


def start(folder: Path) -> Running:
    words = [*GRID, "hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s", "hydra.sweeper.n_jobs=2"]
    return lines.start(["app.py", "-m", *words, f"+x=range({POINTS})"], folder)


def run_killed_and_damaged(folder: Path, seed: int) -> tuple[list[Damage], str]:
    """Run a study under kills and damage, and return the damages and the output of the drivers."""
    chance = random.Random(seed)
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    driver, study = start(folder), folder / "multirun" / "s"
    wait_until(lambda: (study / "0" / "metrics.jsonl").exists() or driver.poll() is not None)
    time.sleep(chance.uniform(0, 0.8))
    driver.kill()
    driver.communicate()
    wait_until(lambda: not processes(folder))
    damages = damage(study, chance)
    output, goes_on = "", True
    while goes_on:
        done = lines.finish(start(folder), folder, 60)
        assert done.code in (0, 1), (damages, done.said)
        output, goes_on = output + done.said, "Resume with: " in done.said and "Resume with: " not in output
    return damages, output


@pytest.fixture(scope="module")
def real_drivers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Path, list[Damage], str]]:
    folder = tmp_path_factory.mktemp("real")
    with ThreadPoolExecutor(3) as pool:
        ran = {seed: pool.submit(run_killed_and_damaged, folder / str(seed), seed) for seed in range(15)}
        return {seed: (folder / str(seed) / "multirun" / "s", *run.result()) for seed, run in ran.items()}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(15))
def test_real_drivers(seed: int, real_drivers: dict[int, tuple[Path, list[Damage], str]]) -> None:
    study, damages, output = real_drivers[seed]
    print(damages, output)
    assert "Traceback" not in output
    rows = {row.number: row for row in read_study(study, read(study)).rows}
    for number in set(range(POINTS)) - {damage_.trial for damage_ in damages}:
        assert (rows[number].state, rows[number].objective) == (State.COMPLETED, [rows[number].params["+x"]])
        steps = [line.step for line in TrialFolder(study / str(number)).read_metrics().values]
        assert steps == list(range(EPOCHS)), number
    done = [row.params["+x"] for row in rows.values() if row.state is State.COMPLETED]
    assert sorted(done) == list(range(POINTS))
