"""A plain `python sweep.py` runs one trial, and tracks the trial's outcome."""

import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweeps.trial.job import State
from tests import command_lines as lines
from tests.command_lines import SWEEP, Done, end, refuse, run, run_all, steps, wait_until

TRAINERS = """
import os, sys, time

def trains(cfg, trial):
    for epoch in range(10000):
        trial.report({"val_accuracy": 0.5}, step=epoch)
        time.sleep(0.05)

def exits(cfg, trial):
    sys.exit(3)

def is_done(cfg, trial):
    trial.report({"val_accuracy": 0.5}, step=1)
    return {"val_accuracy": 0.5}

def reports_text(cfg, trial):
    trial.report({"val_accuracy": "high"}, step=1)

def reports_another(cfg, trial):
    trial.report({"accuracy": 0.5}, step=1)
"""
SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"]
ENDS = {
    "exits": (3, State.FAILED, "sys.exit(3)"),
    "is_done": (0, State.COMPLETED, ""),
    "reports_text": (1, State.FAILED, "the metric 'val_accuracy' is a str ('high')"),
    "reports_another": (1, State.FAILED, "hydra.sweeper.objective=accuracy"),
}


def line(how: str, *more: str) -> list[str]:
    return [SWEEP, "trainer=own", f"trainer._target_=mine.{how}", *more]


def trial_of(done: Done) -> Path:
    (trial,) = (file.parents[1] for file in done.folder.glob("outputs/*/*/.hydra/config.yaml"))
    return trial


@pytest.fixture(scope="module")
def python_path(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "mine.py").write_text(TRAINERS)
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def interrupted(
    python_path: dict[str, str], migrated: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Done]:
    """Send each signal to a run after some epochs, and return the results by signal."""

    def send(name: str) -> Done:
        folder = tmp_path_factory.mktemp(name)
        shutil.copy(migrated, folder / "mlflow.db")
        process = lines.start(line("trains"), folder, python_path)
        wait_until(lambda: any(len(steps(file.parent)) > 2 for file in folder.glob("outputs/*/*/metrics.jsonl")))
        process.send_signal(getattr(signal, name))
        return lines.finish(process, folder, 60)

    with ThreadPoolExecutor(3) as pool:
        return dict(zip(SIGNALS, pool.map(send, SIGNALS), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", SIGNALS)
def test_signal_prints_one_line_and_cancels_the_mlflow_run(interrupted: dict[str, Done], name: str) -> None:
    from mlflow import MlflowClient

    done = interrupted[name]
    assert done.code == 130, done.said
    assert done.err.splitlines() == ["interrupted"]
    trial = trial_of(done)
    assert (end(trial).state, end(trial).error) == (State.CANCELLED, "it was interrupted")
    client = MlflowClient(f"sqlite:///{done.folder}/mlflow.db")
    experiment = client.get_experiment_by_name("sweepyard")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 2  # the trial's run and the day's run
    assert {run.info.status for run in runs} == {"KILLED"}
    (run,) = (run for run in runs if run.data.tags["role"] == "trial")
    assert run.data.tags["state"] == "cancelled"
    assert run.data.metrics["val_accuracy"] == 0.5


@pytest.fixture(scope="module")
def ended(python_path: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    commands = {how: line(how, "tracking=none") for how in ENDS}
    return run_all(commands, tmp_path_factory.mktemp("ended"), python_path)


@pytest.mark.parametrize("how", ENDS)
def test_outcome_is_reported_and_written(ended: dict[str, Done], how: str) -> None:
    done = ended[how]
    code, state, error = ENDS[how]
    assert done.code == code, done.said
    trial = trial_of(done)
    assert (end(trial).state, error in end(trial).error) == (state, True)
    assert error.startswith("sys.exit") or error in done.err


def test_objective_typo_prints_one_line(python_path: dict[str, str], tmp_path: Path) -> None:
    done = run(line("is_done", "hydra.sweeper.objective=val_acc", "tracking=none"), tmp_path, python_path)
    assert done.code == 1, done.said
    (message,) = done.err.splitlines()
    assert "no 'val_acc', which is the objective" in message
    assert "hydra.sweeper.objective=val_accuracy" in message


@pytest.mark.long
def test_run_without_hydras_config_files_completes(python_path: dict[str, str], tmp_path: Path) -> None:
    done = run(line("is_done", "hydra.output_subdir=null"), tmp_path, python_path)
    assert done.code == 0, done.said
    (file,) = tmp_path.glob("outputs/*/*/metrics.jsonl")
    assert end(file.parent).state is State.COMPLETED


def test_password_in_an_address_is_refused_and_never_written(python_path: dict[str, str], tmp_path: Path) -> None:
    address = "postgresql://u:geheim@nowhere/db"
    commands = {
        "typed": line("is_done", f"tracking.uri={address}"),
        "swept": [SWEEP, "-m", *line("is_done")[1:], f"tracking.uri={address}", "seed=1,2"],
        "storage": [SWEEP, "-m", *line("is_done")[1:], f"hydra.sweeper.storage={address}", "seed=1,2"],
    }
    for name, words in commands.items():
        done = refuse(words, tmp_path / name)
        assert done.code == 2, done.said
        assert len(done.err.splitlines()) == 2, done.err
        assert "${oc.env:" in done.err
        assert "geheim" not in done.said
        assert not [file for file in done.folder.rglob("*") if file.is_file() and b"geheim" in file.read_bytes()], name


@pytest.mark.long
def test_password_from_the_environment_is_never_written(
    python_path: dict[str, str], migrated: Path, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    shutil.copy(migrated, tmp_path / "geheim.db")
    address = {"MY_ADDRESS": f"sqlite:///{tmp_path}/geheim.db"}
    setting = "tracking.uri=${oc.env:MY_ADDRESS}"
    commands = {
        "alone": line("is_done", setting),
        "swept": [SWEEP, "-m", *line("is_done")[1:], setting, "seed=1,2", "hydra.sweeper.study_name=s"],
    }
    for done in run_all(commands, tmp_path, python_path | address).values():
        assert done.code == 0, done.said
        assert MlflowClient(address["MY_ADDRESS"]).get_experiment_by_name("sweepyard")
        leaks = [file for file in done.folder.rglob("*") if file.is_file() and b"geheim" in file.read_bytes()]
        assert not leaks
    assert b"geheim" not in (tmp_path / "geheim.db").read_bytes()
    resumed = lines.sweeps(tmp_path / "1", "resume", "s")
    assert resumed.code == 2, resumed.said
    assert "MY_ADDRESS" in resumed.err
    assert run(["-m", "sweeps", "resume", "s"], tmp_path / "1", python_path | address).code == 0
