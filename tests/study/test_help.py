"""What `--help` says: every key and setting with its meaning, and how many trials run at a time."""

import runpy
from collections.abc import Callable
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


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Compose:
    """Return a function that composes sweep.py's configuration on a machine with 6 cores and 4 GPUs."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(machine, "visible_gpus", lambda: list("0123"))

    def made(*overrides: str) -> DictConfig:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            return compose("config", list(overrides), return_hydra_config=True)

    return made


@pytest.mark.parametrize("kind", [SweeperConf, LocalLauncherConf, SlurmLauncherConf])
def test_every_setting_is_described(kind: type, config: Compose) -> None:
    described, shown = sweeps_help.descriptions(kind), topics.explain(config(), ["all"])
    assert list(described) == [name for name in own_names(kind) if name[0] != "_"]
    for name, text in described.items():
        assert text.endswith("."), name
        assert text.split()[0] in shown


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ((), ["  hydra.sweeper.n_trials=null ", "  hydra.sweeper.n_jobs=null ", "  hydra/sweeper/sampler=grid "]),
        ((), ["  tracking.uri=null ", "  loss.objective=val_accuracy ", "  gpus=0 ", "  nodes=1 ", "  ranks=1 "]),
        (
            (),
            ["  hydra.launcher.partition=null ", "  hydra.launcher.array_parallelism=256 ", "  trainer.refit=[trainer"],
        ),
        (("hydra/sweeper=optuna", "gpus=2"), ["sampler=default ", "n_trials=20 ", "  gpus=2 "]),
        (("tracking.uri='${oc.env:MY_DB}'",), ["  tracking.uri=${oc.env:MY_DB} "]),
    ],
)
def test_setting_is_printed_as_typed(config: Compose, words: tuple[str, ...], lines: list[str]) -> None:
    shown = topics.explain(config(*words), ["all"])
    for line in lines:
        assert line in shown


def test_overview_fits_two_screens(config: Compose) -> None:
    shown = topics.overview(_root_=config("target='${oc.env:HOME}'")).splitlines()
    assert len(shown) <= 62 - 8  # because the header has the examples
    assert max(map(len, shown)) <= 100
    assert "  target=$${oc.env:HOME}" in "\n".join(shown)


@pytest.mark.parametrize("words", [(), ("optimizer=ftrl", "model=resnet50v2", "dataset=line", "+find=largest_batch")])
def test_every_key_has_a_meaning(config: Compose, words: tuple[str, ...]) -> None:
    composed = config(*words)
    (lines,) = (part.splitlines() for part in topics.explain(composed, ["all"]).split("\n\n") if part[:5] == "Keys:")
    keys = [line.split("=")[0].strip() for line in lines if line[:3].strip()][1:]
    assert len(keys) > 60 and [key for key in keys if not meanings(composed).get(key)] == []


def test_every_key_of_a_file_has_a_comment() -> None:
    common = {key.name for key in read(ROOT / "conf/config.yaml").keys if key.comment}
    folders = [(ROOT / "conf", groups(ROOT / "conf")), (ROOT / "sweeps/conf", topics.OUR_GROUPS[2:])]
    files = [(group, file) for folder, names in folders for group in names for file in read_group(folder, group)]
    explained = {key.name for _, file in files for key in file.keys if key.meaning} | common
    assert [f"{group}/{file.choice}" for group, file in files if not file.comment] == []
    for group, file in files:
        section = group.replace("/", ".")
        own = {key.name for key in file.keys if key.name.startswith(f"{section}.") and not key.meaning} - common
        others = {key.name for key in file.keys if "." in key.name} - explained
        if group == "study":  # whose sections hold values of keys, for each scale
            own -= {"study.full", "study.small"}
            others = set()
        assert not own and not {name for name in others if not name.startswith("hydra.")}, file.choice


def test_page_has_every_key_and_choice() -> None:
    fill = runpy.run_path(str(ROOT / "docs/site_hooks.py"))["on_page_markdown"]
    page = fill((ROOT / "docs/reference/keys.md").read_text())
    assert all(f"\n| `{key.name}` | `" in page for key in read(ROOT / "conf/config.yaml").keys)
    for folder, names in ((ROOT / "conf", groups(ROOT / "conf")), (ROOT / "sweeps/conf", topics.OUR_GROUPS[2:])):
        for group in names:
            for file in read_group(folder, group):
                assert f"\n| `{group}={file.choice}` | {file.title[:9]}" in page
                assert group == "study" or all(f"\n| `{key.name}` | `" in page for key in file.keys)


def test_defaults_of_config_are_those_of_the_schema() -> None:
    written = OmegaConf.load(ROOT / "conf/config.yaml")
    schema = OmegaConf.structured(Config)
    values = {key.name: OmegaConf.select(written, key.name) for key in read(ROOT / "conf/config.yaml").keys}
    assert {name: OmegaConf.select(schema, name) for name in values} == values


@pytest.mark.parametrize(
    ("topic", "lines"),
    [
        ("optimizer", ["Choices of optimizer, optimizer=adam:", "  ftrl  ", "  optimizer.beta_1=0.9  "]),
        ("save_model", ["  trainer.save_model=none  "]),
        ("hydra/sweeper/pruner", ["  asha  ", "  hydra/sweeper/pruner=none  "]),
        ("hydra.sweeper.n_trials", ["  hydra.sweeper.n_trials=null  "]),
        ("dataset.augment", ["  dataset.augment.flip=null  "]),
    ],
)
def test_help_on_a_topic(config: Compose, topic: str, lines: list[str]) -> None:
    shown = topics.explain(config(), [topic])
    assert len(shown) < 8_000 and all(line in shown for line in lines)


@pytest.mark.parametrize(("topic", "meant"), [("optimzer", "optimizer"), ("n_trails", "n_trials"), ("qqq", "all")])
def test_unknown_topic_is_refused(config: Compose, topic: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"^--help {topic}: there is no such group or key.\nType: --help {meant}$"):
        topics.explain(config(), [topic])


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
    assert sweeps_help.at_once(config(*words)).startswith(text)
