"""The API of a task function: the trial that this process runs."""

import math
import operator
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from sweeps.base.files import write_whole as write_whole  # for trainers, like RankLost and World
from sweeps.hydra.parts import call_target as call_target
from sweeps.trial.checkpoints import assign_arrays as assign_arrays
from sweeps.trial.checkpoints import newest_checkpoint as newest_checkpoint
from sweeps.trial.checkpoints import put_checkpoint as put_checkpoint
from sweeps.trial.confusion import Confusion
from sweeps.trial.directions import objective_words
from sweeps.trial.folder import Note, TrialFolder
from sweeps.trial.job import Objective, Outcome, State, Value
from sweeps.trial.job import World as World
from sweeps.trial.machine import facts, gpus
from sweeps.trial.metrics import MetricsLine
from sweeps.trial.ranks import RankLost as RankLost
from sweeps.trial.ranks import report_failure
from sweeps.trial.run.staging import staged as staged
from sweeps.trial.times import now


class Diverged(ArithmeticError):
    """The objective or the loss became NaN or infinite."""


class MissingObjective(ValueError):
    """The reported or returned metrics lack the objective of the study."""


class Trial:
    """One trial as one of its processes sees it.

    A trainer `f(cfg, trial)` gets it as its second argument, the function of any other Hydra app
    from `sweeps.current_trial()`. This app, `train.py`, can be pruned and stopped::

        import hydra
        import sweeps


        @hydra.main(version_base=None)
        def main(cfg):
            trial = sweeps.current_trial()
            for epoch in range(1, 4):
                loss = cfg.lr / epoch
                trial.report({"loss": loss}, step=epoch)
                if trial.should_stop():
                    break
            return {"loss": loss}


        if __name__ == "__main__":
            main()

    Attributes:
        world: The ranks (processes) of the trial, and which of them this one is.
        folder: The trial's folder, Hydra's output directory.
        checkpoint_folder: The folder of checkpoints, the same for all attempts and ranks. It may
            not exist yet.
    """

    def __init__(
        self,
        folder: TrialFolder,
        attempt: int,
        objective: Objective | None = None,
        world: World | None = None,
    ) -> None:
        self.world = world or World()  # the rank of this process, and the addresses of all ranks
        self.folder = folder.path
        # shared by all ranks and attempts; may not exist yet
        self.checkpoint_folder = folder.checkpoint
        self._attempt = folder.attempt(attempt)
        self._objective = objective or Objective(())
        self._pause_step = self._attempt.pause_step()
        self._newest_step: int | None = None  # reported by this attempt
        earlier = folder.read_metrics().values
        self._last_earlier_step = max((line.step for line in earlier), default=None)
        self._last_report = self._newest_with_objective(earlier)
        self._has_reported = self._is_last_reported = False
        self._stop_calls = 0
        self._chief_answers: list[State | None] = []  # answers of the chief that this rank has read
        self._answers_offset = 0
        self._is_stopped = False

    def note(self, subject: str, note: Note) -> None:
        """Add a note to the study's report and MLflow.

        Args:
            subject: What the note is about, such as "test data".
            note: A sentence, a list of names, or numbers by their names, which are shown beside
                the trial's own metrics of the same names.
        """
        if self.world.is_chief:
            TrialFolder(self.folder).add_note(subject, note)

    def record_settings(self, settings: Mapping[str, Value]) -> None:
        """Record settings as the training uses them, such as the batch size over all GPUs, computed
        from the config.

        MLflow and the trials of `sweeps.load` show a recorded setting in place of the config's.
        """
        if self.world.is_chief:
            facts.record(self._attempt, settings=settings)

    def record_confusion(
        self, subset: str, classes: Sequence[str], matrix: Sequence[Sequence[int]]
    ) -> None:
        """Record the confusion matrix of the saved model, which the study's page shows with
        precision, recall and F1 of each class.

        Args:
            subset: Of which examples, such as "test".
            classes: The names of the classes.
            matrix: Counts of examples: a row for each true class, a column for each predicted one.
        """
        if self.world.is_chief:
            counts = [[int(count) for count in row] for row in matrix]
            Confusion(subset, [*classes], counts).write(self.folder)

    def report(
        self, metrics: Mapping[str, float], step: int, partial: bool = False, last: bool = False
    ) -> None:
        """Record the metrics of one step, usually an epoch: they reach the dashboard and the pruner
        within seconds.

        If an earlier attempt reported the step, its values stay. Only the chief of several ranks
        records.

        Args:
            metrics: Numbers by their names.
            step: The number of the step, such as the epoch, counted from 1.
            partial: Whether the metrics may lack the objective, as those of a part of an epoch.
            last: Whether the trial is complete with this step: these metrics are its result if its
                process is killed before it returns another one.

        Raises:
            TypeError: A metric is not one number, or the step is not a whole number.
            MissingObjective: The study names an objective, and the metrics lack it.
            Diverged: The objective is NaN or infinite.
        """
        values = as_numbers(metrics)
        try:
            step = operator.index(step)  # because JSON takes no integers of numpy
        except TypeError as error:
            raise TypeError(
                f"trial.report(..., step={step!r}): a step is a whole number, such as 1"
            ) from error
        if self.world.is_chief:
            shown = "  ".join(f"{name}={value:.5g}" for name, value in values.items())
            print(f"step {step}  {shown}", flush=True)
            if self._last_earlier_step is None or step > self._last_earlier_step:
                result = self._reported_result(values) if last else None
                self._attempt.trial.append_metrics(MetricsLine(step, now(), values, result))
        self._last_report = values
        self._has_reported = True
        self._newest_step = step
        self._is_last_reported = last
        if not partial or set(self._objective.names) <= values.keys():
            read_objective(values, self._objective, step)

    @property
    def unreported_since(self) -> int | None:
        """Return the last step of earlier attempts, if this attempt has reported nothing; else
        None."""
        return None if self._has_reported else self._last_earlier_step

    def _reported_result(self, metrics: dict[str, float]) -> list[float] | None:
        """Return the objective's values among the last step's metrics; None if these metrics are no
        result."""
        names = self._objective.names
        present = [metrics[name] for name in names if name in metrics]
        is_whole = len(present) == len(names) or not self._objective.needed
        return present if names and is_whole and all(map(math.isfinite, present)) else None

    @property
    def last_report(self) -> dict[str, float]:
        """Return the metrics that this attempt reported last; before its first report, those of
        earlier attempts.

        A training that resumes with nothing left to train returns them as its result. Empty before
        any report.
        """
        return dict(self._last_report)

    def _newest_with_objective(self, lines: Sequence[MetricsLine]) -> dict[str, float]:
        """Return the newest metrics that have the objective, if it is named, because others are of
        a part of a step."""
        names = set(self._objective.names) if self._objective.named else set()
        return next((line.metrics for line in reversed(lines) if names <= line.metrics.keys()), {})

    def limit_gpu_memory(self) -> None:
        """Set PyTorch to allocate at most this trial's part of a shared GPU:
        hydra.launcher.trials_per_gpu.

        Call this method before the first tensor on the GPU. Without a shared GPU or PyTorch,
        nothing changes.
        """
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_available() and (fraction := gpus.memory_fraction()) is not None:
            torch.cuda.set_per_process_memory_fraction(fraction)

    def should_stop(self) -> bool:
        """Return whether to end after the current epoch, because the trial was pruned or
        cancelled, or pauses at a rung.

        A trial that has reported its last step need not stop. All ranks get the same answer at the
        same call, so all ranks must call equally often. Ranks other than the chief wait for the
        chief's answer.

        Raises:
            RankLost: The chief gave no answer within `world.timeout_s`.
        """
        self._stop_calls += 1
        if self.world.is_chief and not self._is_stopped:
            reason = None if self._is_last_reported else self._reason_to_stop()
            if reason or self.world.size > 1:
                self._attempt.append_stop_answer(reason)
            self._is_stopped = reason is not None
        elif not self._is_stopped:
            self._is_stopped = self._read_chief_answer() is not None
        return self._is_stopped

    def _reason_to_stop(self) -> State | None:
        requested = self._attempt.stop_requested()
        if requested or self._pause_step is None or self._newest_step is None:
            return requested
        return State.PAUSED if self._newest_step >= self._pause_step else None

    def _read_chief_answer(self) -> State | None:
        """Return the chief's answer to this call: the reason to stop, or None. Raises RankLost
        after the timeout."""
        deadline = time.monotonic() + self.world.timeout_s
        while len(self._chief_answers) < self._stop_calls:
            answers = self._attempt.read_stop_answers(self._answers_offset)
            self._chief_answers += answers.values
            self._answers_offset = answers.offset
            if answers.values:
                continue
            if time.monotonic() > deadline:
                raise RankLost(
                    f"the chief did not make call {self._stop_calls} of should_stop() within "
                    f"rank_timeout_s={self.world.timeout_s:g}; all ranks must call it equally often"
                )
            time.sleep(0.02)
        return self._chief_answers[self._stop_calls - 1]

    def abandon(self, reason: str) -> NoReturn:
        """End this process at once, and the attempt with it; the trial resumes in a new attempt.

        For a thread that detects a lost rank while the main thread waits for that rank in native
        code.
        """
        report_failure(self._attempt, self.world.rank, Outcome(State.LOST, reason))
        print(f"rank {self.world.rank} gives up: {reason}", flush=True)
        sys.stderr.flush()
        os._exit(1)


# trials that began in this process, by the folders of their attempts
active_trials: dict[Path, Trial] = {}


def current_trial() -> Trial:
    """Return the trial that this process runs, from inside any Hydra task function."""
    hydra: Any = HydraConfig.get()
    folder = TrialFolder(Path(hydra.runtime.output_dir))
    newest = folder.newest() or folder.new_attempt()
    if newest.path not in active_trials:
        active_trials[newest.path] = Trial(folder, newest.number, objective_of(hydra))
    return active_trials[newest.path]


def objective_of(hydra: Any) -> Objective:
    """Return the objective of the study that a config's hydra node describes."""
    names = OmegaConf.select(hydra, "sweeper.objective")
    if names is None:
        return Objective(needed=False)
    return Objective(tuple(map(str, names if OmegaConf.is_list(names) else [names])), named=True)


def as_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics as floats. Raises TypeError, naming the metric, if a value is not a
    number."""
    values = {}
    for name, value in metrics.items():
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            values[str(name)] = float(value)
        except (TypeError, ValueError, OverflowError):
            shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
            problem = f"the metric '{name}' is a {type(value).__name__}{shape} ({value!r:.60})"
            raise TypeError(f"{problem}; a metric is one number") from None
    return values


def read_objective(
    metrics: dict[str, float], objective: Objective, step: int | None = None
) -> list[float]:
    """Return the objective's values among metrics that were returned, or reported for a step.

    Raises MissingObjective if a required value is missing, and Diverged if a value is NaN or
    infinite.
    """
    verb = "returned" if step is None else "reported"
    is_required = objective.needed if step is None else objective.named
    for name in objective.names:
        if is_required and name not in metrics:
            raise _lacks_objective(name, metrics, objective, verb)
        if not math.isfinite(metrics.get(name, 0.0)):
            raise Diverged(
                f"{name} is {metrics[name]}" + ("" if step is None else f" at step {step}")
            )
    return [metrics[name] for name in objective.names if name in metrics]


def _lacks_objective(
    name: str, metrics: Mapping[str, float], objective: Objective, verb: str
) -> MissingObjective:
    present = ", ".join(sorted(metrics)) or "nothing"
    advice = f"Return it, with the key {name}"
    if metrics:
        advice = f"Choose one of them: {objective_words(metrics, objective.names)}"
    return MissingObjective(
        f"the task {verb} no '{name}', which is the objective; it {verb} {present}. {advice}"
    )
