"""Many drivers at once, each with 8 quick trials of 20 steps, on one MLflow: what it lacks at the end, and how long
each driver takes between its last trial's end and its own; and the same without tracking: that is the report alone.

The server is any, with a user in the environment as docs/how_to/service.md has it:

    . docker/secrets/users/me.env && python benchmarks/many_drivers.py http://127.0.0.1:5000 [drivers]
"""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from side_by_side import ROOT, machine, spread

TRIALS, STEPS = 8, 20
APP = ROOT / "tests" / "apps" / "their_app.py"


@dataclass(frozen=True)
class Ended:
    """A driver that ended: its exit status, what it said, the seconds it took and waited after its last trial."""

    code: int
    said: str
    took_s: float
    waited_s: float


def drive(uri: str, name: str, folder: Path) -> Ended:
    """One study, in a process of its own; without tracking if `uri` is empty."""
    values = ",".join(str(x) for x in range(TRIALS))
    line = [sys.executable, str(APP), "-m", "hydra/sweeper=grid", "hydra/launcher=local", f"+x={values}"]
    line += [f"+epochs={STEPS}", "+sleep=0.05", "hydra.sweeper.objective=objective", "hydra.sweeper.experiment=many"]
    line += [f"hydra.sweeper.tracking_uri={uri}" if uri else "hydra.sweeper.tracking=false"]
    line += [f"hydra.sweeper.study_name={name}"]
    folder.mkdir()
    started = time.time()
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    ended = time.time()
    trials = [path.stat().st_mtime for path in (folder / "multirun" / name).glob("*/attempts/*/end.json")]
    return Ended(done.returncode, done.stdout + done.stderr, ended - started, ended - max(trials, default=started))


def at_once(uri: str, drivers: int, folder: Path) -> dict[str, Ended]:
    """All drivers, by the names of their studies."""
    names = [f"{folder.name}-{number}" for number in range(drivers)]
    with ThreadPoolExecutor(drivers) as pool:
        return dict(zip(names, pool.map(lambda name: drive(uri, name, folder / name), names), strict=True))


def lacking(uri: str, studies: dict[str, Ended]) -> list[str]:
    """Return what MLflow does not have, in words, and the drivers that failed or last saw MLflow away."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("many")
    found = []
    for name, ended in studies.items():
        words = [line for line in ended.said.splitlines() if "MLflow" in line]
        if ended.code or (words and "MLflow answers again" not in words[-1]):  # a slow answer loses nothing
            found.append(f"{name} ended with {ended.code}: {ended.said[-500:] if ended.code else words}")
        runs = client.search_runs([experiment.experiment_id], f"tags.study = '{name}' AND tags.role = 'trial'")
        if sorted(run.data.params.get("x", "") for run in runs) != [str(x) for x in range(TRIALS)]:
            found.append(f"{name} has {len(runs)} runs")
        for run in runs:
            steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "objective")]
            files = {file.path for file in client.list_artifacts(run.info.run_id)}
            if steps != list(range(STEPS)) or run.info.status != "FINISHED" or files != {"config.yaml", "log"}:
                found.append(f"{name}: {run.info.run_name} has steps {steps}, files {files}, is {run.info.status}")
    return found


def main(uri: str, drivers: str = "16") -> None:
    print(f"{machine()}: {drivers} drivers, each {TRIALS} trials of {STEPS} steps")
    for words, where in (("tracked", uri), ("not tracked", "")):
        with tempfile.TemporaryDirectory() as folder:
            ended = at_once(where, int(drivers), Path(folder))
        for line in lacking(uri, ended) if where else []:
            print("lacks", line)
        took, end = [one.took_s for one in ended.values()], [one.waited_s for one in ended.values()]
        print(f"{words}: a driver took {spread(took)}, of it after its last trial {spread(end)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
