"""The commands best, refit, resume --add, exclude, prune, archive and delete after a search, with a real MLflow."""

import os
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from sweeps import load
from sweeps.tracking.registry import register
from tests import command_lines as lines
from tests.command_lines import ROOT, rows, steps, sweeps, wait_until

APP = '''"""An app that saves an mlflow.pyfunc model in the trial's folder if keep=true."""

import hydra
import mlflow

from sweeps.trial import current_trial


class Line(mlflow.pyfunc.PythonModel):
    def __init__(self, slope):
        self.slope = slope

    def predict(self, context, model_input):
        return [self.slope * x for x in model_input]


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    if cfg.keep:
        mlflow.pyfunc.save_model(current_trial().folder / "model", python_model=Line(cfg.line.slope))
    return {"error": (cfg.line.slope - 2) ** 2 + cfg.noise, "kept": float(cfg.keep)}


if __name__ == "__main__":
    main()
'''
CONFIG = """
defaults:
  - line: flat
  - override hydra/sweeper: grid
  - override hydra/launcher: local
keep: false
noise: 0
hydra:
  sweeper:
    objective: error
    refit: [keep=true]
"""


pytestmark = pytest.mark.long  # because each test runs whole studies


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Path:
    """Return the folder of an app whose study `s` has ended."""
    folder = tmp_path_factory.mktemp("app")
    shutil.copy(migrated, folder / "mlflow.db")
    (folder / "conf" / "line").mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "conf" / "config.yaml").write_text(CONFIG)
    for name, slope in (("flat", 1), ("steep", 3)):
        (folder / "conf" / "line" / f"{name}.yaml").write_text(f"slope: {slope}\n")
    words = ["line=steep", "line.slope=1,1.75", "noise=0.5", "hydra.sweeper.study_name=s"]
    done = lines.run(["app.py", "-m", *words], folder, {"PYTHONPATH": str(ROOT)})
    assert done.code == 0, done.said
    return folder


def run_in_shell(folder: Path, line: str) -> str:
    """Run a printed command line in a shell, and return the output."""
    environment = {
        **lines.environment(),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{ROOT / '.venv-test/bin'}:{os.environ['PATH']}",
    }
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True)  # noqa: S602
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_best_prints_command_lines_of_the_trials_config(app: Path) -> None:
    results = yaml.safe_load((app / "multirun/s/optimization_results.yaml").read_text())
    assert results == {"name": "optuna", "best_params": {"line.slope": 1.75}, "best_value": 0.5625}
    output = sweeps(app, "best", "s", "--write").out.splitlines()
    assert output[0] == "# trial 1: line.slope=1.75   error=0.5625"
    assert output[1].endswith("app.py line=steep line.slope=1.75 noise=0.5")
    composed = [yaml.safe_load(run_in_shell(app, f"{output[i]} --cfg job")) for i in (1, 3)]
    assert composed[0] == composed[1] == yaml.safe_load((app / "multirun/s/1/.hydra/config.yaml").read_text())


def test_trials_in_python_have_their_machine_and_all_settings(app: Path) -> None:
    trials = load("s", app / "multirun").trials
    assert [*trials["line.slope"]] == [1, 1.75]
    assert [*trials["line"]] == ["steep"] * 2
    assert [*trials["noise"]] == [0.5] * 2
    assert [*trials["keep"]] == [False] * 2
    assert set(trials["host"]) == {socket.gethostname()}
    assert all("mlflow" not in versions and "python 3" in versions for versions in trials["versions"])


def test_best_trial_is_refit_and_registered_once(app: Path) -> None:
    done = sweeps(app, "refit", "s")
    assert done.code == 0, done.said
    assert "trial 1 trained again: error=0.5625  kept=1" in done.out
    assert "registered in MLflow: s version 1" in done.out
    uri = f"sqlite:///{app / 'mlflow.db'}"
    assert register(uri, "s", app / "multirun/s_refit_1/0", {}) == "s version 1"  # because the run is registered
    client = MlflowClient(uri)
    versions = {version.version: version for version in client.search_model_versions("name = 's'")}
    tags = versions[1].tags
    assert (tags["study"], tags["trial"], tags["found_with"]) == ("s", "1", "error=0.5625")
    assert tags["configuration"] == "line=steep line.slope=1.75 noise=0.5"
    assert tags["refit.error"] == "0.5625"
    assert "interval" not in tags
    assert load("s", app / "multirun").model().predict([2.0]) == [3.5]


def test_refused_refit_names_the_reason(tmp_path: Path) -> None:
    lines.run(lines.theirs(*lines.GRID, "+x=1,2"), tmp_path)
    done = sweeps(tmp_path, "refit", "s")
    assert done.code == 2
    assert "study s: hydra.sweeper.refit is not set" in done.err and "'hydra.sweeper.refit=[]'\n" in done.err
    (tmp_path / "multirun/s/multirun.yaml").write_text("{")
    done = sweeps(tmp_path, "refit", "s")
    assert done.code == 2
    assert "multirun.yaml cannot be read" in done.err
    assert len(done.err.splitlines()) == 2


SLOTS = "hydra.sweeper.n_jobs=2"


def test_commands_add_exclude_and_stop_trials(tmp_path: Path) -> None:
    driver = lines.start(
        lines.theirs(*lines.GRID, "+x=1,2,4,5", "+epochs=100000", "hydra.launcher.cpus_per_task=0", SLOTS), tmp_path
    )
    study = tmp_path / "multirun" / "s"
    wait_until(lambda: all(len(steps(study / number)) > 2 for number in "01"))
    assert "study s is being run by process" in sweeps(tmp_path, "delete", "s", "--yes").err
    refused = sweeps(tmp_path, "resume", "s", "--add", "y=3")
    assert (refused.code, "study s does not sweep y" in refused.err) == (2, True)
    assert "x2, which is not swept.\nDid you mean x?" in sweeps(tmp_path, "exclude", "s", "x2>4").err
    excluded = sweeps(tmp_path, "exclude", "s", "x>4")
    assert "excluded: no further trial begins with x>4" in excluded.out, excluded.said
    added = sweeps(tmp_path, "resume", "s", "--add", "x=3")
    assert "the study recorded the trial" in added.out, added.said
    for number, command in [("0", "stop"), ("1", "prune"), ("2", "prune"), ("3", "prune")]:
        wait_until(lambda number=number: len(steps(study / number)) > 1)  # type: ignore[misc]
        ended = sweeps(tmp_path, command, "s", "--trial", number)
        assert f"trial {number} ends" in ended.out, ended.said
    done = lines.finish(driver, tmp_path)
    assert done.code == 0, done.said
    assert [(row.params, str(row.state)) for row in rows(study)] == [({"+x": x}, "pruned") for x in (1, 2, 3, 4)]
    status = sweeps(tmp_path, "status", "s").out
    assert "4 of 4 trials have ended (4 pruned)" in status
    for line in ("excluded x>4 at 2", "added x=3 at 2", *(f"trial {number} was pruned by " for number in range(4))):
        assert line in status
        assert line.replace(">", "&gt;") in (study / "report.html").read_text()
    assert "exclude 'x>4': no untried point is left." in sweeps(tmp_path, "exclude", "s", "x>4").err
    late = sweeps(tmp_path, "resume", "s", "--add", "x=[1", timeout_s=60)
    assert late.code == 2
    assert not list((study / "added").glob("*.json"))


@pytest.mark.long
def test_typed_command_widens_a_running_study(tmp_path: Path) -> None:
    slow = [*lines.GRID, "hydra.launcher.cpus_per_task=0", SLOTS, "+epochs=100000"]
    driver = lines.start(lines.theirs(*slow, "+x=1,2,4"), tmp_path)
    study = tmp_path / "multirun" / "s"
    wait_until(lambda: all(len(steps(study / number)) > 2 for number in "01"))
    refused = lines.run(lines.theirs(*slow, "+x=1,2,3", "hydra.sweeper.extend=true"), tmp_path)
    assert refused.code == 2
    assert refused.err == (
        "+x=1,2,3: study s has 4 too.\nType: +x=1,2,3,4. To try it no further: sweepyard exclude s x=4\n"
    )
    same = lines.run(lines.theirs(*slow, "+x=1,2,4", "hydra.sweeper.extend=true"), tmp_path)
    assert "study s is being run by process" in same.err
    assert driver.poll() is None
    wider = lines.start(lines.theirs(*slow, "+x=1,2,4,5", "hydra.sweeper.extend=true"), tmp_path)
    left = lines.finish(driver, tmp_path)
    assert (left.code, "the next driver continues\n" in left.out) == (130, True), left.said
    wait_until(lambda: all((study / number / "attempts" / "2" / "started").exists() for number in "01"))
    status = sweeps(tmp_path, "status", "s").out
    assert "0 of 4 trials have ended (2 queued, 2 running)" in status
    assert "extended the study: +x=1,2,4,5 was 1,2,4 at 2" in status
    assert sweeps(tmp_path, "stop", "s").code == 0
    done = lines.finish(wider, tmp_path)
    assert f"widening study s: process {driver.pid} on " in done.out, done.said


def test_study_is_archived_unpacked_and_deleted(app: Path, migrated: Path, tmp_path: Path) -> None:
    shutil.copy(migrated, tmp_path / "mlflow.db")
    words = [str(app / "app.py"), "-m", "line.slope=1,2", "hydra.sweeper.study_name=gone"]
    done = lines.run(words, tmp_path, {"PYTHONPATH": str(ROOT)})
    assert done.code == 0, done.said
    unconfirmed = lines.run(["-m", "sweeps", "archive", "gone"], tmp_path, {"PYTHONPATH": str(ROOT)})
    assert unconfirmed.code == 1  # because the confirmation has no answer
    packed = sweeps(tmp_path, "archive", "gone", "--yes").out.splitlines()
    assert not (tmp_path / "multirun" / "gone").exists()
    with tarfile.open(packed[0]) as tar:
        assert "gone/0/trial.json" in tar.getnames()
    run_in_shell(tmp_path, packed[1].partition(": ")[2])
    assert [row.state for row in rows(tmp_path / "multirun" / "gone")] == ["completed"] * 2
    deleted = sweeps(tmp_path, "delete", "gone", "--yes")
    assert "and 3 runs in MLflow" in deleted.out, deleted.said
    assert [path.name for path in (tmp_path / "multirun").iterdir()] == ["archive"]
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert not client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])


def test_bundle_is_reproduced_without_the_app(app: Path, tmp_path: Path) -> None:
    done = sweeps(app, "bundle", "s", "--output", str(tmp_path / "s.zip"))
    no_git = "other files than modules and YAML are left out, because git tracks none"
    assert (done.code, done.out) == (0, f"{no_git}\n{tmp_path / 's.zip'}\n")
    (tmp_path / "elsewhere").mkdir()
    done = sweeps(tmp_path / "elsewhere", "reproduce", "../s.zip")
    assert done.code == 0, done.said
    assert "cd s_reproduced/app && python app.py -m line=steep line.slope=1,1.75 noise=0.5" in done.out
    assert "2 trials with a result before and now, 2 with the same" in done.out
    before = load("s", tmp_path / "elsewhere" / "s_reproduced" / "study").trials
    assert [*before["line"]] == ["steep"] * 2
    done = sweeps(tmp_path / "elsewhere", "reproduce", "../s.zip", "noise=0.25", "--folder", "other")
    assert "2 trials with a result before and now, 0 with the same" in done.out
    done = sweeps(tmp_path / "elsewhere", "reproduce", "../s.zip", "noise=0")
    assert done.code == 2
    assert "noise=0 was 0.5" in done.said
    assert "with the same" not in done.said
    assert done.err.endswith("choose another --folder\n")


def test_bundle_without_the_app_is_refused(app: Path, tmp_path: Path) -> None:
    shutil.copytree(app / "multirun", tmp_path / "multirun")
    (app / "app.py").rename(tmp_path / "app.py")
    try:
        done = sweeps(tmp_path, "bundle", "s")
    finally:
        (tmp_path / "app.py").rename(app / "app.py")
    assert done.code == 2
    assert "its app app.py is no longer in" in done.err
    assert not (tmp_path / "s.zip").exists()
