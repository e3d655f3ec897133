"""The examples in the docstrings of the public API run."""

import inspect
import re
import shlex
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

import sweeps
from sweeps.api import Study
from sweeps.launchers.contract import TrialLauncher
from sweeps.trial import Trial, World
from tests.command_lines import run
from tests.launchers.launcher_contract import end_of, making_jobs

SWEEP = (
    "train.py -m hydra/sweeper=grid hydra/launcher=local +lr=0.1,0.2 hydra.sweeper.study_name=mine"
    " hydra.sweeper.objective=loss hydra.sweeper.direction=minimize"
)


def example(of: Any) -> str:
    """Return the indented lines after the first `::` of a docstring."""
    lines = (inspect.getdoc(of) or "").partition("::\n")[2]
    return dedent(re.match(r"(?:\n|    .*\n?)+", lines)[0])  # type: ignore[index]


def half(cfg: Any) -> float:
    return 0.5


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the app of `Trial` was swept."""
    folder = tmp_path_factory.mktemp("studies")
    (folder / "train.py").write_text(example(Trial))
    done = run(shlex.split(SWEEP), folder, {})
    assert done.code == 0, done.said
    return folder


@pytest.mark.parametrize("of", [sweeps.load, Study])
def test_a_study_in_python(of: Any, studies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(studies)
    names: dict[str, Any] = {}
    exec(example(of), names)  # noqa: S102 - our own docstring
    assert list(names["study"].trials["loss"]) == pytest.approx([0.1 / 3, 0.2 / 3])


def test_the_world_of_a_trial(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example(World), {"trial": SimpleNamespace(world=World())})  # noqa: S102 - our own docstring
    assert capsys.readouterr().out == "1 processes on 1 nodes\n"


def test_a_launcher(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(example(TrialLauncher), names)  # noqa: S102 - our own docstring
    launcher = names["OneAtATime"]()
    with making_jobs(launcher, tmp_path, "local") as make:
        job = make(0, half)
        assert launcher.submit(job)
        assert not launcher.has_room()
        assert end_of(launcher, job).objective == [0.5]
        assert launcher.has_room()
    launcher.close()
