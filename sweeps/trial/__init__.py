"""What a task function sees of its own trial."""

import difflib
import math
import operator
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from sweeps.files import write_whole
from sweeps.trial.folder import MetricsLine, Note, TrialFolder
from sweeps.trial.job import Objective, Outcome, State, World
from sweeps.trial.ranks import RankLost, say

__all__ = [
    "Diverged",
    "MissingObjective",
    "RankLost",
    "Trial",
    "World",
    "as_numbers",
    "current_trial",
    "objective_of",
    "read_objective",
    "running",
    "write_whole",
]


class Diverged(ArithmeticError):
    """What the trial is judged by, its objective or its loss, became NaN or infinite."""


class MissingObjective(ValueError):
    """What was reported or returned lacks what the study is judged by."""


class Trial:
    """One trial, seen from inside its own process, or from inside each of its processes: what f(cfg, trial) gets."""

    def __init__(
        self, folder: TrialFolder, attempt: int, objective: Objective | None = None, world: World | None = None
    ) -> None:
        self.world = world or World()  # which of the trial's processes this is, and where the others are
        self.folder = folder.path  # the trial's own
        self.checkpoint_folder = folder.checkpoint
        """Where the newest state of the training belongs, one for all ranks and attempts. It may not exist yet."""
        self._attempt = folder.attempt(attempt)
        self._objective = objective or Objective(())
        self._reported_before = max((line.step for line in folder.read_metrics().values), default=None)
        self._asked = 0
        self._heard: list[State | None] = []  # by the chief, as far as this rank has read
        self._heard_to = 0
        self._told = False

    def note(self, subject: str, note: Note) -> None:
        """Let the study's report and MLflow say what a reader of this trial's results must know: a sentence, a list of
        names, or numbers beside which its own metrics of the same names are to be seen.
        """
        if self.world.is_chief:
            TrialFolder(self.folder).add_note(subject, note)

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """Record the metrics of one step, usually an epoch: they reach the dashboard and the pruner within seconds.

        A step that an earlier attempt reported is recorded once, with the values of that attempt; of several ranks
        the chief alone records.

        Raises:
            TypeError: a metric is not one number, or the step no whole one.
            MissingObjective: the objective, if the study names one, is not among them.
            Diverged: the objective is NaN or infinite.
        """
        values = as_numbers(metrics)
        try:
            step = operator.index(step)  # numpy's are no JSON
        except TypeError as error:
            raise TypeError(f"trial.report(..., step={step!r}): a step is a whole number, as 1") from error
        if self.world.is_chief:
            print(f"step {step}  " + "  ".join(f"{name}={value:.5g}" for name, value in values.items()), flush=True)
            if self._reported_before is None or step > self._reported_before:
                self._attempt.trial.append_metrics(MetricsLine(step, time.time(), values))
        read_objective(values, self._objective, step)

    def should_stop(self) -> bool:
        """True once the driver wants this trial to end after the current epoch: it was pruned or cancelled.

        All ranks hear it at the same call: each must ask equally often. Those above the chief wait for its answer,
        and raise RankLost if there is none within `world.timeout_s`.
        """
        self._asked += 1
        if self.world.is_chief and not self._told:
            reason = self._attempt.stop_requested()
            if reason or self.world.size > 1:
                self._attempt.hear(reason)
            self._told = reason is not None
        elif not self._told:
            self._told = self._was_the_chief_told()
        return self._told

    def _was_the_chief_told(self) -> bool:
        deadline = time.monotonic() + self.world.timeout_s
        while len(self._heard) < self._asked:
            news = self._attempt.all_heard(self._heard_to)
            self._heard += news.values
            self._heard_to = news.offset
            if news.values:
                continue
            if time.monotonic() > deadline:
                asked = f"the chief did not ask whether to stop for the {self._asked}th time"
                raise RankLost(f"{asked} within rank_timeout_s={self.world.timeout_s:g}; all must ask equally often")
            time.sleep(0.02)
        return self._heard[self._asked - 1] is not None

    def abandon(self, why: str) -> NoReturn:
        """End this process at once, and with it the attempt, which is lost: for a thread that sees that another rank
        will not come any more, while the main one waits for it in native code. The trial goes on in a new attempt.
        """
        say(self._attempt, self.world.rank, Outcome(State.LOST, why))
        print(f"rank {self.world.rank} gives up: {why}", flush=True)
        sys.stderr.flush()
        os._exit(1)


running: dict[Path, Trial] = {}  # those that began in this process, by the folders of their attempts


def current_trial() -> Trial:
    """The trial that this process runs, from inside any Hydra task function."""
    hydra: Any = HydraConfig.get()
    folder = TrialFolder(Path(hydra.runtime.output_dir))
    newest = folder.newest() or folder.new_attempt()
    if newest.path not in running:
        running[newest.path] = Trial(folder, newest.number, objective_of(hydra))
    return running[newest.path]


def objective_of(hydra: Any) -> Objective:
    """What the study that a config's hydra node describes is judged by."""
    names = OmegaConf.select(hydra, "sweeper.objective")
    if names is None:
        return Objective(needed=False)
    return Objective(tuple(map(str, names if OmegaConf.is_list(names) else [names])), named=True)


def as_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Raises TypeError, naming the metric, for one that is not a number."""
    values = {}
    for name, value in metrics.items():
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            values[str(name)] = float(value)
        except (TypeError, ValueError):
            shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
            said = f"the metric '{name}' is a {type(value).__name__}{shape} ({value!r:.60}); a metric is one number"
            raise TypeError(said) from None
    return values


def read_objective(metrics: dict[str, float], objective: Objective, step: int | None = None) -> list[float]:
    """The objective's values, as far as they are among the metrics that were returned, or reported for a step. Raises
    MissingObjective if one that must be there is not, and Diverged if one is NaN or infinite.
    """
    how, needed = ("returned", objective.needed) if step is None else ("reported", objective.named)
    for name in objective.names:
        if needed and name not in metrics:
            there = ", ".join(sorted(metrics)) or "nothing"
            near = difflib.get_close_matches(name, metrics, 1, cutoff=0.4) or [*metrics, "..."]
            raise MissingObjective(
                f"the task {how} no '{name}', which is the objective; it {how} {there}. "
                f"Choose one of them: hydra.sweeper.objective={near[0]}"
            )
        if not math.isfinite(metrics.get(name, 0.0)):
            raise Diverged(f"{name} is {metrics[name]}" + ("" if step is None else f" at step {step}"))
    return [metrics[name] for name in objective.names if name in metrics]
