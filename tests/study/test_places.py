"""Where studies and their trials are: as Hydra names them, the same at each start, and each trial's own."""

import re
import shlex
from pathlib import Path

import optuna
import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from sweeps.hydra.settings import SweeperConf
from sweeps.record.definition import Definition
from sweeps.record.place import another_study, resume_line
from sweeps.record.study_file import write_or_check
from sweeps.study.plan.naming import Naming, name_study
from tests import command_lines as lines
from tests.command_lines import some

TIME = "${now:%S%f}"
APP = """
import hydra

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    return float(cfg.x)

if __name__ == "__main__":
    main()
"""


def write_config(folder: Path, **sweep: str) -> Path:
    """Write the config of an app, with these settings of hydra.sweep, and return its folder."""
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    config = {"x": 1, "logs": f"logs/{TIME}", "hydra": {"sweep": sweep}}
    (conf / "config.yaml").write_text(yaml.safe_dump(config))
    return conf


def name(folder: Path, sweep_dir: str, study_name: str | None = None) -> Naming:
    """Name a study as a start of an app with this hydra.sweep.dir does."""
    with initialize_config_dir(str(write_config(folder, dir=sweep_dir)), version_base="1.3"):
        config = compose("config", return_hydra_config=True)
    return name_study(config, SweeperConf(study_name=study_name))


def define(study: Naming, *words: str) -> Definition:
    """Return the definition of the study that its first start wrote."""
    study.folder.mkdir(parents=True)
    command = ["python", "a.py", "-m", *words]
    parameters = {"x": "1,2"}
    definition = Definition(study.name, command, str(Path.cwd()), ["o"], ["minimize"], parameters, "2", {}, {}, 2)
    write_or_check(study.folder, definition, extend=False)
    return definition


@some(
    "sweep_dir",
    [
        f"logs/{TIME}",
        f"logs/{TIME}/runs",
        f"logs/${{x}}/{TIME}/{TIME}",
        f"HERE/logs/{TIME}",
        "${logs}",
        "./logs/a_${oc.env:HOME}_${now:%S%f}",
        TIME,
    ],
    3,
)
def test_a_name_leads_to_the_folder_of_its_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep_dir: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "me")
    sweep_dir = sweep_dir.replace("HERE", str(tmp_path))
    first = name(tmp_path, sweep_dir, "mine")
    define(first)
    assert first.folder.is_relative_to(tmp_path)
    assert name(tmp_path, sweep_dir, "mine").folder == first.folder
    assert name(tmp_path, sweep_dir, "other").folder != first.folder
    assert name(tmp_path, sweep_dir).folder != first.folder  # as Hydra: another start, another folder


@pytest.mark.parametrize("sweep_dir", ["outputs/today", "outputs/${x}", "outputs/${hydra.job.name}"])
def test_a_folder_without_a_time_has_one_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep_dir: str) -> None:
    monkeypatch.chdir(tmp_path)
    first = name(tmp_path, sweep_dir)
    definition = define(first)
    assert first.name == first.folder.name
    assert name(tmp_path, sweep_dir, "other").folder == first.folder
    typed = Definition(**{**definition.__dict__, "sweep_dir": first.sweep_dir})
    word = another_study(typed, first.folder)
    assert word == f"another folder: hydra.sweep.dir=outputs/{first.name}_2"


@pytest.mark.parametrize("folder", ["a b", "a,b", "x=1,y=2", "it's", 'a "b"', "größe", "{a}[b](c)", "a:b#c", "a$b"])
def test_hydra_reads_the_folder_of_a_resume_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(tmp_path)
    study = Naming("s", tmp_path / folder, None)
    words = ["x=1,2", f"hydra.sweep.dir=logs/{TIME}", "hydra.sweeper.extend=true", "hydra.sweeper.study_name=s"]
    command = shlex.split(resume_line(define(study, *words), study.folder))
    assert command[:4] == ["python", "a.py", "-m", "x=1,2"]
    assert "hydra.sweeper.extend=true" not in command
    parsed = OverridesParser.create().parse_overrides(command[4:])
    values = [(override.key_or_group, override.value()) for override in parsed]
    assert values[-1] == ("hydra.sweep.dir", str(study.folder))
    assert [key for key, _ in values].count("hydra.sweep.dir") == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("subdir", "expected"),
    [
        ("${hydra:job.num}", ["0", "1"]),
        ("${hydra.job.num}", ["0", "1"]),
        ("${hydra:job.override_dirname}", ["x=3", "x=4"]),
        ("run/${x}_${hydra.job.num}", ["run/3_0", "run/4_1"]),
        ("same", ["same", "same_1"]),
        (".", ["0", "1"]),
    ],
)
def test_each_trial_has_the_folder_of_hydra_and_of_no_other(tmp_path: Path, subdir: str, expected: list[str]) -> None:
    (tmp_path / "a.py").write_text(APP)
    write_config(tmp_path, dir=f"logs/{TIME}", subdir=subdir)
    words = ["a.py", "-m", *lines.GRID, "hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s"]
    for values, extension in [("3,4", []), ("3,4,5", ["hydra.sweeper.extend=true"])]:
        done = lines.run([*words, f"x={values}", *extension], tmp_path)
        assert done.code == 0, done.said
    (study,) = (tmp_path / "logs").iterdir()
    assert [str(row.folder.relative_to(study)) for row in lines.rows(study)][:2] == expected
    assert len({row.folder for row in lines.rows(study)}) == 3
    assert all((row.folder / ".hydra" / "config.yaml").exists() for row in lines.rows(study))


@pytest.mark.long
@pytest.mark.parametrize("sweeper", [lines.GRID, [*lines.SEARCH, "hydra.sweeper.n_trials=2"]])
def test_a_storage_has_the_typed_name_wherever_the_study_is(tmp_path: Path, sweeper: list[str]) -> None:
    (tmp_path / "a.py").write_text(APP)
    write_config(tmp_path)
    url = f"sqlite:///{tmp_path}/studies.db"
    words = ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=a", "hydra.sweep.dir=b"]
    done = lines.run(["a.py", "-m", *sweeper, *words, f"hydra.sweeper.storage={url}", "x=1,2"], tmp_path)
    assert done.code == 0, done.said
    assert (tmp_path / "b" / "study.json").exists()
    assert {*re.findall(r"^study (\w+): ", done.out, re.MULTILINE)} == {"b"}  # by which commands find it
    assert lines.sweeps(tmp_path, "status", "b", f"--root={tmp_path}").code == 0
    study = optuna.load_study(study_name="a", storage=url)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2
