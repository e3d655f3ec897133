"""The settings of the sweeper: the reference of the Hydra groups hydra/sweeper=grid and
hydra/sweeper=optuna."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sweeps.base.wording import counted
from sweeps.hydra.foreign_names import OfSweepers

MAX_TRIALS = 1_000_000
CHOSEN = ("sampler", "pruner", "rungs")
"""Settings that are groups, chosen with slashes."""
_GROUPS = Path(__file__).parents[1] / "conf" / "hydra" / "sweeper"


def at_least(least: float, default: float | None) -> Any:
    """Return the field of a number that may not be below `least`."""
    return field(default=default, metadata={"least": least})


@cache
def target_of(part: str, name: str) -> str:
    """Return the class that a group file of the sweeper names: of a `part`, such as sampler, the
    option `name`, such as grid."""
    target: str = yaml.safe_load((_GROUPS / part / f"{name}.yaml").read_text())["_target_"]
    return target


def is_grid_sampler(sampler: Mapping[str, Any] | None) -> bool:
    """Return whether the settings of a sampler are those of a grid, in which no sampler chooses."""
    return sampler is None or sampler.get("_target_") == target_of("sampler", "grid")


def advise_search(words: Sequence[str]) -> str:
    """Return what to type in a command of these words to search instead of trying every point."""
    grids = ("hydra/sweeper=grid", "hydra/sweeper/sampler=grid")
    typed = [word for word in words if word in grids]
    instead = f" in place of {' and '.join(typed)}" if typed else ""
    return f"type hydra/sweeper=optuna{instead}"


@dataclass
class SweeperConf(OfSweepers):
    """hydra/sweeper=grid and hydra/sweeper=optuna."""

    _target_: str = "hydra_plugins.sweepyard.StudySweeper"
    _recursive_: bool = False
    sampler: Any = None
    """Sampler: choose each next trial. hydra/sweeper/sampler=grid, default, tpe, random, gp, cmaes,
    nsgaii or qmc."""
    pruner: Any = None
    """Pruner: end a trial early. hydra/sweeper/pruner=none, median, asha, hyperband, percentile or
    wilcoxon."""
    rungs: Any = None
    """Rungs: pause trials after a few steps, and promote the best of them. hydra/sweeper/rungs=none
    or halving."""
    objective: Any = None
    """Objective: the metric to optimize, or a list of metrics. Null: the task function returns a
    number."""
    direction: Any = "minimize"
    """Direction: minimize or maximize the objective. For several objectives: a list with a
    direction for each."""
    study_name: str | None = None
    """Name of the study. The name of an existing study resumes that study. Null: the time of the
    start."""
    storage: Any = None
    """Optuna storage to mirror the study in, for optuna-dashboard: sqlite:///studies.db. Null:
    none."""
    n_trials: int | None = at_least(1, None)
    """Number of trials; with `repeats`, of configurations. Default: 20 in a search, every point in
    a grid."""
    repeats: int = at_least(1, 1)
    """Replicates: run each configuration of a search with this many seeds. The search uses their
    mean."""
    final_race: int = at_least(0, 0)
    """Final race: run this many of the best configurations with fresh seeds. t-tests eliminate the
    worse. 0: none."""
    final_race_seeds: int = at_least(2, 5)
    """Final race: the maximum number of fresh seeds for each configuration."""
    seed_key: str = "seed"
    """Key of the app's configuration that holds the seed, a whole number. Its value is the first
    seed."""
    n_jobs: int | None = at_least(1, None)
    """Maximum number of trials at a time. Null: as many as the launcher has room for."""
    max_failure_rate: float | None = at_least(0, None)
    """Failure limit: start no trial once more than this fraction (0 to 1) failed. Null: exit with 1
    if any failed."""
    max_attempts: int = at_least(1, 3)
    """Retries: give up a trial after this many attempts that were lost, or timed out without
    progress."""
    target: float | None = None
    """Target: stop the search once a trial reaches this objective. The study is then finished.
    Null: no target."""
    patience: int | None = at_least(1, None)
    """Early stopping: stop after this many trials without improvement. The study is then finished.
    Null: never."""
    max_hours: float | None = field(default=None, metadata={"above": 0})
    """Budget: hours of wall-clock time with at least one trial queued or running, summed over all
    starts. No trial starts once the budget is spent, or if its predicted end exceeds the budget.
    Null: no limit."""
    max_gpu_hours: float | None = field(default=None, metadata={"above": 0})
    """Budget: GPU-hours (GPUs times hours). No trial starts once they are spent, or if the trial
    would exceed them."""
    max_epochs: int | None = at_least(1, None)
    """Budget: epochs, that is steps that trials report, of all trials. The search ends once they
    are spent; with rungs the best trials still train to their ends. Null: no limit."""
    budget_overrun: bool = False
    """Start trials as long as the budgets are not spent, even if their predicted ends exceed the
    budgets."""
    keep_checkpoints: str | None = None
    """Checkpoints to keep of trials that completed, paused or were pruned: all, best:N or none.
    Null: best:5 with rungs, else all."""
    memory_axes: list[str] = field(default_factory=list)
    """Keys that memory grows with, or key/key, as in '[batch_size/gpus,model.filters]'. After an
    out-of-memory trial, skip points that need at least as much on each axis and are otherwise
    equal."""
    may_change: list[str] = field(default_factory=list)
    """Keys with which the study may resume changed, because no result of a trial that ended depends
    on them: paths, numbers of workers."""
    start: Any = field(default_factory=list)
    """Warm start: points to try first: '[{lr: 0.001, batch_size: 64}]', or a CSV file's path. The
    sampler chooses any omitted params."""
    learn_from: list[str] = field(default_factory=list)
    """Warm start: earlier studies whose trials the sampler uses, by name (beside this study's
    folder) or by path."""
    refit: list[str] | None = None
    """Overrides of `sweepyard refit`, which trains the best trial once more and saves its
    model."""
    refit_all_data: list[str] | None = None
    """Overrides of `sweepyard refit --all-data`, which trains on the validation data,
    too."""
    extend: bool = False
    """Extend the study of this name: resume the study with more values, more trials or changed
    code."""
    preview: bool = False
    """Preview: only print the trials that would run, and their cost."""
    notify: Any = None
    """Notification at the end: '[mail,-s,"{subject}",me@example.org]', or '${oc.env:WEBHOOK}'. See
    docs/how_to/notify.md."""
    points: Any = None
    """Grid of listed points, each with all swept values: '[{loss: mse, lr: 1},{loss: mae}]', or a
    CSV file's path."""
    also: list[Any] = field(default_factory=list)
    """Further grids of the study, each the words that differ: '["optimizer=adam
    lr=0.001,0.01"]'."""
    exclude: list[str] = field(default_factory=list)
    """Points never to try, as conditions on swept keys: "['gpus=1 and batch_size>512',
    'lr>0.1']"."""
    params: Any = None
    """Search space in Hydra's override grammar: lr: tag(log, interval(1e-4, 1e-1)). See
    docs/how_to/search_space.md."""
    conditional_params: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Params that exist only under a choice: in YAML optimizer=adam: {optimizer.beta_2:
    "0.99,0.999"}, typed '+hydra.sweeper.conditional_params={optimizer\\=adam: {optimizer.beta_2:
    "0.99,0.999"}}'."""
    custom_search_space: str | None = None
    """Dotted name of f(cfg, trial), which calls trial.suggest_*() of Optuna for further params."""
    tracking_uri: str | None = None
    """Address of MLflow's store. Null: MLFLOW_TRACKING_URI, or else mlflow.db in the working
    folder."""
    tracking: bool = True
    """Track the study in MLflow."""
    tracking_required: bool = True
    """Start a new study only if MLflow answers. False: start without it, and send everything once
    it answers."""
    experiment: str | None = None
    """MLflow experiment of the studies. Null: MLFLOW_EXPERIMENT_NAME or MLFLOW_EXPERIMENT_ID, or
    else sweepyard."""

    def __post_init__(self) -> None:
        self._refuse_untyped()
        self._refuse_checkpoints()
        self._refuse_numbers()
        for name, values in (("direction", self.directions), ("objective", self.objectives)):
            usual = "maximize" if name == "direction" else "accuracy"
            if not values:
                raise ValueError(
                    f"hydra.sweeper.{name}=[]: the list is empty.\nType:"
                    f" hydra.sweeper.{name}={usual}"
                )
        self._refuse_objectives()

    def _refuse_untyped(self) -> None:
        """Raise ValueError for a sampler, a pruner or a storage that is not what it must be."""
        for name in CHOSEN:
            choice = getattr(self, name)
            if not isinstance(choice, dict | None):
                names = sorted(file.stem for file in (_GROUPS / name).glob("*.yaml"))
                typed = choice if choice in names else f"NAME, one of: {', '.join(names)}"
                noun = "rungs are" if name == "rungs" else f"a {name} is"
                raise ValueError(
                    f"hydra.sweeper.{name}={choice}: {noun} chosen with slashes"
                    f".\nType hydra/sweeper/{name}={typed}"
                )
        if not isinstance(self.storage, str | None):
            raise ValueError(
                f"hydra.sweeper.storage={self.storage}: it must be an address"
                ".\nType, for example: hydra.sweeper.storage=sqlite:///studies.db"
            )

    def _refuse_checkpoints(self) -> None:
        """Raise ValueError for checkpoints to keep that are not all, none or a number of the
        best."""
        choice = self.keep_checkpoints
        if choice not in (None, "all", "none") and not re.fullmatch(
            "best:[1-9][0-9]*", str(choice)
        ):
            raise ValueError(
                f"hydra.sweeper.keep_checkpoints={choice}: it must be all, none or best:N, where N"
                " is a number of trials.\nType, for example: hydra.sweeper.keep_checkpoints=best:5"
            )

    @property
    def most_checkpoints(self) -> int | None:
        """Return the number of trials whose checkpoints are kept; None if all are."""
        if self.kept_checkpoints == "all":
            return None
        return int(self.kept_checkpoints.removeprefix("best:").replace("none", "0"))

    @property
    def kept_checkpoints(self) -> str:
        """Return which checkpoints are kept, also if nothing was typed."""
        has_rungs = any((self.rungs or {}).values())
        return self.keep_checkpoints or ("best:5" if has_rungs else "all")

    def _refuse_numbers(self) -> None:
        if (self.n_trials or 0) > MAX_TRIALS:
            raise ValueError(
                f"hydra.sweeper.n_trials={self.n_trials}: it must be at most {MAX_TRIALS}"
                f".\nType hydra.sweeper.n_trials={MAX_TRIALS}, or less"
            )
        rate = self.max_failure_rate or 0
        if rate > 1:
            percent = rate if rate <= 100 else 10
            raise ValueError(
                f"hydra.sweeper.max_failure_rate={rate}: it must be between 0 and 1.\nFor"
                f" {percent:g} trials in 100, type:"
                f" hydra.sweeper.max_failure_rate={percent / 100:g}"
            )

    def _refuse_objectives(self) -> None:
        """Raise ValueError unless each objective has a direction, and each setting so many."""
        count = len(self.directions)
        for direction in self.directions:
            if direction not in {"minimize", "maximize"}:
                raise ValueError(
                    f"hydra.sweeper.direction={direction}: unknown direction"
                    ".\nChoose minimize or maximize"
                )
        for name in self.objectives:
            if self.objectives.count(name) > 1:
                raise ValueError(
                    f"hydra.sweeper.objective: {name} is named twice.\nName each metric once"
                )
        if len(self.objectives) != count:
            raise ValueError(
                f"hydra.sweeper.direction: {counted(len(self.objectives), 'objective')}, but"
                f" {counted(count, 'direction')}.\nType one for each, as in"
                " 'hydra.sweeper.direction=[maximize,minimize]'"
            )
        for name in ("final_race", "target", "patience") if count > 1 else ():
            value = getattr(self, name)
            if value != getattr(SweeperConf, name):
                setting = f"hydra.sweeper.{name}"
                raise ValueError(
                    f"{setting}={value}: it needs one objective, but this study has {count}"
                    f".\nRemove {setting}"
                )

    @property
    def directions(self) -> tuple[str, ...]:
        """Return the direction of each objective."""
        return tuple(self.direction) if isinstance(self.direction, list) else (self.direction,)

    @property
    def max_grid_trials(self) -> int | None:
        """Return the maximum number of trials of a grid; n_trials counts configurations."""
        return self.n_trials and self.n_trials * self.repeats

    @property
    def objectives(self) -> tuple[str, ...]:
        """Return the names of the objectives; numbered names if the task function returns
        numbers."""
        count = len(self.directions)
        unnamed = ["objective"] if count == 1 else [f"objective_{i}" for i in range(count)]
        names = unnamed if self.objective in (None, "") else self.objective
        return tuple(map(str, names if isinstance(names, list) else [names]))
