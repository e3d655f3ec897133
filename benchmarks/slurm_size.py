"""A grid of 10,000 trials over 64 slots, on scripts in place of SLURM's commands, which answer as a cluster would.

    python benchmarks/slurm_size.py [trials] [slots] [seconds at rest]

No trial runs: its job's folder gets the files of a start and, later, of an end. All but the last 1,000 trials take
1 s, so that the study soon has as many ended trials as there will be, and as many submitted ones as the driver submits
ahead; the last ones take 300 to 360 s. Printed are the driver's CPU and the calls of squeue while no trial ends, the
seconds from a trial's end to its line in the journal, and the driver's most memory. MLflow is off.
"""

import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from side_by_side import machine, spread

from sweeps.trial.folder import AttemptFolder, TrialFolder
from sweeps.trial.job import Outcome, State

APP = """
import hydra

@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    return float(cfg.x)

if __name__ == "__main__":
    main()
"""
COMMANDS = {
    "sbatch": 'exec 9>"$F/lock"; flock 9; n=$(($(cat "$F/count" 2>/dev/null || echo 0) + 1)); echo $n > "$F/count"\n'
    'cp "$1" "$F/new"; mv "$F/new" "$F/scripts/$n"; echo "Submitted batch job $n"',
    "squeue": 'cat "$F/jobs"',
    "scontrol": "echo MaxArraySize = 1001",
    "sacct": "exit 1",
    "sacctmgr": "exit 1",
    "scancel": "true",
}
LAST = 1000  # trials
SHORT_S, SHORTEST_S, LONGEST_S = 1, 300, 360


@dataclass
class Element:
    row: str  # id and name, as squeue prints them
    attempt: AttemptFolder
    state: str = "PENDING"
    ends_at: float = math.inf


class Slurm(threading.Thread):
    """The controller behind the scripts in `folder`."""

    def __init__(self, folder: Path, slots: int, short: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.slots = folder, slots
        self.short = short  # trials that have not started, and will take a second
        self.living: list[Element] = []
        self.submitted = 0
        self.ends: list[float] = []
        self._scripts = 0
        (folder / "scripts").mkdir(parents=True)
        (folder / "jobs").touch()
        for name, script in COMMANDS.items():
            start = f'#!/bin/sh\nF="{folder}"\necho "$(date +%s.%N) {name}" >> "$F/calls"'
            (folder / name).write_text(f"{start}\n{script}\n")
            (folder / name).chmod(0o755)

    def calls(self, name: str, since: float = 0.0) -> int:
        lines = (line.split() for line in (self.folder / "calls").read_text().splitlines())
        return sum(called == name and float(at) >= since for at, called in lines)

    def run(self) -> None:
        while True:
            while (script := self.folder / "scripts" / str(self._scripts + 1)).exists():
                self._scripts += 1
                self._read(script.read_text())
            for element in [element for element in self.living if time.time() > element.ends_at]:
                element.attempt.close(Outcome(State.COMPLETED, objective=[0.5]))
                self.living.remove(element)
                self.ends.append(time.time())
            free = self.slots - sum(element.state == "RUNNING" for element in self.living)
            pending = (element for element in self.living if element.state == "PENDING")
            for element in islice(pending, free):
                element.attempt.begin(time.time())
                seconds = SHORT_S if self.short > 0 else random.uniform(SHORTEST_S, LONGEST_S)
                element.state, element.ends_at, self.short = "RUNNING", time.time() + seconds, self.short - 1
            rows = [element.row.format(element.state) for element in self.living]
            (self.folder / "jobs.new").write_text("".join(f"{row}\n" for row in rows))
            (self.folder / "jobs.new").replace(self.folder / "jobs")
            time.sleep(0.5)

    def _read(self, script: str) -> None:
        options = dict(re.findall(r"#SBATCH --([\w-]+)='?([^\n']+)", script))
        count = int(options["array"].partition("%")[0].partition("-")[2]) + 1 if "array" in options else 1
        folder = Path(options["output"].partition("/elements/")[0].removesuffix("/log"))
        for index in range(count):
            own = (folder / "elements" / str(index)).resolve() if "array" in options else folder
            job_id = f"{self._scripts}_{index}" if "array" in options else str(self._scripts)
            attempt = TrialFolder(own.parents[1]).attempt(int(own.name))
            self.living.append(Element(f"{job_id}|{{}}|None|{options['job-name']}", attempt))
        self.submitted += count


def cpu_s(driver: int) -> float:
    words = Path(f"/proc/{driver}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Ended:
    """Counts the ends in a journal, of which each call reads the new lines."""

    def __init__(self, journal: Path) -> None:
        self._journal, self._offset, self._count = journal, 0, 0

    def __call__(self) -> int:
        if self._journal.exists():
            with self._journal.open("rb") as file:
                file.seek(self._offset)
                lines = file.read().rpartition(b"\n")[0]
                self._offset += len(lines)
            self._count += sum(b'"op":"ended"' in line for line in lines.splitlines())
        return self._count


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    trials, slots, rest_s = (given + [10_000, 64, 120][len(given) :])[:3]
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "app.py").write_text(APP)
        slurm = Slurm(folder / "bin", slots, trials - LAST)
        slurm.start()
        command = [sys.executable, "app.py", "-m", "hydra/sweeper=grid", "hydra/launcher=slurm", f"+x=range({trials})"]
        command += ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s", "hydra.launcher.trials_per_job=1"]
        command += [f"hydra.launcher.array_parallelism={slots}", "hydra.launcher.keep_on_interrupt=true"]
        environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        began = time.monotonic()
        driver = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        ended = Ended(folder / "multirun" / "s" / "journal.jsonl")
        while ended() < trials - LAST or slurm.submitted < min(trials, LAST):
            assert driver.poll() is None, "the driver ended"
            time.sleep(0.1)
        seconds, cpu = time.monotonic() - began, cpu_s(driver.pid)
        print(
            f"{ended()} trials ended and {slurm.submitted} were submitted in {seconds:.0f} s, {cpu:.0f} s of CPU",
            flush=True,
        )
        time.sleep(40)  # because the driver asks SLURM ever more rarely
        before, since, at_start = cpu_s(driver.pid), time.time(), len(slurm.ends)
        time.sleep(rest_s)
        used, first = cpu_s(driver.pid) - before, len(slurm.ends)
        states = f"{first - at_start} trials ended, {len(slurm.living)} running or queued"
        print(f"at rest for {rest_s} s ({states}): {100 * used / rest_s:.2f}% of a core", flush=True)
        print(f"  squeue: {60 * slurm.calls('squeue', since) / rest_s:.1f} a minute")
        delays: list[float] = []
        while len(delays) < slots:
            time.sleep(0.05)
            delays += [time.time() - end for end in slurm.ends[first + len(delays) : ended()]]
        print(f"from an end to its line in the journal: {spread(delays)}")
        lines = Path(f"/proc/{driver.pid}/status").read_text().splitlines()
        peak_mb = next(int(line.split()[1]) // 1000 for line in lines if "VmHWM" in line)
        print(f"the driver's most memory: {peak_mb} MB")
        print(", ".join(f"{slurm.calls(name)} {name}" for name in ("sbatch", "squeue", "scontrol")))
        driver.send_signal(signal.SIGINT)
        driver.wait()


if __name__ == "__main__":
    main()
