"""Mistakes on the command line: at most two lines of answer, exit code 2, and no start."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command_lines import SWEEP, THEIRS, read_answers, refuse, run, some, start_afresh

GRID = "-m seed=1,2"


class Trap:
    """An object that leaves a trace when the object is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._trace),)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    numbers = np.zeros((4, 2))
    (folder / "notes.csv").write_text("lr,Notes\n0.1,a\n")
    (folder / "floats.csv").write_text("lr,epochs\n0.1,2.0\n")
    np.savez(folder / "lacking.npz", x_train=numbers, x_test=numbers, y_test=numbers)
    trap = np.array([Trap(folder / "unpickled")] * 4, dtype=object)
    np.savez(folder / "pickled.npz", x_train=numbers, y_train=trap, x_test=numbers, y_test=numbers)
    np.savez(folder / "half.npz", x_train=numbers, y_train=numbers, x_test=numbers, y_test=numbers)
    whole = (folder / "half.npz").read_bytes()
    (folder / "half.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("cat", "dog"):
        (folder / "images" / name).mkdir(parents=True)
        (folder / "images" / name / "a.jpg").write_text("no image")
    return folder


# A command line, a mistake in it, and what its answer advises to type in place of the mistake
HERE, SEARCHED, ALONE = "-m seed=1,2", "-m hydra/sweeper=optuna lr=0.1,0.01", ""
ADVISED = [
    (HERE, "hydra.launcher.mem_gb=512M", "hydra.launcher.mem_gb=0.5"),
    (HERE, "hydra.launcher.timeout_min=1:30:00", "hydra.launcher.timeout_min=90"),
    (HERE, "hydra.sweeper.max_hours=8h", "hydra.sweeper.max_hours=8"),
    (HERE, "hydra.sweeper.max_failure_rate=20%", "hydra.sweeper.max_failure_rate=0.2"),
    (HERE, "epochs=3k,2", "epochs=3000,2"),
    (HERE, "dataset.validation_split=20%,30%", "dataset.validation_split=0.2,0.3"),
    (HERE, "optimzer=adam,sgd", "optimizer=adam,sgd"),
    (HERE, "optimizer=Adam,SGD", "optimizer=adam,sgd"),
    (HERE, "lr=0.1, 0.01", "lr=0.1,0.01"),
    (SEARCHED, "lr=0.1..0.5", "'lr=interval(0.1,0.5)'"),
    (HERE, "batch_size 64", "batch_size=64"),
    (HERE, "--target 0.9", "target=0.9"),
    (HERE, "--n-trials=3", "hydra.sweeper.n_trials=3"),
    (HERE, "hydra/launcher=here", "hydra/launcher=local"),
    (
        SEARCHED,
        "hydra.sweeper.pruner.min_resource=0 hydra/sweeper/pruner=asha",
        "++hydra.sweeper.pruner.min_resource=auto",
    ),
    (SEARCHED, "hydra/sweeper=bayes", "hydra/sweeper=optuna"),
    (SEARCHED, "hydra/sweeper=tpe", "hydra/sweeper=optuna hydra/sweeper/sampler=tpe"),
    (SEARCHED, "--max-hours 8", "hydra.sweeper.max_hours=8"),
    (HERE, "hydra.launcher.mem=512M", "hydra.launcher.mem_gb=0.5"),
    (HERE, "hydra.sweeper.max_failure_rate=20", "hydra.sweeper.max_failure_rate=0.2"),
    (ALONE, "launcher=local", "-m hydra/launcher=local"),
    (ALONE, "lr=[0.1,0.01]", "-m lr=0.1,0.01"),
    (ALONE, "lr=0.1 , 0.01", "-m lr=0.1,0.01"),
    (ALONE, "--launcher local", "-m hydra/launcher=local"),
    (ALONE, "-multirun", "-m"),
    (ALONE, "--dry-run", "-m hydra.sweeper.preview=true"),
]


@some("line", [ALONE, HERE, SEARCHED], 3, ids=["alone", "grid", "search"])
def test_advice_can_be_typed(line: str, tmp_path: Path) -> None:
    corrected = []
    for typed_in, wrong, right in ADVISED:
        if typed_in != line:
            continue
        done = refuse([SWEEP, *line.split(), *wrong.split()], tmp_path)
        advice = re.findall(r"(?:[Tt]ype: |Did you mean )(.*?)\??$", done.err, re.MULTILINE)
        assert done.code == 2, done.err
        assert advice[-1:] == [right], done.err
        corrected += [*wrong.split()[1:]] if right.startswith("++") else []
        corrected += shlex.split(right)
    words = [word for word in [*line.split(), *corrected] if word != "-m"]
    done = refuse([SWEEP, "-m", *words, "hydra.sweeper.preview=true"], tmp_path)
    assert done.code == 0, done.err
    assert "none was started" in done.out


MISTAKES = read_answers(Path(__file__).with_name("mistakes.txt"))
IN_A_PROCESS = list(MISTAKES)[::7]
"""Some of all kinds; the others are answered in this one."""


@some("line", MISTAKES, 18)
def test_a_mistake_is_answered(line: str, files: Path, tmp_path: Path) -> None:
    answer = run if line in IN_A_PROCESS else refuse
    done = answer([SWEEP, *line.replace("{files}", str(files)).split()], tmp_path)
    lines = [line for line in done.err.splitlines() if line.strip()]
    assert done.code == 2, done.err
    assert 1 <= len(lines) <= 2, done.err
    assert "Traceback" not in done.err
    assert not done.out.strip()
    for part in MISTAKES[line]:
        assert part in done.err
    assert not (done.folder / "multirun").exists()
    assert not (done.folder / "mlflow.db").exists()


@some(
    ("line", "note"),
    [
        ("+optimzer=adam", "+optimzer: no code reads this key, so that its values change nothing. Did you mean"),
        ("+trainer.patience=3", "+trainer.patience: no code reads this key"),
        ("+base=0.1 lr=${base}", ""),
        ("+other=1 trainer=own trainer._target_=builtins.print", ""),
        (
            "lr_schedule=[constant,cosine]",
            "is one choice, of all these files. To sweep them, type: lr_schedule=constant,cosine",
        ),
        ("lr=1,5", "lr=1,5 is two values. For one with a decimal point, type: lr=1.5"),
        ("lr=0.1,0.2 lr=0.3", "lr=0.3 replaces lr=0.1,0.2"),
        ("lr=range(0.1,0.3)", "is one value, 0.1, because its step is 1. For several, type a step"),
    ],
    3,
)
def test_values_without_effect_are_reported_once(line: str, note: str, tmp_path: Path) -> None:
    done = refuse([SWEEP, *f"{GRID} {line} hydra.sweeper.preview=true".split()], tmp_path)
    assert done.code == 0, done.err
    assert done.out.count(note) == 1 if note else "no code reads" not in done.out


def test_pickled_objects_are_never_loaded(files: Path, tmp_path: Path) -> None:
    assert refuse([SWEEP, "dataset=npz", f"dataset.path={files}/pickled.npz"], tmp_path).code == 2
    assert not (files / "unpickled").exists()


def test_the_whole_traceback_can_be_asked_for(tmp_path: Path) -> None:
    done = run([SWEEP, "optimizer=adm"], tmp_path, {"HYDRA_FULL_ERROR": "1"})
    assert done.code == 1
    assert "Traceback" in done.err
    assert "Could not find 'optimizer/adm'" in done.err


def test_a_bug_in_a_trainer_is_no_mistake_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def train(cfg, trial):\n    raise ValueError('from inside the trainer')\n")
    done = run([SWEEP, "trainer._target_=broken.train", "tracking=none"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 1
    assert "from inside the trainer" in done.err
    assert "broken.py" in done.err


def test_single_run_returns_the_result_of_its_trainer(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(
        "import json, pathlib\n"
        "def train(cfg, trial):\n"
        "    pathlib.Path('seen.json').write_text(json.dumps([cfg.lr, cfg.batch_size]))\n"
        "    return {'val_accuracy': 0.5}\n"
    )
    line = ["trainer._target_=tiny.train", "lr=0.25", "batch_size=8", "tracking=none"]
    done = run([SWEEP, *line], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "seen.json").read_text()) == [0.25, 8]


@some("flag", ["--help", "--hydra-help", "--info=searchpath"], 3)
def test_help_is_given(flag: str, tmp_path: Path) -> None:
    done = run([SWEEP, flag], tmp_path)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) <= 62
    assert not list(tmp_path.iterdir())


def test_help_names_the_settings_of_a_foreign_app(tmp_path: Path) -> None:
    done = run([THEIRS, "--help", "all", "hydra/sweeper=optuna"], tmp_path)
    assert done.code == 0, done.err
    for setting in ("hydra.sweeper.n_trials=20", "hydra.launcher.mem_gb=null", "hydra.launcher.partition=null"):
        assert f"\n  {setting} " in done.out


@pytest.mark.long
def test_help_may_be_read_in_part(tmp_path: Path) -> None:
    process = start_afresh([SWEEP, "--help"], tmp_path, {"PYTHONSAFEPATH": "1"})  # without the folder of sweep.py
    assert process.stdout is not None
    assert "Train one configuration" in process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert (process.communicate(timeout=60)[1], process.returncode) == ("", 0)
