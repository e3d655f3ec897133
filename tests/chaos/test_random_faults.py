"""Random kills and damage of a study on this machine. `CHAOS_SEED=... pytest -m long tests/chaos` repeats a round."""

import os
import random
import shutil
import signal
import time
import zlib
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import command_lines as lines
from tests.chaos.oracle import SECRET, check
from tests.command_lines import APPS, GRID

pytestmark = pytest.mark.long
ROUNDS, TRIALS, EPOCHS = int(os.environ.get("CHAOS_ROUNDS", "6")), 4, 12
DAMAGED = ("journal.jsonl", "[0-9]/trial.json", "[0-9]/tracking.json", "driver_status.json", "tracking.json")


def seed_of(number: int) -> int:
    """Return a fresh seed for each run of the tests, the same in all processes of xdist."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return int(os.environ.get("CHAOS_SEED") or zlib.crc32(f"{run} {number}".encode()))


def kill_one(driver: psutil.Process, chance: random.Random) -> str:
    """Kill the driver, its fork server or one of its trials, and return the victim's command."""
    victim = chance.choice([driver, *driver.children(recursive=True)])
    name = " ".join(victim.cmdline())[:60]
    victim.send_signal(signal.SIGKILL)
    return name


def damage_one(study: Path, chance: random.Random) -> str:
    """Cut, empty or garble one file of the study, and return its path."""
    files = sorted(file for pattern in DAMAGED for file in study.glob(pattern))
    if not files:
        return "nothing"
    file = chance.choice(files)
    content = file.read_bytes()
    place = chance.randrange(len(content) + 1)
    file.write_bytes(chance.choice([content[:place], b"", content[:place] + os.urandom(9) + content[place:]]))
    return str(file.relative_to(study))


@pytest.mark.parametrize("number", range(ROUNDS))
def test_study_survives_random_faults(tmp_path: Path, number: int) -> None:
    chance = random.Random(seed := seed_of(number))
    print(f"CHAOS_SEED={seed}")
    shutil.copy(APPS / "checkpointing_app.py", tmp_path / "app.py")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    settings = [f"hydra.sweeper.tracking_uri={store}", "hydra.sweeper.study_name=s", "hydra.sweeper.max_attempts=99"]
    line = ["app.py", "-m", *GRID, f"+x=range({TRIALS})", f"+epochs={EPOCHS}", "+key=${oc.env:KEY}", *settings]
    for _ in range(chance.randint(1, 3)):
        driver = lines.start_afresh(line, tmp_path, {"KEY": SECRET})
        for _ in range(chance.randint(1, 2)):
            time.sleep(chance.uniform(0.2, 5))
            with suppress(psutil.NoSuchProcess):
                print("killed", kill_one(psutil.Process(driver.pid), chance))
        driver.kill()
        print(driver.communicate()[0])
        if chance.random() < 0.5:
            print("damaged", damage_one(tmp_path / "multirun" / "s", chance))
    for _ in range(2):  # because a trial whose params are lost counts as failed, and is replaced
        done = lines.finish(lines.start_afresh(line, tmp_path, {"KEY": SECRET}), tmp_path)
        print(done.said)
        if done.code == 0:
            break
    check(tmp_path / "multirun" / "s", store, TRIALS, EPOCHS)
