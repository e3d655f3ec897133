"""The study that the chaos tests disturb, and faults. `CHAOS_SEED=... pytest -m long tests/chaos` repeats a round."""

import os
import random
import shutil
import signal
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import psutil

from tests import command_lines as lines
from tests.chaos.oracle import SECRET
from tests.command_lines import APPS, Done

TRIALS = 4
Driver = subprocess.Popen[str]
KEPT = ("metrics.jsonl", "study.json", "driver.lock", "epoch")
"""Files that a study needs: lines of metrics and the study's definition have no copy; `epoch` is the app's own."""


def chance_of(number: int) -> random.Random:
    """Return a random generator whose seed is printed, and is fresh for each run of the tests."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    seed = os.environ.get("CHAOS_SEED") or zlib.crc32(f"{run} {number}".encode())
    print(f"CHAOS_SEED={seed}")
    return random.Random(int(seed))


class Study:
    """A grid of TRIALS checkpointing trials in `folder`, tracked at `store`."""

    def __init__(self, folder: Path, store: str, epochs: int) -> None:
        folder.mkdir()  # because the server of MLflow works in the folder above
        shutil.copy(APPS / "checkpointing_app.py", folder / "app.py")
        self.folder, self.path = folder, folder / "multirun" / "s"
        settings = [
            f"hydra.sweeper.tracking_uri={store}",
            "hydra.sweeper.study_name=s",
            "hydra.sweeper.max_attempts=99",
        ]
        self._line = ["app.py", "-m", f"+x=range({TRIALS})", f"+epochs={epochs}", "+key=${oc.env:KEY}", *settings]

    def start(self, launcher: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})) -> Driver:
        return lines.start_afresh([*self._line, *launcher], self.folder, {"KEY": SECRET, **variables})

    def finish(self, driver: Driver, timeout_s: float = 120) -> Done:
        done = lines.finish(driver, self.folder, timeout_s)
        print(done.said)
        return done

    def wait_for_epochs(self, count: int) -> None:
        """Wait until some trial has reported `count` epochs."""
        trials = [self.path / str(number) for number in range(TRIALS)]
        lines.wait_until(lambda: any(len(lines.steps(trial)) >= count for trial in trials))

    def kill_one(self, chance: random.Random, victims: Sequence[psutil.Process]) -> None:
        """Kill one of the processes, and print its command."""
        with suppress(psutil.NoSuchProcess, IndexError):
            victim = chance.choice(victims)
            print("killed", " ".join(victim.cmdline())[:60])
            victim.send_signal(signal.SIGKILL)

    def damage_one(self, chance: random.Random) -> None:
        """Cut, empty or garble one file of the study, and print its path."""
        files = sorted(file for file in self.path.rglob("*") if file.is_file() and file.name not in KEPT)
        files = [file for file in files if "code" not in file.relative_to(self.path).parts]  # its digest is checked
        kinds = sorted({file.name for file in files})
        if not kinds:
            return
        kind = chance.choice(kinds)  # because most files are of few kinds
        file = chance.choice([file for file in files if file.name == kind])
        content = file.read_bytes()
        place = chance.randrange(len(content) + 1)
        file.write_bytes(chance.choice([content[:place], b"", content[:place] + os.urandom(9) + content[place:]]))
        print("damaged", file.relative_to(self.path))
