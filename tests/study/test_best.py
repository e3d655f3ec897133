"""The command line and the configuration that train a trial again."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import open_dict

from sweeps.after import best, refit
from sweeps.base.errors import UserError
from sweeps.record.definition import Definition
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.show.terminal import solutions
from sweeps.trial.job import Outcome, Point, State
from tests.command_lines import SWEEP, environment
from tests.trainers.config.composing import CONF, check


def definition(*command: str, parameters: tuple[str, ...] = ("lr",)) -> Definition:
    swept = dict.fromkeys(parameters, "1,2")
    return Definition("s", [*command], str(Path.cwd()), ["objective"], ["minimize"], swept, "2", {}, {}, 2)


def trial(folder: Path, number: int = 0, *objective: float, **params: Any) -> TrialRecord:
    end = [Outcome(State.COMPLETED, objective=list(objective))] if objective else []
    return TrialRecord(number, params, State.COMPLETED if objective else State.FAILED, folder / str(number), end)


def composed(
    row: TrialRecord, *overrides: str, launcher: str = "LocalLauncher", nodes: int = 1, choices: Any = ()
) -> TrialRecord:
    """Write the files that Hydra writes for the trial."""
    (row.folder / ".hydra").mkdir(parents=True)
    (row.folder / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(list(overrides)))
    hydra = {"launcher": {"_target_": f"x.{launcher}", "nodes": nodes}, "runtime": {"choices": dict(choices)}}
    (row.folder / ".hydra" / "hydra.yaml").write_text(yaml.safe_dump({"hydra": hydra}))
    return row


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("python sweep.py -m lr=1,2", "python sweep.py lr=1"),
        ("python sweep.py --multirun hydra/sweeper=optuna hydra.sweeper.n_trials=2 lr=1,2", "python sweep.py lr=1"),
        ("python -X dev -u sweep.py -m lr=1,2", "python -X dev -u sweep.py lr=1"),
        ("python -m my.app -m lr=1,2", "python -m my.app lr=1"),
        ("python sweep.py -m -cd c --config-name=x lr=1,2", "python sweep.py -cd c --config-name=x lr=1"),
        ("python sweep.py lr=1,2 +find=x", "python sweep.py hydra.mode=RUN lr=1"),
        (
            "python sweep.py -m hydra.launcher.mem_gb=8 hydra.sweeper.objective=loss hydra.sweep.dir=x lr=1,2",
            "python sweep.py hydra.launcher.mem_gb=8 hydra.sweeper.objective=loss lr=1",
        ),
        ("python sweep.py -m hydra.sweeper.max_attempts=5 lr=1,2", "python sweep.py lr=1"),  # refused of a single run
        (
            "python a.py -m hydra/sweeper=optuna hydra.sweeper.tracking=false lr=1,2",
            "python a.py hydra/sweeper=grid hydra.mode=RUN hydra.sweeper.tracking=false lr=1",
        ),
    ],
)  # fmt: skip
def test_command_that_trains_a_trial_again(tmp_path: Path, typed: str, expected: str) -> None:
    row = composed(trial(tmp_path, lr=1), "lr=1")
    assert " ".join(best.command(definition(*typed.split()), row)) == expected


@pytest.mark.parametrize("where", [{"launcher": "SlurmLauncher"}, {"nodes": 2}])
def test_refit_names_the_launcher_of_several_ranks(tmp_path: Path, where: dict[str, Any]) -> None:
    row = composed(trial(tmp_path, lr=1), "lr=1", **where)
    words = best.command(definition("python", "sweep.py", "-m", "hydra/launcher=slurm", "lr=1,2"), row)
    assert words == ["python", "sweep.py", "-m", "hydra/sweeper=grid", "hydra/launcher=slurm", "lr=1"]


@pytest.mark.parametrize("content", [None, "", "{", "[1, 2]", "\x00", "text"])
def test_params_of_a_corrupt_trial_come_from_its_overrides(tmp_path: Path, content: str | None) -> None:
    row = trial(tmp_path, **{"lr": 0.1, "model.hidden": "[64]", "+x": "a b"})
    if content is not None:
        composed(row)
        for file in (row.folder / ".hydra").iterdir():
            file.write_text(content)
    defined = definition("python", "sweep.py", "-m", "epochs=3", "lr=0.1,1", parameters=("lr", "model.hidden", "+x"))
    assert best.overrides_of(defined, row)[:2] == ["epochs=3", "lr=0.1"]
    assert best.command(defined, row)[:2] == ["python", "sweep.py"]
    with pytest.raises(UserError, match=r"trial 0 cannot be written as experiment/best.yaml"):
        best.write_experiment(defined, row, tmp_path)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["lr=0.1", "model.hidden=[64,32]"], {"lr": 0.1, "model": {"hidden": [64, 32]}, "defaults": ["_self_"]}),
        (["optimizer=adam", "+find=x"], {"defaults": [{"/find": "x"}, "_self_", {"override /optimizer": "adam"}]}),
        (["~optimizer", "++seed=3"], {"seed": 3, "defaults": ["_self_", {"override /optimizer": None}]}),
        (["name='1e-3'", "lr=${seed}"], {"name": "1e-3", "lr": "${seed}", "defaults": ["_self_"]}),
        (["hydra.launcher.mem_gb=2"], {"hydra": {"launcher": {"mem_gb": 2}}, "defaults": ["_self_"]}),
    ],
)
def test_overrides_as_a_configuration(overrides: list[str], expected: dict[str, Any]) -> None:
    assert yaml.safe_load(best.experiment(overrides, {"optimizer": "sgd", "find": None})) == expected


def test_a_key_that_is_removed_has_no_file(tmp_path: Path) -> None:
    row = composed(trial(tmp_path, lr=1), "~seed")
    with pytest.raises(UserError, match="~seed removes a key"):
        best.write_experiment(definition("python", "sweep.py", "-m"), row, tmp_path)


def test_a_trial_without_a_result_is_refused(tmp_path: Path) -> None:
    rows = [trial(tmp_path, 0), trial(tmp_path, 1, 2.0), trial(tmp_path, 2, 1.0)]
    summary = StudySnapshot("s", tmp_path, ("objective",), ("minimize",), rows)
    assert best.choose_trial(summary, None).number == 2
    assert best.choose_trial(summary, 1).number == 1
    with pytest.raises(UserError, match=r"no result of trial 0.\nChoose a trial .* best first: 2, 1"):
        best.choose_trial(summary, 0)
    lacking = TrialRecord(0, {}, State.COMPLETED, tmp_path, (Outcome(State.COMPLETED, metrics={"acc": 0.5}),))
    with pytest.raises(
        UserError, match=r"return acc, and not objective.\nType .* with hydra.sweeper.objective=acc hydra"
    ):
        best.choose_trial(replace(summary, rows=[lacking]), None)


CASES: list[tuple[tuple[str, ...], list[TrialRecord], dict[str, Any]]] = [
    (
        ("minimize",),
        [trial(Path(), 0, 2.0, lr=1), trial(Path(), 1, 1.0, lr=2.5, **{"+m.a": "x"}), trial(Path(), 2)],
        {"name": "optuna", "best_params": {"lr": 2.5, "+m.a": "x"}, "best_value": 1.0},
    ),
    (
        ("minimize", "maximize"),
        [trial(Path(), i, *values, x=i) for i, values in enumerate([(1.0, 1.0), (2.0, 2.0), (2.0, 1.0), (1.0, 1.0)])],
        {
            "name": "optuna",
            "solutions": [
                {"params": {"x": 0}, "values": [1.0, 1.0]},
                {"params": {"x": 3}, "values": [1.0, 1.0]},
                {"params": {"x": 1}, "values": [2.0, 2.0]},
            ],
        },
    ),
]


@pytest.mark.parametrize(("directions", "rows", "expected"), CASES, ids=["one objective", "several"])
def test_results_for_scripts(
    tmp_path: Path, directions: tuple[str, ...], rows: list[TrialRecord], expected: dict[str, Any]
) -> None:
    summary = StudySnapshot("s", tmp_path, tuple(f"o{i}" for i in range(len(directions))), directions, rows)
    solutions.write(summary)
    assert yaml.safe_load((tmp_path / solutions.FILE).read_text()) == expected


def test_no_results_no_file(tmp_path: Path) -> None:
    solutions.write(StudySnapshot("s", tmp_path, ("o",), ("minimize",), [trial(tmp_path, 0)]))
    assert not (tmp_path / solutions.FILE).exists()


def test_file_and_overrides_compose_equal_configurations(tmp_path: Path) -> None:
    words = ["study=optimizers", "optimizer=momentum", "optimizer.momentum=0.99", "lr=0.02", "model.hidden=[7]"]
    choices: Point = dict.fromkeys(["study", "optimizer", "model", "lr_schedule"])
    row = composed(trial(tmp_path, 3, 1.0, lr=1), *words, "lr_schedule=cosine", choices=choices)
    defined = definition(sys.executable, SWEEP, "-m", "study=optimizers", "hydra.launcher.mem_gb=2")
    ways = best.command(defined, row), best.write_experiment(defined, row, tmp_path)
    running = [
        subprocess.Popen([*way, "--cfg", "job"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
        for way in ways
    ]
    first, other = (process.communicate()[0] for process in running)
    assert first == other
    assert yaml.safe_load(first)["optimizer"]["momentum"] == 0.99


CONFIGS = {
    "optimizer/sgd.yaml": "{name: sgd, lr: 1}",
    "optimizer/adam.yaml": "{name: adam, lr: 2}",
    "find/a.yaml": "kind: a",
}


@pytest.mark.parametrize(
    ("defaults", "overrides", "expected"),
    [
        ("[_self_, optimizer: sgd]", "optimizer=adam lr=2", "+experiment=best"),
        ("[_self_, optimizer: sgd]", "optimizer=adam +experiment=theirs lr=2", "+experiment=best"),
        ("[_self_, optimizer: sgd, experiment: null]", "optimizer=adam lr=2", "experiment=best optimizer=adam lr=2"),
        ("[_self_, optimizer: sgd, experiment: theirs]", "lr=2", "experiment=best lr=2"),
        ("[_self_, optimizer: sgd, experiment: null]", "experiment=theirs lr=2", "experiment=best lr=2"),
        ("[experiment: null, optimizer: sgd, _self_]", "optimizer=adam lr=2", "experiment=best optimizer=adam lr=2"),
        ("[optimizer: sgd, experiment: theirs, _self_]", "+find=a +optimizer.b=3", "experiment=best ++optimizer.b=3"),
        ("[experiment: theirs, optimizer: sgd, _self_]", "++new.key=3 lr=2", "experiment=best ++new.key=3 lr=2"),
    ],
)  # fmt: skip
def test_an_experiment_in_any_app_composes_the_trials_config(
    tmp_path: Path, defaults: str, overrides: str, expected: str
) -> None:
    experiment = "# @package _global_\nlr: 7\ntheirs: true"
    files = {**CONFIGS, "experiment/theirs.yaml": experiment, "config.yaml": f"defaults: {defaults}\nlr: 1"}
    conf = tmp_path / "conf"
    for name, content in files.items():
        (conf / name).parent.mkdir(parents=True, exist_ok=True)
        (conf / name).write_text(content)
    with initialize_config_dir(str(conf), version_base="1.3"):
        direct = compose("config", overrides.split(), return_hydra_config=True)
        row = composed(trial(tmp_path, 0, 1.0), *overrides.split(), choices=direct.hydra.runtime.choices)
        words = best.write_experiment(definition("python", "a.py", "-m"), row, tmp_path)
        assert words == ["python", "a.py", "--config-dir", str(tmp_path), *expected.split()]
        from_file = compose("config", [*expected.split(), f"hydra.searchpath=['file://{tmp_path}']"])
    with open_dict(direct):
        del direct["hydra"]
    assert from_file == direct


def test_an_experiment_named_best_of_the_app_is_no_trial(tmp_path: Path) -> None:
    row = composed(trial(tmp_path, lr=1), "lr=1")
    file = row.folder / ".hydra" / "hydra.yaml"
    written = yaml.safe_load(file.read_text())
    written["hydra"]["runtime"]["config_sources"] = [{"path": str(tmp_path), "provider": "main", "schema": "file"}]
    file.write_text(yaml.safe_dump(written))
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "best.yaml").write_text("lr: 9")
    study = tmp_path / "s"
    with pytest.raises(UserError, match=f"the app has its own {tmp_path}/experiment/best.yaml.\nRename that file"):
        best.write_experiment(definition("python", "a.py", "-m"), row, study)
    assert not study.exists()


SETTINGS = """
x: {refit: [keep=true, lr=3]}
hydra: {sweeper: {refit: "${oc.select:x.refit,null}", refit_all_data: "${oc.select:x.more,null}", params: "${gone}"}}
"""


@pytest.mark.parametrize("root", ["multirun", "theirs"])
def test_a_refit_is_a_study_of_one_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.chdir(tmp_path)
    study = tmp_path / root / "s"
    row = composed(trial(study, 4, 1.0, lr=1), "lr=1", "+seed=2")
    (study / "multirun.yaml").write_text(SETTINGS)
    defined = definition("python", "a.py", "-m", "hydra/sweeper=optuna", "hydra.sweeper.tracking=false", "lr=1,2")
    snapshot = StudySnapshot("s", study, ("o",), ("minimize",), [row])
    words, folder = refit.command(defined, snapshot, row, all_data=False)
    assert folder == tmp_path / root / "s_refit_4"
    where = ["hydra.sweeper.study_name=s_refit_4", *([f"hydra.sweep.dir={folder}"] if root == "theirs" else [])]
    mode = ["-m", "hydra/sweeper=grid", "hydra.sweeper.tracking=false"]
    assert words == ["python", "a.py", *mode, *where, "lr=3", "+seed=2", "keep=true"]
    with pytest.raises(
        UserError, match=r"refit_all_data is not .*\n.* 'hydra.sweeper.refit=\[keep\\=true,lr\\=3\]' .*all_data=\[\]'"
    ):
        refit.command(defined, snapshot, row, all_data=True)
    (study / "multirun.yaml").write_text(SETTINGS.replace("refit: [keep=true, lr=3]", "refit: [a=1], more: [b=2]"))
    words, folder = refit.command(defined, snapshot, row, all_data=True)
    assert (folder.name, words[-2:]) == ("s_refit_4_all", ["a=1", "b=2"])
    assert folder in refit.folders(study, row)


@pytest.mark.parametrize("content", ["", "{", "x: 1", "hydra: {sweeper: {refit: 3}}", "\x00"])
def test_settings_that_cannot_be_read(tmp_path: Path, content: str) -> None:
    row = trial(tmp_path, 0, 1.0, lr=1)
    (tmp_path / "multirun.yaml").write_text(content)
    with pytest.raises(UserError) as error:
        refit.command(
            definition("python", "a.py"), StudySnapshot("s", tmp_path, ("o",), ("minimize",), [row]), row, False
        )
    assert len(str(error.value).splitlines()) == 2


def test_several_best_trials_leave_the_choice_to_a_person(tmp_path: Path) -> None:
    rows = [trial(tmp_path, i, *objectives) for i, objectives in enumerate([(1.0, 1.0), (2.0, 2.0), (3.0, 1.0)])]
    summary = StudySnapshot("s", tmp_path, ("a", "b"), ("minimize", "maximize"), rows)
    with pytest.raises(UserError, match=r"has several best trials: 0, 1.\nChoose one with --trial"):
        refit.choose_trial(summary, None)
    assert refit.choose_trial(summary, 2).number == 2


@pytest.mark.parametrize("dataset", ["digits", "line", "points"])
@pytest.mark.parametrize("kind", ["refit", "refit_all_data"])
def test_app_accepts_its_refit_settings(dataset: str, kind: str) -> None:
    check(f"dataset={dataset}", *yaml.safe_load((CONF / "trainer" / "keras.yaml").read_text())[kind])
