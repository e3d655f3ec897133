"""What a task function sees of its own trial."""

import difflib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from sweeps.trial.folder import MetricsLine, Note, TrialFolder
from sweeps.trial.job import Objective, State, World

_RANKS_TICK_S = 0.02
_RANKS_PATIENCE_S = 600.0


class Diverged(ArithmeticError):
    """What the trial is judged by, its objective or its loss, became NaN or infinite."""


class MissingObjective(ValueError):
    """What was reported or returned lacks what the study is judged by."""


class Trial:
    """One trial, seen from inside its own process, or from inside each of its processes.

    The whole contract of a training function:

        def train(cfg, trial):
            for epoch in range(cfg.epochs):
                ...
                trial.report({"val_accuracy": accuracy}, step=epoch)
                if trial.should_stop():
                    break
            return accuracy
    """

    def __init__(
        self, folder: TrialFolder, attempt: int, objective: Objective | None = None, world: World | None = None
    ) -> None:
        self.world = world or World()
        """Which of the trial's processes this is, and where the others are."""
        self._folder = folder
        self._attempt = folder.attempt(attempt)
        self._objective = objective or Objective(())
        self._reported_before = folder.last_step()
        self._asked = 0
        self._heard: State | None = None

    @property
    def checkpoint_folder(self) -> Path:
        """Where the newest state of the training belongs, one for all ranks. It may not exist yet; what is in it
        outlives an attempt.
        """
        return self._folder.checkpoint

    @property
    def folder(self) -> Path:
        """Where what the trial leaves belongs. It may not exist yet."""
        return self._folder.path

    def note(self, subject: str, note: Note) -> None:
        """Let the study's report and MLflow say what a reader of this trial's results must know: a sentence, a list of
        names, or numbers beside which its own metrics of the same names are to be seen.
        """
        if self.world.is_chief:
            self._folder.add_note(subject, note)

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """Record the metrics of one step, usually an epoch: they reach the dashboard and the pruner within seconds.

        A step that an earlier attempt reported is recorded once, with the values of that attempt; of several ranks
        the chief alone records.

        Raises:
            TypeError: a metric is not one number.
            MissingObjective: the objective, if the study names one, is not among them.
            Diverged: the objective is NaN or infinite.
        """
        values = as_numbers(metrics)
        print(f"step {step}  " + "  ".join(f"{name}={value:.5g}" for name, value in values.items()), flush=True)
        if self.world.is_chief and (self._reported_before is None or step > self._reported_before):
            self._folder.append_metrics(MetricsLine(step, time.time(), values))
        names = self._objective.names if self._objective.named else ()
        if lacking := lacks(names, values, "reported"):
            raise MissingObjective(lacking)
        check_finite({name: values[name] for name in self._objective.names if name in values}, f"at step {step}")

    def should_stop(self) -> bool:
        """True once the driver wants this trial to end after the current epoch: it was pruned or cancelled.

        All ranks hear it at the same call: each must ask equally often. Those above the chief wait for its answer.
        """
        self._asked += 1
        if self._heard is None:
            self._heard = self._as_chief() if self.world.is_chief else self._as_the_chief_did()
        return self._heard is not None

    def _as_chief(self) -> State | None:
        requested = self._attempt.stop_requested()
        if requested:
            self._attempt.hear(requested)
        if self.world.size > 1:
            self._attempt.answer(self._asked, requested)
        return requested

    def _as_the_chief_did(self) -> State | None:
        deadline = time.monotonic() + _RANKS_PATIENCE_S
        while (answered := self._attempt.answered())[0] < self._asked:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"rank {self.world.rank} asked whether to stop for the {self._asked}th time, and the chief did "
                    f"not within {_RANKS_PATIENCE_S:g} s; all ranks must ask equally often"
                )
            time.sleep(_RANKS_TICK_S)
        asked, reason = answered
        return reason if reason and asked == self._asked else None


_trials: dict[Path, Trial] = {}
"""Those that began in this process, by the folders of their attempts."""


def enter(trial: Trial) -> None:
    """Let `current_trial` find it."""
    _trials[trial._attempt.path] = trial


def current_trial() -> Trial:
    """The trial that this process runs, from inside any Hydra task function."""
    hydra: Any = HydraConfig.get()
    folder = TrialFolder(Path(hydra.runtime.output_dir))
    newest = folder.newest() or folder.new_attempt()
    if newest.path not in _trials:
        enter(Trial(folder, newest.number, objective_of(hydra)))
    return _trials[newest.path]


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
            if isinstance(value, str | bytes | Mapping | Sequence):
                raise TypeError
            values[str(name)] = float(value)
        except (TypeError, ValueError):
            shape = getattr(value, "shape", None)
            what = type(value).__name__ + (f" of shape {tuple(shape)}" if shape is not None else "")
            raise TypeError(f"the metric '{name}' is a {what} ({value!r:.60}); a metric is one number") from None
    return values


def lacks(names: Sequence[str], metrics: Mapping[str, float], how: str) -> str:
    """What to say if one of the objectives is not among the metrics; empty if all are."""
    missing = next((name for name in names if name not in metrics), None)
    if missing is None:
        return ""
    near = difflib.get_close_matches(missing, metrics, 1, cutoff=0.4) or [next(iter(metrics), "...")]
    return (
        f"the task {how} no '{missing}', which is the objective; it {how} {', '.join(sorted(metrics)) or 'nothing'}. "
        f"Choose one of them: hydra.sweeper.objective={near[0]}"
    )


def check_finite(objective: Mapping[str, float], where: str = "") -> None:
    """Raises Diverged if a value is NaN or infinite."""
    for name, value in objective.items():
        if not math.isfinite(value):
            raise Diverged(f"{name} is {value} {where}".rstrip())
