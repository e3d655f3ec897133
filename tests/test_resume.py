"""What is killed goes on where it was: real drivers, really killed, on the product's own trainer."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

SWEEP = Path(__file__).parents[1] / "sweep.py"
EPOCHS = 30
# A checkpoint after every epoch, so that every kill falls between one and the next.
TWELVE = ["optimizer=adam,sgd", "lr=0.001,0.01,0.1", "batch_size=32,64", f"epochs={EPOCHS}"]
TWELVE += ["trainer.checkpoint_interval_s=0.0", "model.dropout=0.1"]


def start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SWEEP), "-m", *arguments, f"hydra.sweeper.study_name={name}"]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(folder: Path, name: str, *arguments: str) -> tuple[int, str]:
    driver = start(folder, name, *arguments)
    out, _ = driver.communicate(timeout=200)
    return driver.returncode, out


def results(folder: Path, name: str) -> dict[int, dict[str, float]]:
    """What each trial returned, but for what depends on the clock."""
    found = {}
    for result in (folder / "multirun" / name).glob("*/result.json"):
        content = json.loads(result.read_text())
        assert content["state"] == "completed", content
        metrics = {
            k: v for k, v in content["metrics"].items() if k not in {"epoch_time", "images_per_second"}
        }
        found[int(result.parent.name)] = metrics
    return found


def steps(trial: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (trial / "metrics.jsonl").read_text().splitlines()]


def processes(folder: Path) -> list[psutil.Process]:
    """Every process that works in `folder`."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] and Path(process.info["cwd"]).is_relative_to(folder):
            found.append(process)
    return found


def wait_until(holds: object, timeout_s: float = 60) -> None:
    assert callable(holds)
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("resume")
    yield folder
    assert not processes(folder)


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> dict[int, dict[str, float]]:
    code, out = finish(folder, "whole", *TWELVE, "tracking=none")
    assert code == 0, out
    return results(folder, "whole")


def test_a_driver_killed_at_any_instant_loses_nothing(
    folder: Path, uninterrupted: dict[int, dict[str, float]]
) -> None:
    instants = random.Random(1)
    for _ in range(10):
        driver = start(folder, "killed", *TWELVE)
        try:
            driver.wait(instants.uniform(0.3, 9))
        except subprocess.TimeoutExpired:
            driver.kill()
        driver.communicate()
        wait_until(lambda: not processes(folder), timeout_s=10)
    code, out = finish(folder, "killed", *TWELVE)
    assert code == 0, out
    assert results(folder, "killed") == uninterrupted
    for number in uninterrupted:
        assert steps(folder / "multirun" / "killed" / str(number)) == list(range(1, EPOCHS + 1))
    assert_mlflow_has_each_epoch_once(folder, trials=12)


def assert_mlflow_has_each_epoch_once(folder: Path, trials: int) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("sweepyard")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.study = 'killed' and tags.role = 'trial'")
    assert len(runs) == trials
    for run in runs:
        assert run.info.status == "FINISHED"
        history = client.get_metric_history(run.info.run_id, "val_accuracy")
        assert sorted(metric.step for metric in history) == list(range(1, EPOCHS + 1))


SLOW = ["seed=1,2,3", "epochs=100000", "tracking=none"]


def wait_for_epochs(folder: Path, name: str) -> None:
    trials = folder / "multirun" / name
    wait_until(lambda: len([t for t in trials.glob("*/metrics.jsonl") if len(steps(t.parent)) > 2]) == 2)


def test_ctrl_c_once_lets_trials_end_their_epoch_and_says_how_to_go_on(folder: Path) -> None:
    driver = start(folder, "once", *SLOW)
    wait_for_epochs(folder, "once")
    driver.send_signal(signal.SIGINT)
    out, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130, out
    assert "hydra.sweeper.study_name=once" in out.splitlines()[-1]
    for number in (0, 1):
        trial = folder / "multirun" / "once" / str(number)
        assert json.loads((trial / "result.json").read_text())["state"] == "cancelled"
        assert (trial / "checkpoint").exists()
    assert not processes(folder)


def test_ctrl_c_twice_kills(folder: Path) -> None:
    stubborn = ["trainer._target_=stubborn.train", "seed=1,2", "tracking=none"]
    (folder / "stubborn.py").write_text(
        "import time\n\ndef train(cfg, trial):\n    trial.report({'x': 1}, 1)\n    time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, str(SWEEP), "-m", *stubborn, "hydra.sweeper.study_name=twice"]
    driver = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until(lambda: len(list((folder / "multirun" / "twice").glob("*/metrics.jsonl"))) == 2)
    driver.send_signal(signal.SIGINT)
    time.sleep(1)
    assert driver.poll() is None
    driver.send_signal(signal.SIGINT)
    out, _ = driver.communicate(timeout=20)
    assert driver.returncode == 130
    assert "hydra.sweeper.study_name=twice" in out
    wait_until(lambda: not processes(folder), timeout_s=5)


def test_a_killed_trial_goes_on_in_a_new_attempt(folder: Path) -> None:
    driver = start(
        folder, "lost", "seed=1", "epochs=2000", "trainer.checkpoint_interval_s=0.0", "tracking=none"
    )
    trial = folder / "multirun" / "lost" / "0"
    wait_until(lambda: (trial / "metrics.jsonl").exists() and len(steps(trial)) > 5)
    holder = json.loads((trial / "attempts" / "1" / "alive").read_text())
    os.kill(holder["pid"], signal.SIGKILL)
    out, _ = driver.communicate(timeout=100)
    assert driver.returncode == 0, out
    assert "it goes on in a new attempt" in out
    assert steps(trial) == list(range(1, 2001))
    assert json.loads((trial / "attempts" / "1" / "end.json").read_text())["state"] == "lost"
    assert (trial / "attempts" / "2").exists()


def test_a_second_driver_is_told_who_holds_the_study(folder: Path) -> None:
    first = start(folder, "held", *SLOW)
    wait_for_epochs(folder, "held")
    code, out = finish(folder, "held", *SLOW)
    assert code == 2
    assert f"process {first.pid} on" in out
    first.kill()
    first.communicate()
    wait_until(lambda: not processes(folder), timeout_s=5)


def test_another_study_of_the_same_name_is_refused_unless_it_extends(folder: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        return finish(folder, "same", "epochs=1", "tracking=none", *arguments)

    assert run("lr=0.1,0.2")[0] == 0
    code, out = run("lr=0.1,0.3")
    assert code == 2
    assert "lr=0.1,0.3 was 0.1,0.2" in out
    assert run("lr=0.1,0.2", "seed=5")[0] == 2
    code, out = run("lr=0.1,0.2,0.3", "hydra.sweeper.extend=true")
    assert code == 0, out
    assert len(results(folder, "same")) == 3
    assert run("lr=0.1,0.2,0.3")[0] == 0
