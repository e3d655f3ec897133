"""A project that `sweepyard init` writes, an app without our sweeper, and packages with our names."""

from importlib.metadata import Distribution
from pathlib import Path

import pytest

from sweeps.hydra import neighbours
from tests.command_lines import ROOT, run, sweeps


def test_new_project_sweeps_and_explains_mistakes(tmp_path: Path) -> None:
    done = sweeps(tmp_path, "init", "my project")
    assert done.out == "cd 'my project' && python train.py -m lr=0.1,0.01\n"
    project = tmp_path / "my project"
    assert (project / "README.md").read_text().startswith("# my project\n")
    swept = run(["train.py", "-m", "lr=0.1,0.01", "hydra.sweeper.tracking=false"], project)
    assert swept.code == 0, swept.said
    assert "loss=0.00119631" in swept.out
    typo = run(["train.py", "-m", "hydra.sweeper.n_trial=3"], project)
    assert (typo.code, typo.err.count("\n")) == (2, 2)
    assert "Did you mean 'hydra.sweeper.n_trials'?" in typo.err


def test_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    here = f"../{tmp_path.name}"
    for name, free in (("mine.py", "mine"), ("mine", "mine2"), (f"{here}/mine", f"{here}/mine2")):
        done = sweeps(tmp_path, "init", name)
        assert (done.code, done.err) == (2, f"{name}: it exists.\nChoose a new folder: sweepyard init {free}\n")
        (tmp_path / "mine").mkdir(exist_ok=True)
    assert not list((tmp_path / "mine").iterdir())


def test_folders_of_the_user_stay(tmp_path: Path) -> None:
    (tmp_path / ".mine.new").mkdir()
    (tmp_path / ".mine.new" / "chapter.txt").touch()
    assert sweeps(tmp_path, "init", "mine").code == 0
    assert (tmp_path / ".mine.new" / "chapter.txt").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.new", "mine"]
    assert "Make it first: mkdir -p not" in sweeps(tmp_path, "init", "not/there").err


APP = """
from pathlib import Path
import hydra
from sweeps.app import answer_mistakes, run

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    return run(cfg, lambda cfg, trial: trial.report({"loss": cfg.x}, step=1) or {"loss": cfg.x})

with answer_mistakes(Path(__file__).parent / "conf"):
    main()
"""
DEFAULTS = {"without": "", "with": "defaults:\n  - override hydra/sweeper: grid\n  - _self_\n"}


@pytest.mark.parametrize("defaults", DEFAULTS)
def test_own_main_runs_with_and_without_our_sweeper(tmp_path: Path, defaults: str) -> None:
    (tmp_path / "conf").mkdir()
    no_tracking = "hydra:\n  sweeper:\n    tracking: false\n" if DEFAULTS[defaults] else ""
    (tmp_path / "conf" / "config.yaml").write_text(f"{DEFAULTS[defaults]}x: 1\n{no_tracking}")
    (tmp_path / "main.py").write_text(APP)
    done = run(["main.py", "x=2"], tmp_path)
    assert done.code == 0, done.said
    assert "loss=2" in done.out


STORED = """
from hydra.core.config_store import ConfigStore
for group, name in [("hydra/sweeper", "optuna"), ("hydra/sweeper/sampler", "tpe")]:
    node = {"_target_": "theirs", "defaults": [{"sampler": "tpe"}]}
    ConfigStore.instance().store(name, node, group, provider="optuna_sweeper")
"""


@pytest.mark.parametrize("package", ["sweeps", "hydra-optuna-sweeper"])
def test_package_with_our_name_is_line(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    neighbours.warn()
    assert capsys.readouterr().err == ""
    installed = Distribution.from_name("pytest")
    absent = neighbours.distribution
    monkeypatch.setattr(neighbours, "distribution", lambda name: installed if name == package else absent(name))
    neighbours.warn()
    line = capsys.readouterr().err
    assert line.startswith(f"note: {'the package ' if package == 'sweeps' else ''}{package}")
    assert package != "sweeps" or line.endswith(f"--force-reinstall --no-deps -e {ROOT}\n")


def test_configs_of_hydra_optuna_sweeper_do_not_hide_ours(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("x: 1\n")
    (tmp_path / "main.py").write_text(STORED + APP)
    words = ["main.py", "-m", "hydra/sweeper=optuna", "x=1,2", "hydra.sweeper.n_trials=2", "hydra.sweeper.preview=true"]
    done = run(words, tmp_path)
    assert done.code == 0, done.said
    assert "2 trials" in done.out
