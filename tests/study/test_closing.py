"""What to type after trials have failed."""

from pathlib import Path

import pytest

from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.study.run.closing import retry_lines
from sweeps.trial.job import Outcome, State

LIMIT, ON_NODES = {"mem_gb": 8.0, "nodes": 1.0}, {"mem_gb": 6.0, "nodes": 2.0}
KILLED, IN_FRAMEWORK = "it used 9 GB, more than hydra.launcher.mem_gb=8", "ResourceExhaustedError: OOM when allocating"
RETRY = "sweepyard resume s --root {root} --retry"
LESS = "For trials that were out of memory, type less in another study: batch_size=64 hydra.sweeper.study_name=NAME"


def failed(folder: Path, *outcomes: Outcome, axes: str = "[]", launcher: str = "{}") -> StudySnapshot:
    """Return a study whose trials ended with these outcomes."""
    rows = []
    for number, outcome in enumerate(outcomes):
        hydra = folder / str(number) / ".hydra"
        hydra.mkdir(parents=True)
        (hydra / "config.yaml").write_text("batch_size: 128\ngpus: 1\ntrainer: {memory_axes: [batch_size/gpus]}\n")
        (hydra / "hydra.yaml").write_text(f"hydra: {{sweeper: {{memory_axes: {axes}}}, launcher: {launcher}}}\n")
        trial = TrialRecord(number, {"lr": 0.1}, State.QUEUED, folder / str(number))
        rows.append(trial.with_end(outcome))
    return StudySnapshot("s", folder, ("loss",), ("minimize",), rows)


@pytest.mark.parametrize(
    ("outcome", "axes", "launcher", "line"),
    [
        (Outcome(State.OUT_OF_MEMORY, KILLED, requested=LIMIT), "[]", "{}", "hydra.launcher.mem_gb=16"),
        (Outcome(State.OUT_OF_MEMORY, KILLED, requested=ON_NODES), "[]", "{}", "hydra.launcher.mem_gb=6"),
        (Outcome(State.OUT_OF_MEMORY, KILLED, requested=LIMIT, gpus=1), "[]", "{}", "hydra.launcher.mem_gb=16"),
        (
            Outcome(State.OUT_OF_MEMORY, KILLED, requested=LIMIT),
            "[]",
            "{mem_per_cpu: 2G}",
            "hydra.launcher.mem_gb=16 hydra.launcher.mem_per_cpu=null",
        ),
        (Outcome(State.OUT_OF_MEMORY, IN_FRAMEWORK), "[batch_size/gpus]", "{}", LESS),
        (Outcome(State.OUT_OF_MEMORY, IN_FRAMEWORK), "'${trainer.memory_axes}'", "{}", LESS),
        (Outcome(State.OUT_OF_MEMORY, IN_FRAMEWORK, requested=LIMIT, gpus=1), "[batch_size/gpus]", "{}", LESS),
        (Outcome(State.OUT_OF_MEMORY, IN_FRAMEWORK), "[]", "{}", "need less, then type: {retry} out_of_memory"),
        (
            Outcome(State.FAILED, "KeyError: 'x'"),
            "[]",
            "{}",
            "Correct the cause of the failed trials, then type: {retry}",
        ),
    ],
)
def test_a_failed_trial_has_a_next_step(tmp_path: Path, outcome: Outcome, axes: str, launcher: str, line: str) -> None:
    (advice,) = retry_lines(failed(tmp_path / "s", outcome, axes=axes, launcher=launcher))
    assert line.format(retry=RETRY.format(root=tmp_path)) in advice


def test_states_are_retried_together_and_others_need_no_retry(tmp_path: Path) -> None:
    states = [State.COMPLETED, State.FAILED, State.DIVERGED, State.LOST, State.FAILED, State.REFUSED, State.CANCELLED]
    (advice,) = retry_lines(failed(tmp_path / "s", *(Outcome(state, "it failed") for state in states)))
    assert advice.endswith("--retry diverged,failed,lost")
    assert retry_lines(failed(tmp_path / "t", Outcome(State.COMPLETED), Outcome(State.REFUSED, "no"))) == []


def test_trial_without_the_objective_of_others_is_retried(tmp_path: Path) -> None:
    lacking = Outcome(State.FAILED, "it returned nothing", missing_objective=True)
    assert retry_lines(failed(tmp_path / "s", lacking, lacking)) == []
    (advice,) = retry_lines(failed(tmp_path / "t", lacking, Outcome(State.COMPLETED, objective=[1.0])))
    assert advice.endswith("--retry failed")
