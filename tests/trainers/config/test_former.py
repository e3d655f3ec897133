"""The names of older studies in conf/, which then contained Python."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.utils import get_object

from tests.command_lines import ROOT, SWEEP, rows, run
from tests.trainers.config.composing import check, compose
from trainers import schedules
from trainers.config.targets import FORMER

MINE = """
from hydra.utils import get_method, instantiate
def train(cfg, trial):
    rate = get_method(cfg.lr_schedule._target_)
    size = instantiate(cfg.batch_schedule, 4, 3, _convert_="all", increase=1, maximum=None)
    return {"val_accuracy": size, "moved": float(rate.__module__ == "trainers.schedules")}
"""
FORMERLY = [
    "trainer=own",
    "trainer._target_=mine.train",
    "trainer.preload=[conf.schema,sweeps.app]",
    "lr_schedule._target_=conf.plan.constant",
    "batch_schedule._target_=conf.plan.linear_batch",
    "+batch_schedule.increase=1",
    "+batch_schedule.maximum=null",
    "tracking=none",
]


@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_former_name_gives_the_same_module_in_any_order(former: str, now: str) -> None:
    for first, second in ((former, now), (now, former)):
        code = f"import {first} as a, {second} as b, sys; sys.exit(a is not b)"
        assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0, (first, second)


def test_each_form_of_a_former_name_is_resolved() -> None:
    from conf.checks.largest_batch import TooLarge  # type: ignore[import-not-found]

    from conf import plan  # type: ignore[attr-defined]

    assert plan is schedules
    assert get_object("conf.plan.cosine") is schedules.cosine
    assert get_object("conf.checks.largest_batch.TooLarge") is TooLarge
    assert TooLarge.__module__ == "trainers.config.largest_batch"
    with pytest.raises(ModuleNotFoundError, match=r"conf\.nothing"):
        __import__("conf.nothing")


def test_former_schedule_works_as_its_successor() -> None:
    former = ["lr_schedule._target_=conf.plan.constant", "batch_schedule._target_=conf.plan.constant_batch"]
    assert schedules.is_constant(check(*former))
    grows = ["lr_schedule=cosine", "lr_schedule._target_=conf.plan.cosine", "batch_schedule=doubling"]
    cfg = compose(*grows, "batch_schedule._target_=conf.plan.doubling_batch")
    now = compose("lr_schedule=cosine", "batch_schedule=doubling")
    planned = schedules.plan(cfg, 1250)
    assert planned == schedules.plan(now, 1250)
    assert list(schedules.lr_factors(cfg, planned)) == list(schedules.lr_factors(now, planned))
    with pytest.raises(ValueError, match=r"conf\.plan\.cosin: there is no 'cosin' in trainers\.schedules; did"):
        check("lr_schedule._target_=conf.plan.cosin")
    with pytest.raises(ValueError, match=r"batch_schedule=doubling reaches batch_size=2048 in epoch 7"):
        check("batch_schedule=doubling", "batch_schedule._target_=conf.plan.doubling_batch", "epochs=9")


@pytest.mark.long
def test_trial_of_an_older_study_runs_in_a_fork(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    command = [SWEEP, "-m", *FORMERLY, "hydra.sweeper.study_name=older"]
    done = run([*command, "seed=1,2"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.said
    ends = [json.loads(file.read_text()) for file in done.study().glob("*/attempts/1/end.json")]
    assert [end["metrics"] for end in ends] == [{"val_accuracy": 7.0, "moved": 1.0}] * 2

    today = [word.replace("conf.plan", "trainers.schedules") for word in command if "preload" not in word]
    done = run([*today, "seed=1,2,3", "hydra.sweeper.extend=true"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.said
    assert [row.state for row in rows(done.study())] == ["completed"] * 3


def test_the_copy_that_a_study_has_of_the_former_code_comes_first(tmp_path: Path) -> None:
    top, copy = tmp_path / "top", tmp_path / "kept"
    (top / "conf").mkdir(parents=True)
    (copy / "conf").mkdir(parents=True)
    (top / "conf.py").write_bytes((ROOT / "conf.py").read_bytes())
    (copy / "conf" / "__init__.py").touch()
    (copy / "conf" / "plan.py").write_text("as_it_was = True\n")
    code = (
        f"import sys; sys.path[:0] = [{str(top)!r}, {str(ROOT)!r}]\n"
        f"from sweeps.trial import copies; copies.use(copies.Copies({str(top)!r}, {str(copy)!r}))\n"
        "import conf.plan, conf.parallel; assert conf.plan.as_it_was; print(conf.parallel.__name__)\n"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert child.stdout == "trainers.parallel\n", child.stderr


def test_yaml_names_existing_targets() -> None:
    text = "".join(file.read_text() for file in (ROOT / "conf").rglob("*.yaml"))
    assert not re.findall(r"\bconf\.(?:schema|plan|parallel|checks)\b", text)
    assert {file.suffix for file in (ROOT / "conf").rglob("*") if file.is_file()} == {".yaml"}
