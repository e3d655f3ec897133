"""Studies resume after a driver or a trial is killed, stopped or failed."""

import json
import os
import pty
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from tests import command_lines as lines
from tests.command_lines import (
    GRID,
    SWEEP,
    THEIRS,
    Done,
    end,
    environment,
    processes,
    rows,
    steps,
    sweeps,
    theirs,
    wait_until,
)
from tests.warm import Running

EPOCHS = 30
# A checkpoint after every epoch, so that every kill falls between two checkpoints.
EIGHT = ["optimizer=adam,sgd", "lr=0.001,0.1", "batch_size=32,64", f"epochs={EPOCHS}"]
EIGHT += ["trainer.checkpoint_interval_s=0.0", "model.dropout=0.1"]


def start(folder: Path, name: str, *arguments: str) -> Running:
    return lines.start([SWEEP, "-m", *arguments, f"hydra.sweeper.study_name={name}"], folder)


def finish(folder: Path, name: str, *arguments: str) -> tuple[int, str]:
    done = lines.finish(start(folder, name, *arguments), folder, 200)
    return done.code, done.said


def results(folder: Path, name: str) -> dict[int, dict[str, float]]:
    """Return the metrics of each trial, without the metrics that depend on the clock."""
    metrics = {}
    for row in rows(folder / "multirun" / name):
        outcome = end(row.folder)
        assert outcome.state is State.COMPLETED, outcome
        clocks = {"epoch_time", "images_per_second", "time_to_best", "time_to_stable"}
        metrics[row.number] = {k: v for k, v in outcome.metrics.items() if k not in clocks}
    return metrics


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("resume")
    yield folder
    assert not processes(folder)


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> dict[int, dict[str, float]]:
    code, out = finish(folder, "whole", *EIGHT, "tracking=none")
    assert code == 0, out
    return results(folder, "whole")


def kill_drivers(folder: Path, words: list[str], after_s: list[float]) -> None:
    """Start a study again and again, and kill its driver after so many seconds each time."""
    for seconds in after_s:
        driver = lines.start_afresh([SWEEP, "-m", *words], folder)
        try:
            driver.wait(seconds)
        except subprocess.TimeoutExpired:
            driver.kill()
        driver.communicate()
        wait_until(lambda: not processes(folder))


@pytest.mark.long
def test_repeatedly_killed_study_ends_like_an_uninterrupted_study(
    folder: Path, uninterrupted: dict[int, dict[str, float]]
) -> None:
    instants = random.Random(1)
    kill_drivers(folder, [*EIGHT, "hydra.sweeper.study_name=killed"], [instants.uniform(0.3, 6) for _ in range(6)])
    code, out = finish(folder, "killed", *EIGHT)
    assert code == 0, out
    assert results(folder, "killed") == uninterrupted
    for number in uninterrupted:
        assert steps(folder / "multirun" / "killed" / str(number)) == list(range(1, EPOCHS + 1))
    assert_mlflow_has_each_epoch_once(folder, trials=8)


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


@pytest.mark.long  # tests/tracking/test_new_store.py tests the database alone
def test_study_resumes_after_kills_during_database_creation(tmp_path: Path) -> None:
    line = [THEIRS, "-m", *GRID, "+x=1,2", "hydra.sweeper.study_name=s"]
    for i in range(6):
        driver = lines.start_afresh(line, tmp_path)
        time.sleep(0.6 + 0.35 * i)
        driver.kill()
        driver.communicate()
    done = lines.run(line, tmp_path)
    assert done.code == 0, done.said
    assert {file.name for file in tmp_path.iterdir()} <= {"mlflow.db", "mlartifacts", "multirun"}


@pytest.mark.long
def test_objective_typo_stops_a_study_at_the_first_report(folder: Path) -> None:
    typo = ["hydra.sweeper.objective=val_acc", "seed=1,2,3,4", "epochs=100000", "tracking=none"]
    code, out = finish(folder, "refused", *typo)
    assert code == 2 and not (folder / "multirun" / "refused").exists(), out
    assert "hydra.sweeper.objective=val_acc: the trainer reports no such metric; did you mean val_accuracy?" in out
    (folder / "mine.py").write_text("from trainers.trainer import train\n")  # because own metrics are unknown
    words = [SWEEP, "-m", *typo, "trainer._target_=mine.train", "hydra.sweeper.study_name=typo"]
    done = lines.run(words, folder, {"PYTHONPATH": str(folder)})
    code, out = done.code, done.said
    assert code == 1, out
    assert "hydra.sweeper.objective=val_accuracy" in out
    assert "study typo is not finished: the task reported no 'val_acc', which is the objective" in out
    assert "Another objective makes another study: choose another hydra.sweeper.study_name." in out
    assert "Once trials return this objective, resume with: sweepyard resume typo --retry failed" in out
    started = [row for row in rows(folder / "multirun" / "typo") if row.attempts]
    assert len(started) <= 2
    assert all((row.state, steps(row.folder)) == (State.FAILED, [1]) for row in started)


def two_trials_run(study: Path) -> bool:
    return sum(len(steps(file.parent)) > 2 for file in study.glob("*/metrics.jsonl")) == 2


@pytest.mark.long
def test_first_ctrl_c_lets_trials_end_the_epoch(folder: Path) -> None:
    driver = start(folder, "once", "seed=1,2,3", "epochs=100000", "tracking=none")
    wait_until(lambda: two_trials_run(folder / "multirun" / "once"))
    driver.send_signal(signal.SIGINT)
    done = lines.finish(driver, folder)
    assert done.code == 130, done.said
    assert "hydra.sweeper.study_name=once" in done.out.splitlines()[-1]
    for number in (0, 1):
        trial = folder / "multirun" / "once" / str(number)
        assert end(trial).state is State.CANCELLED
        assert (trial / "checkpoint").exists()
    assert not processes(folder)


SLOW = [*GRID, "+x=1,2,3", "+epochs=100000"]


@pytest.fixture(scope="module")
def signalled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """Send each signal to a driver while trials run, and return the results by signal."""

    def send(name: str) -> Done:
        folder = tmp_path_factory.mktemp(name)
        driver = lines.start(theirs(*SLOW, "+spawns=1", name=name), folder)
        wait_until(lambda: two_trials_run(folder / "multirun" / name))
        driver.send_signal(getattr(signal, name))
        return lines.finish(driver, folder)

    names = ["SIGINT", "SIGTERM", "SIGHUP"]
    with ThreadPoolExecutor(3) as pool:
        return dict(zip(names, pool.map(send, names), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signal_cancels_trials_and_prints_how_to_resume(signalled: dict[str, Done], name: str) -> None:
    done = signalled[name]
    assert done.code == 130, done.said
    assert f"is not finished: it was interrupted ({name})" in done.out
    last = done.out.splitlines()[-1]
    assert last.startswith("Resume with: ")
    assert f"hydra.sweeper.study_name={name}" in last
    assert "Traceback" not in done.said
    for number in (0, 1):
        outcome = end(done.study() / str(number))
        assert outcome.state is State.CANCELLED
        assert outcome.objective  # because the trial ended after an epoch, and was not killed
    assert not (done.study() / "2" / "attempts").exists()
    assert not processes(done.folder)


@pytest.mark.long
def test_closed_terminal_cancels_trials_and_writes_the_report(tmp_path: Path) -> None:
    terminal, driver_terminal = pty.openpty()
    driver = subprocess.Popen(
        [sys.executable, *theirs(*SLOW)],
        cwd=tmp_path,
        env=environment({"TERM": "xterm"}),
        stdin=driver_terminal,
        stdout=driver_terminal,
        stderr=driver_terminal,
        start_new_session=True,
    )
    os.close(driver_terminal)
    shown = b""
    deadline = time.monotonic() + 30
    while not two_trials_run(tmp_path / "multirun" / "s") and time.monotonic() < deadline:
        shown += os.read(terminal, 65536)
    os.close(terminal)
    driver.send_signal(signal.SIGHUP)
    assert driver.wait(30) == 130
    assert b"2 running" in shown
    assert [end(tmp_path / "multirun" / "s" / n).state for n in "01"] == [State.CANCELLED] * 2
    assert (tmp_path / "multirun" / "s" / "report.html").exists()
    assert not processes(tmp_path)


@pytest.mark.long
def test_driver_under_nohup_ignores_sighup(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        ["nohup", sys.executable, *theirs(*SLOW)],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: two_trials_run(tmp_path / "multirun" / "s"))
    driver.send_signal(signal.SIGHUP)
    time.sleep(0.6)
    assert driver.poll() is None
    driver.send_signal(signal.SIGTERM)
    out, _ = driver.communicate(timeout=30)
    assert driver.returncode == 130, out
    assert "it was interrupted (SIGTERM)" in out


def test_second_ctrl_c_kills_the_study(tmp_path: Path) -> None:
    driver = lines.start(theirs(*GRID, "+how=hangs", "+x=1,2", name="twice"), tmp_path)
    study = tmp_path / "multirun" / "twice"
    wait_until(lambda: len(list(study.glob("*/attempts/1/started"))) == 2)
    driver.send_signal(signal.SIGINT)
    time.sleep(1)
    assert driver.poll() is None
    driver.send_signal(signal.SIGINT)
    done = lines.finish(driver, tmp_path)
    assert done.code == 130
    assert "hydra.sweeper.study_name=twice" in done.out.splitlines()[-1]
    assert "Traceback" not in done.said
    wait_until(lambda: not processes(tmp_path))


@pytest.mark.long
def test_process_of_a_foreign_launcher_ends_before_its_trial_resumes(tmp_path: Path) -> None:
    """Check a process of joblib, which continues after a kill of its driver."""
    line = theirs("hydra/sweeper=grid", "hydra/launcher=joblib", "+x=1,2", "+epochs=60")
    driver = lines.start_afresh(line, tmp_path)
    study = tmp_path / "multirun" / "s"
    wait_until(lambda: two_trials_run(study))
    driver.kill()
    driver.wait()
    done = lines.run(line, tmp_path)
    assert done.code == 0, done.said
    assert [steps(study / number) for number in "01"] == [list(range(60))] * 2
    for process in processes(tmp_path):  # because idle workers of joblib do not end with their driver
        process.kill()


def test_processes_started_by_trials_end_with_a_killed_driver(tmp_path: Path) -> None:
    driver = lines.start(theirs(*SLOW, "+spawns=1"), tmp_path)
    wait_until(lambda: sum(process.info["name"] == "sleep" for process in processes(tmp_path)) == 4)
    driver.kill()
    driver.communicate()
    wait_until(lambda: not processes(tmp_path))


@pytest.mark.long
def test_killed_trial_resumes_in_a_new_attempt(folder: Path) -> None:
    driver = start(folder, "lost", "seed=1", "epochs=80", "trainer.checkpoint_interval_s=0.0", "tracking=none")
    trial = folder / "multirun" / "lost" / "0"
    wait_until(lambda: len(steps(trial)) > 5)
    holder = json.loads((trial / "attempts" / "1" / "alive").read_text())
    os.kill(holder["pid"], signal.SIGKILL)
    done = lines.finish(driver, folder)
    assert done.code == 0, done.said
    first = next(line for line in (trial / "attempts/2/log").read_text().splitlines() if line.startswith("step "))
    assert f"retried in a new attempt\ntrial 0 resumed from step {int(first.split()[1]) - 1}\n" in done.out
    assert steps(trial) == list(range(1, 81))
    assert end(trial, 1).state is State.LOST
    assert end(trial, 1).error
    assert end(trial, 2).state is State.COMPLETED


def test_second_driver_names_the_running_driver(tmp_path: Path) -> None:
    first = lines.start(theirs(*SLOW), tmp_path)
    wait_until(lambda: two_trials_run(tmp_path / "multirun" / "s"))
    done = lines.run(theirs(*SLOW), tmp_path)
    assert done.code == 2
    assert f"process {first.pid} on {socket.gethostname()}" in done.err
    assert len(done.err.splitlines()) == 2
    retried = sweeps(tmp_path, "resume", "s", "--retry", "failed")
    assert retried.code == 2, retried.said
    first.kill()
    first.communicate()
    wait_until(lambda: not processes(tmp_path))


@pytest.mark.long
def test_driver_on_a_disk_without_locks_is_recognized(tmp_path: Path) -> None:
    line = theirs(*GRID, "+x=1,2")
    study = tmp_path / "multirun" / "s"
    study.mkdir(parents=True)
    note = {"host": "elsewhere", "pid": 17, "since": time.time()}
    (study / "driver.lock").write_text(json.dumps(note))
    done = lines.run(line, tmp_path)
    assert done.code == 2, done.said
    assert "is being run by process 17 on elsewhere" in done.err
    assert "gone, its lock expires after a minute" in done.err
    assert len(done.err.splitlines()) == 2
    os.utime(study / "driver.lock", (time.time() - 100,) * 2)  # because a lock expires after a minute
    done = lines.run(line, tmp_path)
    assert done.code == 0, done.said


def test_driver_stops_after_another_driver_takes_the_lock(tmp_path: Path) -> None:
    driver = lines.start(theirs(*SLOW), tmp_path)
    study = tmp_path / "multirun" / "s"
    wait_until(lambda: two_trials_run(study))
    note = {"host": "elsewhere", "pid": 17, "since": time.time()}
    (study / "driver.lock").write_text(json.dumps(note))
    done = lines.finish(driver, tmp_path)
    assert done.code == 3, done.said  # because its trials are left to the other driver
    assert "is left to process 17 on elsewhere" in done.err
    assert json.loads((study / "driver.lock").read_text()) == note


@pytest.mark.long
def test_other_study_of_same_name_is_refused_unless_extended(tmp_path: Path) -> None:
    def run(*arguments: str) -> Done:
        return lines.run(theirs(*GRID, *arguments, name="same"), tmp_path)

    assert run("+x=1,2").code == 0
    done = run("+x=1,3")
    assert done.code == 2
    assert "x=1,3 was 1,2" in done.err
    assert run("+x=1,2", "+y=5").code == 2
    done = run("+x=1,2,3", "hydra.sweeper.extend=true")
    assert done.code == 0, done.said
    assert len(results(tmp_path, "same")) == 3
    assert run("+x=1,2,3").code == 0


@pytest.mark.long
def test_retry_failed_retries_failed_trials(tmp_path: Path) -> None:
    line = theirs(*GRID, "+x=1,2,3", f"+wants={tmp_path}/flag")
    study = tmp_path / "multirun" / "s"
    assert lines.run(line, tmp_path).code == 1
    second = lines.run(line, tmp_path)  # because no trial is queued
    assert (second.code, [len(row.attempts) for row in rows(study)]) == (1, [1, 1, 1])
    (tmp_path / "flag").touch()
    single = sweeps(tmp_path, "resume", "s", "--retry", "failed", "--trials", "1")
    assert single.code == 1, single.said  # because the other trials are still failed
    assert "retries trials 1\n" in single.out
    assert [row.state for row in rows(study)] == [State.FAILED, State.COMPLETED, State.FAILED]
    done = sweeps(tmp_path, "resume", "s", "--retry", "failed,lost")
    assert done.code == 0, done.said
    assert "retries trials 0, 2\n" in done.out
    for number, row in enumerate(rows(study)):
        assert row.folder == study / str(number)
        assert (row.state, row.objective) == (State.COMPLETED, [(number + 1) ** 2])
        assert [attempt.state for attempt in row.attempts] == [State.FAILED, State.COMPLETED]
        assert row.attempts[0].error.startswith("FileNotFoundError")
        assert [attempt.number for attempt in lines.TrialFolder(row.folder).attempts()] == [1, 2]
    assert sorted(int(path.name) for path in study.iterdir() if path.name.isdecimal()) == [0, 1, 2]


@pytest.mark.long
@pytest.mark.parametrize(
    "how, ended, less, more",
    [
        ("is_killed", State.LOST, [], "hydra.sweeper.max_attempts=2"),
        # Because a trial without a fault needs .2 s, and seconds on a busy machine.
        ("hangs", State.TIMED_OUT, ["hydra.launcher.timeout_min=0.1"], "hydra.launcher.timeout_min=0.11"),
    ],
)
def test_abandoned_trial_resumes_with_more_attempts_or_time(
    tmp_path: Path, how: str, ended: State, less: list[str], more: str
) -> None:
    less = ["hydra.sweeper.max_attempts=1", *less]
    line = [*GRID, f"+how={how},fine"]
    done = lines.run(theirs(*line, *less), tmp_path)
    assert done.code == 1, done.said
    (row, fine) = rows(tmp_path / "multirun" / "s")
    assert (row.state, len(row.attempts)) == (ended, 1)
    assert more.partition("=")[0] in row.error
    done = lines.run(theirs(*line, *less), tmp_path)  # because the same command changes nothing
    assert [len(row.attempts) for row in rows(tmp_path / "multirun" / "s")] == [1, 1]
    done = lines.run(theirs(*line, *less, more), tmp_path)
    assert done.code == 1, done.said
    assert "trials 0 were given up and resume now" in done.out
    (row, fine) = rows(tmp_path / "multirun" / "s")
    assert row.state is ended
    assert len(row.attempts) > 1
    assert (fine.state, len(fine.attempts)) == (State.COMPLETED, 1)


@pytest.mark.long
def test_training_with_a_schedule_to_its_end_is_trained_anew(folder: Path) -> None:
    words = ["lr_schedule=cosine,warmup", "dataset=points", "epochs=2", "tracking=none"]
    assert finish(folder, "cosine", *words)[0] == 0
    refused = sweeps(folder, "continue", "cosine", "--top", "2", "--epochs", "4")
    assert refused.code == 2 and "trial 0: lr_schedule=cosine depends on the end" in refused.err
    assert [steps(row.folder)[-1] for row in rows(folder / "multirun" / "cosine")] == [2, 2]
    (line,) = re.findall("Train that one: (.*)", refused.err)
    assert lines.run(shlex.split(line)[1:], folder).out.count("step 4") == 1
    assert sweeps(folder, "continue", "cosine", "--trial", "1", "--epochs", "4").code == 0


@pytest.mark.long
def test_killed_search_with_rungs_promotes_and_trains_longer(
    folder: Path, uninterrupted: dict[int, dict[str, float]]
) -> None:
    words = [*EIGHT, "hydra/sweeper/rungs=halving", "hydra.sweeper.rungs.first=2", "hydra.sweeper.study_name=rungs"]
    instants = random.Random(2)
    kill_drivers(folder, [*words, "tracking=none"], [instants.uniform(3, 8) for _ in range(3)])
    code, out = finish(folder, "rungs", *words[:-1], "tracking=none")
    assert code == 0, out
    study = folder / "multirun" / "rungs"
    trials = rows(study)
    assert {row.state for row in trials} == {State.COMPLETED, State.PAUSED}
    for row in trials:
        assert steps(row.folder) == list(range(1, row.step + 1))
        assert row.step in ((2, 6, 18) if row.state is State.PAUSED else (EPOCHS,))
    completed = [row for row in trials if row.result]
    for row in completed:
        assert end(row.folder).metrics["val_accuracy"] == uninterrupted[row.number]["val_accuracy"]
    best = min(completed, key=lambda row: (-row.result[0], row.number)).number
    assert "checkpoints: " in sweeps(folder, "status", "rungs").out
    paused = next(row.number for row in trials if not TrialFolder(row.folder).checkpoints())
    deleted = sweeps(folder, "continue", "rungs", "--trial", str(paused), "--epochs", "99")
    assert deleted.code == 2 and "deleted, because of hydra.sweeper.keep_checkpoints=best:5" in deleted.err
    longer = sweeps(folder, "continue", "rungs", "--top", "1", "--epochs", str(EPOCHS + 5))
    assert longer.code == 0, longer.said
    assert "continued with" in longer.out
    assert steps(study / str(best)) == list(range(1, EPOCHS + 6))
    assert f"epochs={EPOCHS + 5}" in sweeps(folder, "best", "rungs", "--trial", str(best)).out
    for typed, answer in [
        ("--epochs 3", "--epochs 70"),
        ("--epochs 60 --set epochs=50", "epochs=50 and epochs=60 conflict"),
        ("--set steps=9", "steps=9: the training would end after step 1, but trial"),
        ("--set lr=1", "lr is swept"),
        ("", "--top 3 --epochs 60"),
    ]:
        refused = sweeps(folder, "continue", "rungs", "--trial", str(best), *typed.split())
        assert refused.code == 2 and answer in refused.err
