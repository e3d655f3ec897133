"""The sweepers and launchers in apps whose config keys have other meanings."""

import re
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from sweeps.hydra import plain
from sweeps.hydra.foreign_settings import adopt
from sweeps.hydra.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf, read
from sweeps.record import study_file
from sweeps.record.trial_config import read_values
from tests import command_lines as lines
from tests.command_lines import APPS, some

SAME_KEYS = """
loss: {objective: score, direction: maximize}
tracking: {enabled: false, uri: "sqlite:///x.db", experiment: theirs}
gpus: 2
trainer: {preload: [json]}
"""


GRID, DEFAULT = "optuna.samplers.GridSampler", "sweeps.choose.sampler.build.DefaultSampler"


@pytest.mark.parametrize("sweeper, n_trials, sampler", [("grid", None, GRID), ("optuna", 20, DEFAULT)])
@pytest.mark.parametrize("launcher", ["local", "slurm"])
@some(
    "app_config, sweep, gpus, preload",
    [
        ("x: 1", (None, "minimize", True, None, None), 0, []),
        ("loss: 0.1\ntracking: gps\ntrainer: big", (None, "minimize", True, None, None), 0, []),
        ("nodes: 64\nranks: [a]\ntrainer: x", (None, "minimize", True, None, None), 0, []),
        ("loss: null\ntrainer: {lr: 1}", (None, "minimize", True, None, None), 0, []),
        (SAME_KEYS, ("score", "maximize", False, "sqlite:///x.db", "theirs"), 2, ["json"]),
    ],
    4,
)
def test_sweepers_and_launchers_compose_in_any_app(
    app_config: str, sweep: tuple[Any, ...], gpus: int, preload: list[str],
    sweeper: str, n_trials: int | None, sampler: str, launcher: str, tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "config.yaml").write_text(app_config)
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        groups = [f"hydra/sweeper={sweeper}", f"hydra/launcher={launcher}"]
        hydra = compose("config", groups, return_hydra_config=True).hydra
    sweeper_config, launcher_config = OmegaConf.to_object(hydra.sweeper), OmegaConf.to_object(hydra.launcher)
    assert isinstance(sweeper_config, SweeperConf)
    assert (
        sweeper_config.objective,
        sweeper_config.direction,
        sweeper_config.tracking,
        sweeper_config.tracking_uri,
        sweeper_config.experiment,
    ) == sweep
    assert (sweeper_config.n_trials, sweeper_config.sampler["_target_"]) == (n_trials, sampler)
    assert isinstance(launcher_config, LocalLauncherConf | SlurmLauncherConf)
    assert (launcher_config.gpus_per_node, launcher_config.preload) == (gpus, preload)
    assert (launcher_config.nodes, launcher_config.tasks_per_node) == (1, 1)


TYPED_APP = str(APPS / "typed_app.py")


@pytest.mark.long
@pytest.mark.parametrize("sweeper", [["hydra/sweeper=grid"], ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=2"]])
def test_config_may_hold_what_hydra_allows(tmp_path: Path, sweeper: list[str]) -> None:
    words = [TYPED_APP, "-m", *sweeper, "hydra/launcher=local", "hydra.sweeper.study_name=s", "v=RELU,GELU", "p=/a,/b"]
    for line in ([*words, "hydra.sweeper.tracking_uri=sqlite:///mlflow.db"], [TYPED_APP, "-m", "v=GELU", "p=/b"]):
        done = lines.run(line, tmp_path)
        assert done.code == 0, done.said
    assert not (tmp_path / "resolved").exists()

    study = tmp_path / "multirun" / "s"
    trials = [trial.folder for trial in lines.rows(study)]
    assert {read_values(trial)["v"] for trial in trials} <= {"RELU", "GELU"}
    values = read_values(trials[0])
    assert [values[name] for name in ("b", "acts", "paths.a", "by_act.GELU", "by_float.1.5", "by_bool.True")] == [
        "b'x\\xff'", ["RELU"], "a", 1, "b'a'", "a"
    ]  # fmt: skip
    ours = {trial: (trial / ".hydra" / "config.yaml").read_text() for trial in trials}
    (hydras,) = (folder for folder in (tmp_path / "multirun").glob("*/*/0/.hydra/config.yaml"))
    assert hydras.read_text() in ours.values() or "optuna" in sweeper[0]

    for command in (["status"], ["best"], ["report"], ["bundle"], ["resume"]):
        done = lines.sweeps(tmp_path, *command, "s")
        assert done.code == 0, done.said
    assert "Traceback" not in done.said


def test_members_of_an_enum_are_advised_by_their_names(tmp_path: Path) -> None:
    done = lines.run([TYPED_APP, "-m", *lines.GRID, "v=relu,Gelu"], tmp_path)
    assert done.err.endswith(".\nType: v=RELU,GELU\n"), done.said


@pytest.mark.long
def test_config_may_hold_objects(tmp_path: Path) -> None:
    line = [TYPED_APP, "--config-name=things", "-m", *lines.GRID, "hydra.sweeper.tracking=false", "x=1,2"]
    for _ in range(2):
        done = lines.run([*line, "hydra.sweeper.study_name=s"], tmp_path)
        assert done.code == 0, done.said
    shared = study_file.read(tmp_path / "multirun" / "s").config
    assert shared["calls"] == "[builtins.print]" and shared["kind"].endswith(".Act")
    assert read_values(tmp_path / "multirun" / "s" / "0")["calls"] == ["builtins.print"]


def test_tags_of_python_make_no_object(tmp_path: Path) -> None:
    text = (
        f"a: !!python/object/apply:os.mkdir ['{tmp_path}/made']\nb: !!python/tuple [1, 2]\nc: !!python/name:os.link ''"
    )
    assert plain.load(text) == {"a": "os.mkdir", "b": [1, 2], "c": "os.link"}
    assert not (tmp_path / "made").exists()


def compose_hydra(folder: Path, sections: str, *words: str) -> DictConfig:
    """Return Hydra's settings of an app whose file has these sections of the sweeper and the launcher."""
    (folder / "config.yaml").write_text(f"x: 1\nhydra: {sections}")
    with initialize_config_dir(str(folder), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        hydra: DictConfig = loader.load_configuration("config", [*words], RunMode.RUN).hydra
    return hydra


OPTUNA = "_target_: hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper"
JOBLIB = "_target_: hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"
SUBMITIT = "hydra_plugins.hydra_submitit_launcher.submitit_launcher"
TPE = "sampler: {_target_: optuna.samplers.TPESampler, seed: 1}"
NO_EFFECT = "of another plugin, without effect here"


@some(("sections", "words", "setting", "value", "note"), [
        (f"{{sweeper: {{{OPTUNA}, n_trials: 3}}}}", "optuna local", "sweeper.n_trials", 3,
         f"hydra.sweeper._target_: {NO_EFFECT}"),
        (f"{{sweeper: {{{OPTUNA}, storage: null, study_name: null}}}}", "optuna local", "sweeper.storage", None,
         f"hydra.sweeper._target_: {NO_EFFECT}"),
        ("{sweeper: {storage: {_target_: optuna.storages.RDBStorage, url: 'sqlite:///${x}.db'}}}", "optuna local",
         "sweeper.storage", "sqlite:///${x}.db", None),
        ("{sweeper: {storage: {_target_: optuna.storages.RDBStorage, url: a, engine_kwargs: {}}}}", "optuna local",
         "sweeper.storage", "a", f"hydra.sweeper.storage.engine_kwargs: {NO_EFFECT}"),
        ("{sweeper: {storage: {_target_: optuna.storages.InMemoryStorage}}}", "optuna local", "sweeper.storage", None,
         None),
        ("{sweeper: {max_batch_size: 4}}", "grid local", "sweeper.n_jobs", 4, None),
        ("{sweeper: {max_batch_size: 4, n_jobs: 2}}", "grid local", "sweeper.n_jobs", 2, None),
        ("{sweeper: {max_batch_size: -1}}", "grid local", "sweeper.n_jobs", None, None),
        ("{}", "grid local hydra.sweeper.max_batch_size=3", "sweeper.n_jobs", 3, None),
        ("{sweeper: {search_space: {x: {type: int, low: 1, high: 9}}}}", "optuna local", "sweeper.params",
         {"x": {"type": "int", "low": 1, "high": 9}}, None),
        ("{launcher: {submitit_folder: '${nowhere}/%j', name: '${hydra.job.num}'}}", "grid slurm", "launcher.nodes",
         "${oc.select:trainer.nodes,1}",
         f"hydra.launcher.name, hydra.launcher.submitit_folder: {NO_EFFECT}"),
        ("{launcher: {stderr_to_stdout: false, use_srun: null}}", "grid local", "launcher.timeout_min", None,
         f"hydra.launcher.stderr_to_stdout: {NO_EFFECT}"),
        ("{}", "grid slurm hydra.launcher.name=mine", "launcher.timeout_min", 60, f"hydra.launcher.name: {NO_EFFECT}"),
        (f"{{launcher: {{_target_: {SUBMITIT}.SlurmLauncher, max_num_timeout: 2}}}}", "grid slurm",
         "launcher.max_num_timeout", 2, f"hydra.launcher._target_: {NO_EFFECT}"),
        (f"{{launcher: {{_target_: {SUBMITIT}.LocalLauncher, gpus_per_node: null}}}}", "grid local",
         "launcher.gpus_per_node", None, f"hydra.launcher._target_: {NO_EFFECT}"),
        (f"{{launcher: {{{JOBLIB}, n_jobs: 4, backend: loky}}}}", "grid local", "sweeper.n_jobs", 4,
         f"hydra.launcher._target_, hydra.launcher.backend: {NO_EFFECT}"),
        ("{launcher: {n_jobs: 4, verbose: 10}}", "grid slurm", "sweeper.n_jobs", 4,
         f"hydra.launcher.verbose: {NO_EFFECT}"),
        ("{sweeper: {ax_config: {max_trials: 3}, optim: null}}", "optuna local", "sweeper.n_trials", 20,
         f"hydra.sweeper.ax_config: {NO_EFFECT}"),
        (f"{{launcher: {{{JOBLIB}, n_jobs: -1, timeout: null}}}}", "optuna local", "sweeper.n_jobs", None,
         f"hydra.launcher._target_: {NO_EFFECT}"),
        (f"{{sweeper: {{{TPE}}}}}", "optuna local", "sweeper.sampler._target_", "optuna.samplers.TPESampler", None),
        (f"{{sweeper: {{{TPE}, n_trials: 4}}}}", "grid local", "sweeper.sampler", {"_target_": GRID},
         "hydra.sweeper.sampler has no effect: the chosen grid tries each point once, up to hydra.sweeper.n_trials=4"),
        (f"{{sweeper: {{{TPE}}}}}", "optuna local hydra/sweeper/sampler=grid hydra.sweeper.n_trials=null",
         "sweeper.sampler", {"_target_": GRID},
         "hydra.sweeper.sampler has no effect: the chosen grid tries every point"),
        ("{}", "grid local hydra/sweeper/sampler=tpe", "sweeper.sampler._target_", "optuna.samplers.TPESampler", None),
        ("{sweeper: {sampler: null}}", "optuna local", "sweeper.sampler._target_", DEFAULT, None),
        (f"{{sweeper: {{sampler: {{_target_: {GRID}}}}}}}", "optuna local", "sweeper.sampler._target_", GRID, None),
        ("{sweeper: {sampler: null}}", "grid local", "sweeper.sampler", None, None),
        ("{}\nloss: ${nowhere}", "grid local", "sweeper.direction", "minimize", None),
        ("{}\ntrainer: ${oc.env:NO_SUCH_VARIABLE}", "grid slurm", "launcher.nodes", 1, None),
    ], 4)  # fmt: skip
def test_settings_of_other_plugins(
    sections: str, words: str, setting: str, value: object, note: str | None, tmp_path: Path
) -> None:
    sweeper, launcher, *typed = words.split()
    hydra = compose_hydra(tmp_path, sections, f"hydra/sweeper={sweeper}", f"hydra/launcher={launcher}", *typed)
    assert adopt(hydra) == ([note] if note else [])
    section, _, name = setting.partition(".")
    written: Any = OmegaConf.to_container(hydra[section])
    for part in name.split("."):
        written = written[part]
    assert written == value
    assert hydra.sweeper._target_ == "hydra_plugins.sweepyard.StudySweeper"
    assert hydra.launcher._target_.startswith("hydra_plugins.sweepyard.")
    read(hydra.sweeper, SweeperConf)
    read(hydra.launcher, LocalLauncherConf if launcher == "local" else SlurmLauncherConf)
    assert adopt(hydra) == []
    assert not {*hydra.launcher, *hydra.sweeper} & {"backend", "name", "max_batch_size"}


@pytest.mark.parametrize(
    ("launcher", "ours", "kind"),
    [("submitit_slurm", "slurm", SlurmLauncherConf), ("submitit_local", "local", LocalLauncherConf)],
)
def test_launchers_of_plugins_that_are_not_installed(launcher: str, ours: str, kind: type, tmp_path: Path) -> None:
    hydra = compose_hydra(tmp_path, "{}\ngpus: 2", "hydra/sweeper=grid", f"hydra/launcher={launcher}")
    note = f"hydra/launcher={launcher}: its plugin is not installed; sweepyard's hydra/launcher={ours} runs the trials"
    assert adopt(hydra) == [note]
    assert (OmegaConf.get_type(hydra.launcher), hydra.launcher.gpus_per_node) == (kind, 2)


@some(("sections", "words", "message"), [
        ("{sweeper: {_target_: hydra_plugins.hydra_ax_sweeper.ax_sweeper.AxSweeper}}", "",
         "hydra.sweeper._target_=hydra_plugins.hydra_ax_sweeper.ax_sweeper.AxSweeper: no installed plugin has this"),
        ("{sweeper: {storage: {_target_: optuna.storages.JournalStorage}}}", "",
         "hydra.sweeper.storage._target_=optuna.storages.JournalStorage: a study is mirrored to an address"),
        ("{sweeper: {params: ['x=1,2'], search_space: {x: {type: int, low: 1, high: 9}}}}", "",
         "search_space and hydra.sweeper.params are joined, and one of them is no mapping.\nWrite both as mappings"),
        ("{}", "hydra/launcher=local hydra.launcher.n_jobs=2",
         "hydra.launcher.n_jobs is no setting of .*\nType: hydra.sweeper.n_jobs"),
        ("{launcher: {verbose: 2}}", "", "hydra.launcher.verbose is no setting of "),
        ("{}", "hydra/launcher=ray",
         "hydra/launcher=ray does not exist.\nChoose one of: basic, .* pip install hydra-ray-"),
        ("{}\ndefaults: [override /hydra/launcher: rq]", "+y=1", "hydra/launcher=rq does.*\n.* pip install hydra-rq-"),
        ("{launcher: {timeout: 2}}", "", "hydra.launcher.timeout is no .*Did you mean hydra.launcher.timeout_min?"),
        (f"{{launcher: {{_target_: {SUBMITIT}.SlurmLauncher}}}}", "hydra/launcher=basic",
         "SlurmLauncher: no installed plugin has this class.\nType hydra/launcher=local"),
    ], 4)  # fmt: skip
def test_plugins_without_a_meaning_here_are_refused(sections: str, words: str, message: str, tmp_path: Path) -> None:
    done = lines.refuse(_line(sections, words or "hydra/launcher=local", tmp_path), tmp_path)
    assert done.code == 2, done.said
    assert re.search(message, done.err), done.err
    assert done.err.count("\n") <= 2


def _line(sections: str, launcher: str, folder: Path) -> list[str]:
    """Return the words of a grid of an app whose file has these sections of the sweeper and the launcher."""
    (folder / "conf" / "theirs").mkdir(parents=True)
    (folder / "conf" / "theirs" / "file.yaml").write_text(f"# @package _global_\nhydra: {sections}")
    chosen = ["-m", "hydra/sweeper=grid", *launcher.split(), "+theirs=file", "hydra.sweeper.tracking=false"]
    return [lines.THEIRS, f"--config-dir={folder}/conf", *chosen, "+x=1,2"]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            "{sweeper: {_target_: hydra_plugins.theirs.Sweeper}}",
            "hydra.sweeper._target_=hydra_plugins.theirs.Sweeper: ",
        ),
        ("{launcher: {mem_gb: 0}}", "hydra.launcher.mem_gb=0.0: it must be 0.001 or more"),
    ],
)
def test_traceback_of_a_refusal_is_shown_on_request(sections: str, message: str, tmp_path: Path) -> None:
    line = _line(sections, "hydra/launcher=local", tmp_path)
    done = lines.run(line, tmp_path, {"HYDRA_FULL_ERROR": "1"})
    assert (done.code, "Traceback" in done.err) == (2, True), done.said
    assert message in done.err.splitlines()[-2]
    done = lines.refuse(line, tmp_path)
    assert (done.code, "Traceback" in done.err) == (2, False), done.said
