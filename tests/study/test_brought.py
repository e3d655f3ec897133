"""Swept choices that bring another launcher or sweeper, or settings of the sweeper."""

from pathlib import Path

import pytest

from tests.command_lines import GRID, Done, refuse, some

APP = """
import hydra

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    return float(cfg.x)

if __name__ == "__main__":
    main()
"""
FILES = {
    "config": "x: 1\n",
    "written": "defaults:\n  - override hydra/launcher: local\n  - override hydra/sweeper: grid\nx: 1\n",
    "half": "defaults:\n  - override hydra/sweeper: grid\nx: 1\n",
    "experiment/slurm": "# @package _global_\ndefaults:\n  - override /hydra/launcher: slurm\nx: 5\n",
    "experiment/nested": "# @package _global_\ndefaults:\n  - slurm\nx: 5\n",
    "experiment/local": "# @package _global_\ndefaults:\n  - override /hydra/launcher: local\nx: 5\n",
    "experiment/search": "# @package _global_\ndefaults:\n  - override /hydra/sweeper: optuna\nx: 5\n",
    "experiment/params": "# @package _global_\nhydra:\n  sweeper:\n    params: {x: '1,2'}\n",
    "experiment/limit": "# @package _global_\nhydra: {launcher: {timeout_min: 7}}\n",
    "experiment/plain": "# @package _global_\nx: 7\n",
}
SEARCH_WORDS = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.direction=minimize"]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    script = tmp_path / "app.py"
    script.write_text(APP)
    return script


def preview(app: Path, config: str, *words: str) -> Done:
    quiet = ["hydra.sweeper.tracking=false", "hydra.sweeper.preview=true"]
    return refuse([str(app), f"--config-name={config}", "-m", *words, *quiet], app.parent)


@some(
    "words, name",
    [
        (["+experiment=plain,slurm", "x=1,2"], "slurm"),
        (["+experiment=nested,plain"], "nested"),
        (["hydra.sweeper.params={+experiment: slurm}"], "slurm"),
        (["+experiment=slurm,plain", *SEARCH_WORDS], "slurm"),
    ],
    3,
)
def test_a_choice_that_brings_another_launcher_is_refused(app: Path, words: list[str], name: str) -> None:
    done = preview(app, "half", *words)
    assert done.code == 2
    assert done.err.splitlines() == [
        f"+experiment={name}: it sets hydra/launcher=slurm, but a study has one launcher, hydra/launcher=basic.",
        "Type hydra/launcher=basic, or hydra/launcher=slurm, for all trials",
    ]


@some(
    "config, words, name, brought",
    [
        ("config", [*GRID, "+experiment=plain,slurm"], "slurm", "hydra/launcher=slurm"),
        ("config", [*GRID, "+experiment=nested,plain"], "nested", "hydra/launcher=slurm"),
        ("written", ["+experiment=plain,slurm", "x=1,2"], "slurm", "hydra/launcher=slurm"),
        ("written", ["+experiment=plain,search"], "search", "hydra/sweeper=optuna"),
        ("config", [*GRID, "+experiment=search,plain"], "search", "hydra/sweeper=optuna"),
        ("config", [*GRID, "+experiment=plain,params"], "params", "hydra.sweeper.params"),
    ],
    6,
)
def test_choice_that_the_typed_launcher_or_sweeper_replaces_is_named(
    app: Path, config: str, words: list[str], name: str, brought: str
) -> None:
    done = preview(app, config, *words)
    section = "launcher" if "launcher" in brought else "sweeper"
    own = "local" if section == "launcher" else "grid"
    line = f"+experiment={name} sets {brought}, without effect: all trials have the {section} hydra/{section}={own}"
    assert (done.code, done.err) == (0, "")
    assert line in done.out.splitlines()
    assert done.out.count("without effect") == 1


def test_a_choice_may_set_the_launchers_settings(app: Path) -> None:
    done = preview(app, "config", *GRID, "+experiment=local,limit,plain")
    assert (done.code, done.err) == (0, "")
    assert "without effect" not in done.out
