"""Passwords are in no file, tag, argument or message. The password of these tests is `sesame`."""

import os
import signal
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml
from mlflow import MlflowClient
from omegaconf import OmegaConf

from sweeps.base.errors import UserError
from sweeps.base.secrets import has_password, mask_lines, mask_value, refuse_typed, without_password
from sweeps.record.definition import shared
from sweeps.tracking.run_data import copy_for_show
from sweeps.tracking.store import QUIET, artifacts_of
from sweeps.tracking.tracker import Tracker
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State
from tests.command_lines import GRID, ROOT, SWEEP, THEIRS, refuse, some, start_afresh
from tests.command_lines import finish as finish_line
from tests.tracking.studies import (
    OF_A_TRIAL,
    Server,
    finish,
    free_port,
    new_row,
    open_tracker,
    runs,
    summary_of,
    train,
    wait_for,
)

WITH = {
    "postgresql://me:sesame@host/db": "postgresql://me:***@host/db",
    "postgresql+psycopg2://me:ses@me/sesame@host/db?x=1": "postgresql+psycopg2://me:***@host/db?x=1",
    "http://:sesame@host:5000": "http://:***@host:5000",
    "postgresql://host/db?user=me&password=sesame&x=1": "postgresql://host/db?user=me&password=***&x=1",
    "tracking.uri='mysql://me:sesame@host/db' lr=0.1": "tracking.uri='mysql://me:***@host/db' lr=0.1",
    "http://${user}:sesame@host and a@b": "http://${user}:***@host and a@b",
    "https://sesame@host/path": "https://***@host/path",
    "+repo=git+https://sesame@host/path": "+repo=git+https://***@host/path",
}
WITHOUT = [
    "sqlite:////home/me@work/mlflow.db",
    "http://host:5000/path",
    "http://host:5000 me@host",
    "postgresql://me@host/db",
    "postgresql://me:${oc.env:PASSWORD}@host/db",
    "${oc.env:DATABASE}",
    "optimizer=adam lr=0.1",
    "pad_token=[PAD] max_tokens=5 tokenizer=bert token=null api_key=${oc.env:API_KEY}",
    "export API_KEY=$(cat ~/.key)",
    'export API_KEY="$API_KEY"',
    "token=1,2",
    "token=interval(0.1,0.9)",
    "token=1e-4",
    "api_key='' password=\"\"",
]
NAMED = [
    "+trainer.password=sesame lr=1",
    "wandb_api_key='sesame me'",
    "hf_token=sesame",
    "++secret=sesame",
    "app.clientSecret=sesame",
    "github_token=sesame",
    "api_key=none-sesame",
    "token=12345sesame",
    "password=12",
    "hydra.launcher.setup=[export WANDB_API_KEY=sesame]",
    "url=https://host/?api_key=sesame",
]


@pytest.mark.parametrize("text", WITH)
def test_a_password_is_seen_and_masked(text: str) -> None:
    assert has_password(text)
    assert without_password(text) == WITH[text]
    with pytest.raises(UserError, match=r"\*\*\*.*\n.*MLFLOW_TRACKING_URI=.*oc.env") as refused:
        refuse_typed(["sweep.py", text])
    assert "sesame" not in str(refused.value)


def test_lines_of_a_damaged_file_are_masked() -> None:
    lines = "wandb:\n  api_key: sesame\n  'clientSecret': sesame\n- token: sesame\nlr: 0.1\nuri: http://me:sesame@h/\n{"
    assert mask_lines(lines).count("***") == 4
    assert "sesame" not in mask_lines(lines)


@pytest.mark.parametrize("text", NAMED)
def test_named_secret_is_refused_if_typed(text: str) -> None:
    with pytest.raises(UserError, match=r"=\*\*\*.*\n.*oc.env") as refused:
        refuse_typed({"hydra": {"overrides": {"task": [text]}}})
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    "word",
    [
        "+auth={user:a,password:sesame}",
        "+auth=[{token: sesame}]",
        "++hydra.job.env_set={API_KEY:sesame}",
        "a={'token':sesame}",
    ],
)
def test_named_secret_of_a_typed_dict_is_refused(word: str) -> None:
    with pytest.raises(UserError, match=r"=\*\*\*.*\n.*:\$\{oc.env:") as refused:
        refuse_typed([word])
    assert "sesame" not in str(refused.value)
    refuse_typed([word.replace("sesame", "${oc.env:TOKEN}"), "note={max_tokens:5,time:12}", "a=b secret: no"])


def test_named_secret_of_a_config_file_is_masked() -> None:
    config = {"trainer": {"password": "sesame", "epochs": 3}}
    refuse_typed(config)
    assert mask_value("", config) == {"trainer": {"password": "***", "epochs": 3}}
    assert mask_value("model.token", 12) == 12
    assert shared(OmegaConf.create(config)) == {"trainer.password": "***", "trainer.epochs": "3"}


@pytest.mark.parametrize("value", ["sesame", "open sesame", "a,b", "none-such", 5, ["a"], "first\nsecond"])
def test_whole_value_of_a_secret_key_is_masked(tmp_path: Path, value: object) -> None:
    file, folder = tmp_path / "config.yaml", tmp_path / "shown"
    folder.mkdir()
    file.write_text(yaml.safe_dump({"model": {"api_key": value, "size": 3}}))
    assert yaml.safe_load(copy_for_show(file, folder).read_text()) == {"model": {"api_key": "***", "size": 3}}


@pytest.mark.parametrize("letter", ["x", "."])
def test_password_search_is_fast_in_long_words(letter: str) -> None:
    began = time.perf_counter()
    without_password(letter * 30_000)
    assert time.perf_counter() - began < 0.5


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("sqlite:////home/me/mlflow.db", "/home/me/mlartifacts"),
        ("sqlite:///file:/home/me/mlflow.db?uri=true&password=sesame", None),
        ("postgresql://me:sesame@host/db", None),
        ("mysql+pymysql://host/db", None),
    ],
)
def test_no_folder_has_its_name_of_a_password(uri: str, folder: str | None) -> None:
    assert artifacts_of(uri) == folder


@pytest.mark.parametrize("text", WITHOUT)
def test_texts_without_secrets_are_unchanged(text: str) -> None:
    assert not has_password(text)
    assert without_password(text) == text
    refuse_typed({"tracking": {"uri": text}, "other": ["http://host:5000", "me@host"]})


def test_config_is_checked_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE", "postgresql://me:sesame@host/db")
    config = OmegaConf.create({"tracking": {"uri": "${oc.env:DATABASE}"}, "hydra": {"overrides": ["lr=1"]}})
    refuse_typed(OmegaConf.to_container(config, resolve=False))
    config.hydra.overrides.append("hydra.sweeper.storage=postgresql://me:sesame@host/db")
    with pytest.raises(UserError):
        refuse_typed(OmegaConf.to_container(config, resolve=False))


def files_with(text: str, folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


@pytest.mark.long
def test_secret_is_in_no_file_tag_or_message(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = server.uri.replace("://", "://me:sesame@")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setattr(sys, "argv", ["sweep.py", f"tracking.uri={uri}"])
    tracker = open_tracker(uri, tmp_path / "s")
    row = new_row(tmp_path / "s", 0, lr=0.1, db=uri)
    assert set(tracker.start_trial(row, [f"db={uri}"])) == {*OF_A_TRIAL, *QUIET}
    train(row, range(2))
    wait_for(lambda: "db" in next(r for r in runs(server.uri).values() if r.info.run_name != "s").data.params)

    server.kill()
    train(row, range(2, 4))
    wait_for(lambda: tracker.problem)
    messages = [str(tracker.problem), tracker.dashboard_line()]
    with pytest.raises(UserError) as refused:
        open_tracker(uri, tmp_path / "new")
    messages.append(str(refused.value))
    server.start()
    wait_for(lambda: tracker.problem is None)
    row = row.with_end(TrialFolder(row.folder).new_attempt().close(Outcome(State.FAILED, f"no answer from {uri}")))
    finish(tracker, summary_of(tmp_path / "s", row))

    assert not [text for text in messages if "sesame" in text]
    assert all("me:***@127.0.0.1" in text for text in messages)
    command = runs(server.uri)["s"].data.tags["command"]
    assert command.endswith(f"tracking.uri={without_password(uri)}")
    # A trial's own message is in the trial's files alone.
    assert {file.name for file in files_with("sesame", tmp_path)} <= {"end.json"}


@pytest.fixture
def with_password(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a store with a password. SQLite ignores the password, and MLflow reads the address as a folder's path."""
    monkeypatch.chdir(tmp_path)
    return f"{store.replace('sqlite:///', 'sqlite:///file:')}?uri=true&password=sesame"


def test_deleted_experiment_is_explained(with_password: str, tmp_path: Path) -> None:
    client = MlflowClient(with_password)
    client.delete_experiment(client.create_experiment("e"))
    with pytest.raises(UserError, match=r"MLFLOW_TRACKING_URI=.*password=\*\*\*"):
        open_tracker(with_password, tmp_path / "s")


def test_trial_reads_the_secret_from_the_drivers_environment_only(
    with_password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = open_tracker(with_password, tmp_path / "s")
    monkeypatch.setenv("DATABASE", with_password)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracker.start_trial(new_row(tmp_path / "s", 0), []) == {}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", with_password)
    assert set(tracker.start_trial(new_row(tmp_path / "s", 1), [])) == {*OF_A_TRIAL, *QUIET}


def words_of(process: psutil.Process) -> list[str]:
    """Return the arguments of a process and of all its descendants."""
    arguments: list[str] = []
    for member in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            arguments += member.cmdline()
    return arguments


@pytest.mark.long
def test_study_and_dashboard_do_not_show_a_secret(with_password: str, tmp_path: Path) -> None:
    extra = {"DATABASE": with_password, "PYTHONPATH": str(ROOT)}
    how = ["hydra.sweeper.tracking_uri='${oc.env:DATABASE}'", "hydra.sweeper.study_name=s"]
    driver = start_afresh([THEIRS, "-m", *GRID, "+x=1,2", "+sleep=1", *how], tmp_path, extra)
    arguments: list[str] = []
    while driver.poll() is None:
        arguments += words_of(psutil.Process(driver.pid))
        time.sleep(0.05)
    done = finish_line(driver, tmp_path)
    assert done.code == 0, done.said
    assert set(runs(with_password)) == {"s", "x=1", "x=2"}

    port = str(free_port())
    address = f"http://127.0.0.1:{port}"
    dashboard = start_afresh(["-m", "sweeps", "ui", "s", "--port", port], tmp_path, extra)
    process = psutil.Process(dashboard.pid)

    def answers() -> bool:
        arguments.extend(words_of(process))
        with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)
        return False

    try:
        wait_for(answers)
        assert MlflowClient(address).get_experiment_by_name("sweepyard")  # the address serves the store
    finally:
        os.killpg(dashboard.pid, signal.SIGTERM)
        shown = dashboard.communicate()
    assert "ui" in arguments and "+x=1,2" in arguments
    assert not [text for text in [*arguments, done.said, *shown] if "sesame" in text]
    assert files_with("sesame", tmp_path) == []


@some("key", ["hydra.sweeper.tracking_uri", "hydra.sweeper.storage"], 2)
@pytest.mark.parametrize("mode", [["-m"], []], ids=["study", "single run"])
def test_typed_secret_is_refused_before_any_trial(key: str, mode: list[str], tmp_path: Path) -> None:
    done = refuse([SWEEP, *mode, f"{key}=postgresql://me:sesame@host/db"], tmp_path)
    assert done.code == 2 and "sesame" not in done.said
    assert "me:***@" in done.err and len(done.err.splitlines()) == 2
    assert files_with("sesame", tmp_path) == [] and not (tmp_path / "multirun").exists()


def test_typed_password_is_replaced_by_the_environment(
    with_password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show the dashboard of single runs, because `ui` has no folder of single runs."""
    tracker = Tracker(with_password, "e", replace(summary_of(tmp_path / "s"), name="single runs"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracker.dashboard_line().endswith("password=***'")
    monkeypatch.setenv("DATABASE", with_password)
    assert tracker.dashboard_line() == "dashboard: sweepyard ui 'single runs' --uri '${oc.env:DATABASE}'"
