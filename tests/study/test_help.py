"""What `--help` says: every key and setting with its meaning, and how many trials run at a time."""

import re
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.foreign_names import own_names
from sweeps.hydra.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf
from sweeps.launchers.local import machine
from sweeps.study.plan import help as sweeps_help
from sweeps.study.plan import topics
from sweeps.study.plan.comments import File, groups, meanings, read, read_group
from tests.command_lines import ROOT
from trainers.config.schema import Config  # also what conf/config.yaml starts from

Compose = Callable[..., DictConfig]
FOLDERS = [*((ROOT / "conf", group) for group in groups(ROOT / "conf"))]
FOLDERS += [(ROOT / "sweeps/conf", group) for group in ("cluster", *topics.OUR_GROUPS[2:])]
FILES = [(group, file) for folder, group in FOLDERS for file in read_group(folder, group)]
COMMON = [key.name for key in read(ROOT / "conf/config.yaml").keys if key.comment]


@cache
def composed(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("config", list(overrides), return_hydra_config=True)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Compose:
    """Return a function that composes sweep.py's configuration on a machine with 6 cores and 4 GPUs."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(machine, "visible_gpus", lambda: list("0123"))

    return composed


@pytest.mark.parametrize("kind", [SweeperConf, LocalLauncherConf, SlurmLauncherConf])
def test_every_setting_is_described(kind: type, config: Compose) -> None:
    described, shown = sweeps_help.descriptions(kind), topics.explain(config(), ["all"])
    assert list(described) == [name for name in own_names(kind) if name[0] != "_"]
    for name, text in described.items():
        assert text.endswith("."), name
        assert text.split()[0] in shown


@pytest.mark.parametrize(
    ("words", "topic", "lines"),
    [
        ((), "all", ["  hydra.sweeper.n_jobs=null ", "  hydra/sweeper/sampler=grid ", "  trainer.refit=[trainer"]),
        ((), "all", ["  tracking.uri=null ", "  loss.objective=val_accuracy ", "  gpus=0 ", "  ranks=1 "]),
        ((), "hydra.launcher", ["  hydra.launcher.partition=null ", "  hydra.launcher.array_parallelism=256 "]),
        (("hydra/sweeper=optuna", "gpus=2"), "all", ["sampler=default ", "n_trials=20 ", "  gpus=2 "]),
        (("tracking.uri='${oc.env:MY_DB}'",), "uri", ["  tracking.uri=${oc.env:MY_DB} "]),
        ((), "optimizer", ["Choices of optimizer, optimizer=adam:", "  ftrl  ", "  optimizer.beta_1=0.9  "]),
        ((), "units", ["  model.hidden=[128]  "]),
        ((), "save_model", ["  trainer.save_model=none  "]),
        ((), "hydra/sweeper/pruner", ["  asha  ", "  hydra/sweeper/pruner=none  "]),
        (("hydra/sweeper/pruner=asha",), "pruner", ["  hydra.sweeper.pruner.min_resource=1         steps before"]),
    ],
)
def test_topic_is_explained(config: Compose, words: tuple[str, ...], topic: str, lines: list[str]) -> None:
    shown = topics.explain(config(*words), [topic])
    assert all(line in shown for line in lines)


@pytest.mark.parametrize(("topic", "meant"), [("optimzer", "optimizer"), ("n_trails", "n_trials"), ("qqq", "all")])
def test_unknown_topic_is_refused(config: Compose, topic: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"^--help {topic}: there is no such group or key.\nType: --help {meant}$"):
        topics.explain(config(), [topic])


def test_overview_fits_two_screens(config: Compose) -> None:
    shown = topics.overview(_root_=config("target='${oc.env:HOME}'"))
    assert len(shown.splitlines()) <= 62 - 8  # because the header has the examples
    assert max(map(len, shown.splitlines())) <= 100
    assert "  target=$${oc.env:HOME}" in shown


@pytest.mark.parametrize("words", [(), ("optimizer=ftrl", "model=resnet50v2", "dataset=line", "+find=largest_batch")])
def test_every_key_has_a_meaning(config: Compose, words: tuple[str, ...]) -> None:
    composed = config(*words)
    (shown,) = (part for part in topics.explain(composed, ["all"]).split("\n\n") if part.startswith("Keys:"))
    keys = re.findall(r"^  ([\w.]+)=", shown, re.MULTILINE)
    assert len(keys) > 60 and set(keys) <= {*meanings(composed)}


def test_every_key_of_a_file_has_a_comment() -> None:
    explained = {*COMMON} | {key.name for _, file in FILES for key in file.keys if key.meaning}
    for group, file in FILES:
        section = f"{group.replace('/', '.')}."
        own = {key.name for key in file.keys if key.name.startswith(section) and not key.meaning}
        others = {key.name for key in file.keys if "." in key.name and not key.name.startswith("hydra.launcher.")}
        # in a study, values of other keys at its scales
        assert file.comment and own <= {*COMMON, "study.full", "study.small"}, file.choice
        assert group == "study" or others <= explained, file.choice


def test_page_has_every_key_and_choice() -> None:
    fill = runpy.run_path(str(ROOT / "docs/key_tables.py"))["on_page_markdown"]
    page = fill((ROOT / "docs/reference/keys.md").read_text())
    assert all(f"\n| `{name}` | `" in page for name in COMMON)
    for group, file in FILES:
        assert f"\n| `{group}={file.choice}` | {file.title[:9]}" in page
        assert group in ("study", "cluster") or all(f"\n| `{key.name}` | `" in page for key in file.keys)


def test_defaults_of_config_are_those_of_the_schema() -> None:
    config, schema = OmegaConf.load(ROOT / "conf/config.yaml"), OmegaConf.structured(Config)
    assert [name for name in COMMON if OmegaConf.select(config, name) != OmegaConf.select(schema, name)] == []


CONTENT = """\
# @package _global_
# What the file is.
# More of it.
defaults: [base, _self_]
a: 1 # on the line
b:
  # above the
  # key
  c: [x, "#y"]
  d: "1 # 2"   # of d
               # in two lines
  e: &name # of e
    - 1
    - two
  _hidden_: 3 # no key
f: ${a}
g:
h: {i: 1, # of i
  j: 2} # of h
"""


def test_comments_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(CONTENT)
    file = read(tmp_path / "g.yaml", "g")
    assert (file.title, file.comment, file.parents) == ("What the file is.", "What the file is. More of it.", ["base"])
    assert [(key.name, key.value, key.meaning) for key in file.keys] == [
        ("a", "1", "on the line"),
        ("b.c", '[x, "#y"]', "above the key"),
        ("b.d", '"1 # 2"', "of d in two lines"),
        ("b.e", "[1, two]", "of e"),
        ("f", "${a}", "follows a"),
        ("g", "null", ""),
        ("h", "{i: 1, # of i j: 2}", "of h"),
    ]
    for content in ("", "- 1", "a: [", "just text"):
        (tmp_path / "g.yaml").write_text(content)
        assert read(tmp_path / "g.yaml") == File("g", "", [], [])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "Trials at a time: 6: this machine has 6 CPU cores, and each takes 1 (hydra.launcher.cpus_per_task). For"),
        (("hydra.launcher.cpus_per_task=4",), "Trials at a time: 1: this machine has 6 CPU cores, and each takes 4"),
        (("gpus=2",), "Trials at a time: 2: this machine has 4 GPUs, and each takes 2"),
        (("gpus=8",), "gpus=8: this machine has 4 GPUs.\nType gpus=4 or less"),
        (("hydra.sweeper.n_jobs=2",), "Trials at a time: 2 (hydra.sweeper.n_jobs). There is room for 6: this"),
        (("hydra/launcher=slurm",), "Trials at a time: 256: the SLURM jobs that may be queued or running"),
        (("hydra/launcher=basic",), ""),
    ],
)
def test_how_many_run_at_a_time_and_why(config: Compose, words: tuple[str, ...], text: str) -> None:
    assert sweeps_help.at_once(composed := config(*words), 300).startswith(text)
    assert text[:6] != "Trials" or sweeps_help.at_once(composed, 1).startswith("Trials at a time: 1 (all that are")
