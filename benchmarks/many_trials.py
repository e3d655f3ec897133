"""A study of 100, of 1,000 and of 10,000 finished trials: the seconds that one more trial takes, and their ratio; the
seconds of `sweepyard status`, those until a resumed driver starts its next trial, and its most memory.

A few trials of each size are run for real, two at a time, and return at once; the others are copies of the first one,
in their folders and in the study's journal. MLflow has those alone that were run.

    python benchmarks/many_trials.py [rounds] [sizes]
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

from side_by_side import ROOT, SWEEP, machine, run, seconds, spread

SIZES = (100, 1_000, 10_000)
FIRST, LAST, STEP = 10, 110, 10  # of those that a resumed driver runs, the trials whose ends are timed, so many a time


class Driven(NamedTuple):
    """What one driver took."""

    start_s: float  # until its next trial began
    trial_s: float  # the median over tens of trials: the page, which takes its time rarely, is in the others
    peak_mb: int


class Study:
    """One study in `folder`, a grid that is never finished."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.path = folder, folder / "multirun" / "many"
        self.grid = {"batch_size": range(1, 101), "seed": range(most // 100 + 1)}
        self._points = [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]

    def drive(self) -> Driven:
        """Start a driver, and stop it once it has run LAST trials."""
        began, ended = self._asked(), self._asked() + LAST
        command = [sys.executable, SWEEP, "-m", "trainer=own", "trainer._target_=many_trials.train"]
        command += [f"{name}=range({values.start},{values.stop})" for name, values in self.grid.items()]
        command += ["hydra.sweeper.study_name=many", "hydra.sweeper.n_jobs=2"]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
        started = time.perf_counter()
        driver = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL)
        self._await(driver, f"{began}/attempts/1/started")
        start_s = time.perf_counter() - started
        self._await(driver, f"{ended}/attempts/1/end.json")
        lines = Path(f"/proc/{driver.pid}/status").read_text().splitlines()
        peak_kb = next(line.split()[1] for line in lines if "VmHWM" in line)
        driver.send_signal(signal.SIGINT)
        driver.wait()
        times = sorted(self._ended(number) for number in range(began + FIRST, ended))
        steps = [(later - earlier) / STEP for earlier, later in zip(times, times[STEP:], strict=False)]
        return Driven(start_s, statistics.median(steps), int(peak_kb) // 1000)

    def _await(self, driver: subprocess.Popen[bytes], name: str) -> None:
        while not (self.path / name).exists():
            if driver.poll() is not None:
                sys.exit(f"the driver ended with {driver.returncode} before there was {name}")
            time.sleep(0.01)

    def _ended(self, number: int) -> float:
        return (self.path / str(number) / "attempts" / "1" / "end.json").stat().st_mtime

    def _lines(self) -> list[dict[str, Any]]:
        journal = self.path / "journal.jsonl"
        return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []

    def _asked(self) -> int:
        return sum(line["op"] == "queued" for line in self._lines())

    def fill(self, size: int) -> None:
        """Copy trial 0 until there are `size` trials."""
        lines, line_numbers = self._lines(), count(len(self._lines()))
        asked, ended = (next(line for line in lines if line["op"] == op and line["number"] == 0) for op in _OPS)
        tracked = json.loads((self.path / "0" / "tracking.json").read_text())  # else the next driver would send all
        with (self.path / "journal.jsonl").open("a") as journal:
            for number in range(self._asked(), size):
                own = {"number": number, "params": self._points[number]}
                for line in ({**asked, **own}, {**ended, "number": number}):
                    journal.write(json.dumps({**line, "line": next(line_numbers)}) + "\n")
                folder = self.path / str(number)
                shutil.copytree(self.path / "0", folder)
                (folder / "trial.json").write_text(json.dumps({"number": number, "by": asked["by"], **own}))
                (folder / "tracking.json").write_text(json.dumps({**tracked, "trial": number}))

    def status(self) -> None:
        run(["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "sweeps", "status", "many"], self.folder)


_OPS = ("queued", "ended")


def train(cfg: Any, trial: Any) -> dict[str, float]:
    trial.report({"val_accuracy": 0.5}, step=1)
    return {"val_accuracy": 0.5}


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    rounds, sizes = (given or [3])[0], given[1:] or SIZES
    medians = []
    print(f"a study of many finished trials, {rounds} rounds; {machine()}")
    with tempfile.TemporaryDirectory() as name:
        study = Study(Path(name), sizes[-1] + rounds * len(sizes) * 2 * LAST)
        study.drive()
        for size in sizes:
            study.fill(size)
            status = [seconds(study.status) for _ in range(rounds)]
            driven = [study.drive() for _ in range(rounds)]
            medians.append(statistics.median(one.trial_s for one in driven))
            print(f"  {size} trials")
            print(f"    one more trial            {spread([one.trial_s for one in driven])}")
            print(f"    status                    {spread(status)}")
            print(f"    resumed to its next trial {spread([one.start_s for one in driven])}")
            print(f"    the driver's memory       {spread([one.peak_mb for one in driven], 'MB')}", flush=True)
    print(f"  a trial around {sizes[-1]} takes {medians[-1] / medians[0]:.2f} times one around {sizes[0]}")


if __name__ == "__main__":
    main()
