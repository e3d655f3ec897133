"""Trials that are killed after their last step, before their outcome is written: they resume with nothing to train."""

from pathlib import Path

import pytest

from sweeps.trial.job import State
from tests.command_lines import GRID, rows, run, some, steps

OWN = """
import json, os, signal
import hydra
from sweeps import current_trial

@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    trial = current_trial()
    saved = trial.checkpoint_folder / "epoch"
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    for epoch in range(first, 4):
        loss = 1 / epoch
        trial.report({"loss": loss}, step=epoch, last=cfg.last and epoch == 3)
        saved.parent.mkdir(exist_ok=True)
        saved.write_text(str(epoch))
    if first == 1:
        pids = {"trial": [os.getpid()], "study": [os.getppid(), os.getpid()]}
        [os.kill(pid, signal.SIGKILL) for pid in pids[cfg.killed]]
    return {"loss": loss} if cfg.own_variable else trial.last_report

if __name__ == "__main__":
    main()
"""
STUDY = [*GRID, "hydra.sweeper.study_name=s", "hydra.sweeper.tracking=false", "hydra.sweeper.objective=loss"]


@pytest.mark.parametrize("killed", ["trial", "study"])
@some(("last", "attempts"), [(False, 2), (True, 1)], 2)
def test_last_report_is_the_result(killed: str, last: bool, attempts: int, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    line = ["own.py", "-m", *STUDY, f"+killed={killed}", f"+last={last}", "+own_variable=false"]
    done = run(line, tmp_path)
    if done.code:
        done = run(line, tmp_path)
    assert done.code == 0, done.said
    (trial,) = rows(tmp_path / "multirun" / "s")
    assert (trial.state, trial.objective, len(trial.attempts)) == (State.COMPLETED, [1 / 3], attempts)
    assert steps(trial.folder) == [1, 2, 3]


def test_variable_of_the_loop_is_explained(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    line = ["own.py", "-m", *STUDY, "+killed=trial", "+last=false", "+own_variable=true"]
    done = run(line, tmp_path)
    assert done.code == 1, done.said
    hint = "an earlier attempt reported step 3, this one reported nothing. If nothing was left to train, return trial."
    assert hint in done.said
