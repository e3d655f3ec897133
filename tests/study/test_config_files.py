from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.config_files import explain_file, keep_written
from sweeps.hydra.parts import VERSION_BASE
from tests.command_lines import run, theirs

DEFAULTS = "defaults:\n  - override hydra/sweeper: optuna\n  - override hydra/launcher: slurm\n  - _self_\nx: 1\n"
SWEEPER = "hydra:\n  sweeper:\n    "
LAUNCHER = "hydra:\n  launcher:\n    "


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (f"{SWEEPER}max_hours: 8h", "8: max_hours: 8h: it must be a number of hours.\nWrite: max_hours: 8"),
        (f"{SWEEPER}max_failure_rate: 20%", "it must be a number.\nWrite: max_failure_rate: 0.2"),
        (f"{SWEEPER}n_trials: 2k", "it must be a whole number.\nWrite: n_trials: 2000"),
        (f"{SWEEPER}n_job: 2", "8: n_job: hydra.sweeper has no such setting.\nWrite: n_jobs: 2"),
        (f"{SWEEPER}exclude: x>>1", "exclude: x>>1: it must be a list.\nWrite: exclude: ['x>>1']"),
        (f"{SWEEPER}tracking: maybe", "tracking: maybe: it must be true or false.\nWrite: tracking: true"),
        (f"{LAUNCHER}mem_gb: 8G", "mem_gb: 8G: it must be a number of GB.\nWrite: mem_gb: 8"),
        (f"{LAUNCHER}timeout_min: 2-00:00:00", "it must be a whole number of minutes.\nWrite: timeout_min: 2880"),
        ("y:\n\t- 1", "7: - 1: found character '\\t' that cannot start any token.\nYAML is indented by spaces"),
        ("y: {a: 2: 3}", "6: y: {a: 2: 3}: expected ',' or '}', but got ':'.\nClose the bracket"),
        ("y: [1, 2\nz: 3", "7: z: 3: expected ',' or ']', but got ':'.\nClose the bracket"),
        ("x: 2", "6: x: 2: found duplicate key x.\nRemove one of the two"),
        ("name: Lea: y", "6: name: Lea: y: mapping values are not allowed here.\nA text with a colon needs quotes"),
        ("y: \udcff", "config.yaml: byte 99 is not UTF-8.\nSave the file in UTF-8"),
    ],
)
def test_mistake_in_a_file_is_answered_by_its_line(tmp_path: Path, content: str, answer: str) -> None:
    (tmp_path / "config.yaml").write_text(DEFAULTS + content + "\n", errors="surrogateescape")
    with initialize_config_dir(str(tmp_path), **VERSION_BASE):
        with pytest.raises((HydraException, yaml.YAMLError, UnicodeDecodeError)) as raised:
            compose("config", return_hydra_config=True)
        message = explain_file(raised.value, GlobalHydra.instance().config_loader())
    assert message.startswith(str(tmp_path / "config.yaml"))
    assert answer in message
    assert len(message.splitlines()) == 2


@pytest.mark.parametrize(
    ("content", "setting", "value"),
    [
        (f"{SWEEPER}study_name: 2024_11_26", "hydra.sweeper.study_name", "2024_11_26"),
        (f"{SWEEPER}study_name: 1e5", "hydra.sweeper.study_name", "1e5"),
        (f"{SWEEPER}study_name: on", "hydra.sweeper.study_name", "on"),
        ("tracking:\n  experiment: 1_0", "tracking.experiment", 10),  # untyped, and of the app
        (f"{SWEEPER}n_trials: 1_0", "hydra.sweeper.n_trials", 10),
        ("n_trials: 8:30", "n_trials", 510),  # of the app
    ],
)
def test_names_of_a_file_are_what_was_written(tmp_path: Path, content: str, setting: str, value: object) -> None:
    (tmp_path / "config.yaml").write_text(DEFAULTS + content + "\n")
    with initialize_config_dir(str(tmp_path), **VERSION_BASE):
        config = compose("config", return_hydra_config=True)
    keep_written(config)
    assert OmegaConf.select(config, setting) == value


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (f"{SWEEPER}max_hours: 8:30", "max_hours: 8:30: YAML reads it as 510.\nWrite: max_hours: 8.5"),
        (f"{LAUNCHER}timeout_min: 1:30", "timeout_min: 1:30: YAML reads it as 90.\nWrite timeout_min: 90 for 1 h"),
    ],
)
def test_a_time_in_base_60_is_refused(tmp_path: Path, line: str, answer: str) -> None:
    (tmp_path / "config.yaml").write_text(f"{DEFAULTS}{line}\n")
    with initialize_config_dir(str(tmp_path), **VERSION_BASE):
        config = compose("config", return_hydra_config=True)
    with pytest.raises(UserError) as raised:
        keep_written(config)
    assert answer in str(raised.value)


@pytest.mark.parametrize("choice", ["+wide=far", "+wide=near,far"])
def test_file_of_a_foreign_app_is_answered_before_anything_starts(tmp_path: Path, choice: str) -> None:
    command = theirs("hydra/sweeper=optuna", "+x=1,2", "hydra.searchpath=[file://own]", choice)
    (tmp_path / "own" / "wide").mkdir(parents=True)
    (tmp_path / "own" / "wide" / "near.yaml").write_text("y: 1\n")
    (tmp_path / "own" / "wide" / "far.yaml").write_text("# @package _global_\nhydra:\n  sweeper:\n\tn_jobs: 2\n")
    done = run(command, tmp_path)
    assert (done.code, len(done.said.splitlines())) == (2, 2), done.said
    assert "far.yaml:4: n_jobs: 2: found character" in done.said
    assert not (tmp_path / "multirun").exists()
