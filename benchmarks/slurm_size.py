"""A grid of 10,000 trials over 64 slots, on scripts in place of SLURM's commands, which answer as a cluster would.

    python benchmarks/slurm_size.py [trials] [slots] [seconds at rest]

No trial runs: its job's folder gets the files of a start and, 200 to 260 s later, of an end. Printed are the driver's
CPU and the calls of squeue while no trial ends, the seconds from a trial's end to its line in the journal, and the
driver's most memory. MLflow is off.
"""

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
SHORTEST_S, LONGEST_S = 200, 260


@dataclass
class Element:
    row: str  # id and name, as squeue prints them
    attempt: AttemptFolder
    state: str = "PENDING"
    ends_at: float = 0.0


class Slurm(threading.Thread):
    """The controller behind the scripts in `folder`."""

    def __init__(self, folder: Path, slots: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.slots = folder, slots
        self.elements: list[Element] = []
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
            running = [element for element in self.elements if element.state == "RUNNING"]
            for element in running:
                if time.time() > element.ends_at:
                    element.attempt.close(Outcome(State.COMPLETED, objective=[0.5]))
                    element.state = "COMPLETED"
                    self.ends.append(time.time())
            pending = (element for element in self.elements if element.state == "PENDING")
            for element, _ in zip(pending, range(self.slots - len(running)), strict=False):
                element.attempt.begin(time.time())
                element.state, element.ends_at = "RUNNING", time.time() + random.uniform(SHORTEST_S, LONGEST_S)
            rows = [element.row.format(element.state) for element in self.elements if element.state != "COMPLETED"]
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
            self.elements.append(Element(f"{job_id}|{{}}|None|{options['job-name']}", attempt))


def cpu_s(driver: int) -> float:
    words = Path(f"/proc/{driver}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def ended(journal: Path) -> int:
    return sum('"ended"' in line for line in journal.read_text().splitlines()) if journal.exists() else 0


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    trials, slots, rest_s = (given + [10_000, 64, 120][len(given) :])[:3]
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "app.py").write_text(APP)
        slurm = Slurm(folder / "bin", slots)
        slurm.start()
        command = [sys.executable, "app.py", "-m", "hydra/sweeper=grid", "hydra/launcher=slurm", f"+x=range({trials})"]
        command += ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s", "hydra.launcher.trials_per_job=1"]
        command += [f"hydra.launcher.array_parallelism={slots}", "hydra.launcher.keep_on_interrupt=true"]
        environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        began = time.monotonic()
        driver = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        while len(slurm.elements) < min(trials, 1000):
            assert driver.poll() is None, "the driver ended"
            time.sleep(0.1)
        print(f"{len(slurm.elements)} trials submitted {time.monotonic() - began:.0f} s after the start of the command")
        time.sleep(40)  # because the driver asks SLURM ever more rarely
        before, since = cpu_s(driver.pid), time.time()
        time.sleep(rest_s)
        used, at_rest = cpu_s(driver.pid) - before, len(slurm.ends)
        print(f"at rest for {rest_s} s ({at_rest} trials ended): {100 * used / rest_s:.2f}% of a core", flush=True)
        print(f"  squeue: {60 * slurm.calls('squeue', since) / rest_s:.1f} a minute")
        journal, delays = folder / "multirun" / "s" / "journal.jsonl", list[float]()
        while len(delays) < slots:
            time.sleep(0.05)
            delays += [time.time() - end for end in sorted(slurm.ends)[len(delays) : ended(journal)]]
        print(f"from an end to its line in the journal: {spread(delays)}")
        lines = Path(f"/proc/{driver.pid}/status").read_text().splitlines()
        peak_mb = next(int(line.split()[1]) // 1000 for line in lines if "VmHWM" in line)
        print(f"the driver's most memory: {peak_mb} MB")
        print(", ".join(f"{slurm.calls(name)} {name}" for name in ("sbatch", "squeue", "scontrol")))
        driver.send_signal(signal.SIGINT)
        driver.wait()


if __name__ == "__main__":
    main()
