"""The service for a group in real containers, shared by the tests: the last tests read the data of the first tests."""

import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from tests.command_lines import ROOT, THEIRS, finish, start, wait_until
from tests.docker.service import Service, children, environment, podman

pytestmark = [pytest.mark.service, pytest.mark.timeout(1200)]

SEARCH = "/api/2.0/mlflow/experiments/search?max_results=9"
CREATE = "/api/2.0/mlflow/experiments/create"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"


def study(name: str, *more: str, uri: str, experiment: str) -> list[str]:
    settings = [f"hydra.sweeper.study_name={name}", f"hydra.sweeper.tracking_uri={uri}"]
    settings += [f"hydra.sweeper.experiment={experiment}", "hydra.sweeper.objective=objective"]
    return [THEIRS, "-m", "hydra/sweeper=grid", "hydra/launcher=local", *settings, *more]


def test_secrets_are_created_once_for_one_reader(service: Service) -> None:
    files = [service.secrets / "database_password", service.secrets / "admin_password"]
    before = [file.read_text() for file in files]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    assert len(set(before)) == 2
    assert all(len(text.strip()) == 32 for text in before)
    service.do("up")
    assert [file.read_text() for file in files] == before


@pytest.mark.parametrize(
    ("image", "secret"), [("postgres:15", "database_password"), ("mlflow:3.17", "database_password")]
)
def test_container_without_secrets_does_not_start(images: None, image: str, secret: str) -> None:
    done = podman("run", "--rm", f"localhost/sweepyard-{image}", check=False)
    assert f"/run/secrets/{secret}" in done.splitlines()[-1]


@pytest.mark.parametrize(
    ("path", "who", "status"),
    [
        (SEARCH, None, 401),
        ("/", None, 401),
        (ARTIFACTS + "?path=1", None, 401),
        (SEARCH, ("alice", "wrong-password"), 401),
        (SEARCH, ("nobody", "wrong-password"), 401),
        (SEARCH, ("admin", "password1234"), 401),  # because MLflow had this default password
        (SEARCH, ("admin", ""), 401),
        (SEARCH, "alice", 200),
        (SEARCH, "admin", 200),
        ("/", "alice", 200),
        ("/health", None, 200),
    ],
)
def test_request_without_a_valid_password_is_refused(service: Service, path: str, who: Any, status: int) -> None:
    service.user("alice")
    if isinstance(who, tuple):
        assert service.ask("GET", path, headers=basic(*who)).status_code == status
    else:
        assert service.ask("GET", path, who).status_code == status


def basic(name: str, password: str) -> dict[str, str]:
    from requests.auth import _basic_auth_str

    return {"Authorization": _basic_auth_str(name, password)}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "mlflow:5000"}, 200),
        ({}, 200),
    ],
)
def test_request_from_another_web_page_is_refused(service: Service, headers: dict[str, str], status: int) -> None:
    name = f"page {sorted(headers.items())}"
    answer = service.ask("POST", CREATE, "alice", json={"name": name}, headers=headers)
    assert answer.status_code == status, answer.text
    assert (name in {experiment.name for experiment in service.client("admin").search_experiments()}) == (status == 200)


def test_old_password_is_refused(service: Service) -> None:
    old = service.user("dora")
    assert service.ask("GET", SEARCH, "dora").status_code == 200
    del service.users["dora"]
    assert service.user("dora") != old
    login = old["MLFLOW_TRACKING_USERNAME"], old["MLFLOW_TRACKING_PASSWORD"]
    assert service.ask("GET", SEARCH, headers=basic(*login)).status_code == 401
    assert service.ask("GET", SEARCH, "dora").status_code == 200
    service.do("remove", "dora")
    assert service.ask("GET", SEARCH, "dora").status_code == 401


def test_reader_needs_permission_to_write_into_an_experiment(service: Service, tmp_path: Path) -> None:
    alice = service.client("alice")
    experiment = alice.create_experiment("of alice")
    run = alice.create_run(experiment).info.run_id
    file = tmp_path / "note.txt"
    file.write_text("hers")
    alice.log_artifact(run, str(file))

    bob = service.client("bob")
    assert bob.get_run(run).info.run_id == run
    writes: dict[str, Any] = {
        "run": lambda: bob.create_run(experiment),
        "metric": lambda: bob.log_metric(run, "loss", 1.0),
        "tag": lambda: bob.set_tag(run, "mine", "yes"),
        "tag of the experiment": lambda: bob.set_experiment_tag(experiment, "mine", "yes"),
        "delete": lambda: bob.delete_run(run),
        "delete all": lambda: bob.delete_experiment(experiment),
    }
    for name, write in writes.items():
        with pytest.raises(MlflowException) as refused:
            write()
        assert refused.value.error_code == "PERMISSION_DENIED", name
    upload = service.ask("PUT", f"{ARTIFACTS}/{experiment}/{run}/artifacts/note.txt", "bob", data=b"his")
    assert upload.status_code == 403
    assert service.ask("GET", f"{ARTIFACTS}/{experiment}/{run}/artifacts/note.txt", "bob").text == "hers"

    service.do("grant", "bob", "of alice", "EDIT")
    service.client("bob").log_metric(run, "loss", 1.0)
    assert service.client("alice").get_run(run).data.metrics == {"loss": 1.0}


def test_server_killed_during_a_sweep_loses_no_metric(service: Service, tmp_path: Path) -> None:
    values = "+x=" + ",".join(str(x) for x in range(8))
    line = study("killed", values, "+epochs=20", "+sleep=0.1", uri=service.uri, experiment="host")
    driver = start(line, tmp_path, environment(service, "alice"))
    wait_until(lambda: any(run.data.metrics for run in children(service, "alice", "killed")))
    service.kill("mlflow")
    service.kill("database")
    time.sleep(2)
    service.do("up")
    done = finish(driver, tmp_path)
    assert done.code == 0, done.said

    client = service.client("alice")
    runs = {run.data.params["x"]: run for run in children(service, "alice", "killed")}
    assert sorted(runs, key=int) == [str(x) for x in range(8)]
    for x, run in runs.items():
        history = client.get_metric_history(run.info.run_id, "objective")
        assert [(m.step, m.value) for m in history] == [(step, float(x)) for step in range(20)]
        assert (run.info.status, run.data.tags["state"]) == ("FINISHED", "completed")
        assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"config.yaml", "log"}
        assert run.data.metrics["best/objective"] == float(x)


def test_trainer_image_trains_with_the_service(service: Service) -> None:
    service.user("carol")
    choices = ["optimizer=adam,sgd", "lr=0.001,0.01", "batch_size=32,64", "epochs=1"]
    settings = ["tracking.experiment=image", "hydra.sweeper.study_name=image"]
    output = service.do("trainer", "-m", *choices, *settings, SERVICE_USER="carol")
    assert "8 completed" in output, output
    runs = children(service, "carol", "image")
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len({(r.data.params["optimizer"], r.data.params["lr"], r.data.params["batch_size"]) for r in runs}) == 8
    assert max(run.data.metrics["best/val_accuracy"] for run in runs) > 0.5


def test_secrets_appear_in_no_log_image_or_process(service: Service) -> None:
    hidden = [(service.secrets / name).read_text().strip() for name in ("database_password", "admin_password")]
    hidden += [service.login(name)[1] for name in ("alice", "bob", "carol")]
    shown = {"logs": service.do("compose", "logs")}
    for name, image in (("database", "postgres:15"), ("mlflow", "mlflow:3.17"), ("trainer", "trainer:latest")):
        shown[f"{name} history"] = podman("history", "--no-trunc", f"localhost/sweepyard-{image}")
        shown[f"{name} image"] = podman("inspect", f"localhost/sweepyard-{image}")
    everything = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; printenv"
    for name in ("database", "mlflow"):
        container = service.container(name)
        shown[f"{name} container"] = podman("inspect", container)
        shown[f"{name} processes"] = podman("exec", container, "sh", "-c", everything, check=False)
    for place, text in shown.items():
        assert len(text) > 200, place
        assert not [secret for secret in hidden if secret in text], place
    assert "serve.py" in shown["mlflow processes"]
    assert "POOL_SIZE" in shown["mlflow processes"]
    assert "pip install" in shown["mlflow history"]
    config = json.loads(shown["mlflow container"])[0]["Config"]
    assert not [line for line in config["Env"] if "PASSWORD" in line]


def test_backup_is_restored_into_new_volumes(service: Service, fresh: Service, tmp_path: Path) -> None:
    before = service.everything(tmp_path / "before")
    assert len(before) >= 18
    backup = tmp_path / "backup"
    service.do("backup", str(backup))
    assert stat.S_IMODE((backup / "database.sql").stat().st_mode) == 0o600

    done = service.attempt("restore", str(backup))
    assert done.returncode == 2
    assert "has runs" in done.stderr

    cut = tmp_path / "cut"
    cut.mkdir()
    for name, share in (("database.sql", 0.5), ("artifacts.tar", 1.0)):
        content = (backup / name).read_bytes()
        (cut / name).write_bytes(content[: int(share * len(content))])
    assert "is cut" in fresh.attempt("restore", str(cut)).stderr

    fresh.do("restore", str(backup))
    assert fresh.everything(tmp_path / "after") == before
    fresh.users = service.users  # because the users are in the backup too
    assert fresh.ask("GET", SEARCH, "alice").status_code == 200
    run = next(run for run, content in before.items() if content["files"])
    with pytest.raises(MlflowException):
        fresh.client("bob").set_tag(run, "mine", "yes")
    fresh.client("alice").create_run(fresh.client("alice").get_experiment_by_name("host").experiment_id)


def test_schema_of_previous_mlflow_is_upgraded(older: Service, tmp_path: Path) -> None:
    older.do("up")
    version = older.ask("GET", "/version", "admin").text
    assert version.startswith("3.16."), version
    client = older.client("alice")
    experiment = client.create_experiment("old")
    run = client.create_run(experiment, tags={"who": "alice"}).info.run_id
    for step in range(5):
        client.log_metric(run, "loss", 1.0 / (step + 1), step=step)
    client.log_text(run, "kept", "note.txt")
    before = older.everything(tmp_path / "before")

    older.version = "3.17"
    older.do("upgrade", str(tmp_path / "backup"))
    assert older.ask("GET", "/version", "admin").text.startswith("3.17.")
    assert older.everything(tmp_path / "after") == before
    older.client("alice").log_metric(run, "loss", 0.1, step=5)
    assert older.ask("GET", SEARCH).status_code == 401


def test_sixteen_simultaneous_drivers_lose_no_run(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import many_drivers  # type: ignore[import-not-found]

    service.client("alice")  # because the drivers' environment names this user
    ended = many_drivers.at_once(service.uri, 16, tmp_path)
    assert many_drivers.lacking(service.uri, ended) == []
