"""A study with 10,000 finished trials: seconds of `python -m sweeps status`, seconds until a resumed driver starts its
next trial, and the most memory that this driver takes.

A few trials are run for real; the others are copies of the first one, in their folders and in the study's journal.

    python benchmarks/many_trials.py [rounds]
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import count, product
from pathlib import Path
from typing import Any

from side_by_side import ROOT, SWEEP, machine, run, seconds, spread

GRID = {"batch_size": range(1, 101), "seed": range(101)}
FINISHED = 10_000


def train(cfg: Any, trial: Any) -> dict[str, float]:
    trial.report({"val_accuracy": 0.5}, step=1)
    return {"val_accuracy": 0.5}


def drive(folder: Path, until: str) -> tuple[float, int]:
    """Start the driver, stop it when the file `until` exists in the study. Seconds until then, and its peak MB."""
    command = [sys.executable, SWEEP, "-m", "trainer=own", "trainer._target_=many_trials.train"]
    command += [f"{name}=range({v.start},{v.stop})" for name, v in GRID.items()] + ["hydra.sweeper.study_name=many"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    started = time.perf_counter()
    driver = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    while not (folder / "multirun" / "many" / until).exists():
        if driver.poll() is not None:
            sys.exit(f"the driver ended with {driver.returncode} before there was {until}")
        time.sleep(0.01)
    taken = time.perf_counter() - started
    peak_kb = next(
        line.split()[1] for line in Path(f"/proc/{driver.pid}/status").read_text().splitlines() if "VmHWM" in line
    )
    driver.send_signal(signal.SIGINT)
    driver.wait()
    return taken, int(peak_kb) // 1000


def fill(study: Path) -> None:
    """Copy trial 0 until FINISHED trials have ended."""
    journal = study / "study.journal"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    tracked = json.loads((study / "0" / "tracking.json").read_text())  # else the next driver would send all of them
    created = [line for line in lines if line["op_code"] == 4]
    first = [created[0], *(line for line in lines if line.get("trial_id") == 0)]
    points, line_numbers = list(product(*GRID.values())), count(len(lines))
    with journal.open("a") as file:
        for number in range(len(created), FINISHED):
            point = dict(zip(GRID, points[number], strict=True))
            floats = {key: float(value) for key, value in point.items()}
            for line in first:
                copy = {**line, "trial_id": number} if "trial_id" in line else dict(line)
                if "user_attrs" in line:
                    copy["user_attrs"] = {"point": json.dumps(floats, sort_keys=True)}
                    copy["system_attrs"] = {"fixed_params": point}
                elif "param_name" in line:
                    name = line["param_name"]
                    copy["param_value_internal"] = float(point[name])
                elif "user_attr" in line:
                    copy["user_attr"] = {"end": line["user_attr"]["end"]}
                file.write(json.dumps({**copy, "line": next(line_numbers)}) + "\n")
            shutil.copytree(study / "0", study / str(number))
            (study / str(number) / "tracking.json").write_text(json.dumps({**tracked, "trial": number}))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    status, resume, memory = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        drive(folder, "2/attempts/1/end.json")
        fill(folder / "multirun" / "many")
        done = FINISHED
        for _ in range(rounds):
            command = [sys.executable, "-m", "sweeps", "status", "many"]
            status.append(seconds(lambda command=command: run(["env", f"PYTHONPATH={ROOT}", *command], folder)))
            taken, peak_mb = drive(folder, f"{done}/attempts/1/began")
            resume.append(taken)
            memory.append(peak_mb)
            done = sum(1 for _ in (folder / "multirun" / "many").glob("[0-9]*"))
    print(f"a study with {FINISHED} finished trials, {rounds} rounds; {machine()}")
    print(f"  status                    {spread(status)}")
    print(f"  resumed to its next trial {spread(resume)}")
    print(f"  the driver's memory       {spread(memory, 'MB')}")


if __name__ == "__main__":
    main()
