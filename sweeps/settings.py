"""The settings of the sweeper and the launchers: each dataclass is the reference of its Hydra group.

Names are those of hydra-optuna-sweeper and hydra-submitit-launcher, so that a config written for them works here.
"""

import difflib
import math
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sweeps.errors import UserError

Settings = TypeVar("Settings", "SweeperConf", "LocalLauncherConf", "SlurmLauncherConf")
MEANT = {"time": "timeout_min", "gpus": "gpus_per_node", "cpus": "cpus_per_task", "name": "study_name"}
MEANT |= {"memory": "mem_gb", "n_workers": "n_jobs"}
"""What other tools call our settings, where difflib does not see it."""

MOST_TRIALS = 1_000_000
_CHOSEN = ("sampler", "pruner")

HEEDED_ALONE = ("objective", "direction", "tracking", "tracking_uri", "experiment")
"""What a single run, without -m, heeds of the sweeper's settings."""


def read(node: DictConfig, kind: type[Settings]) -> Settings:
    """The settings in a config's node, as its dataclass. Raises UserError if one is unknown, or out of its range."""
    group = "sweeper" if kind is SweeperConf else "launcher"
    names = [one.name for one in fields(kind)]
    for name in (str(key) for key in node if key not in names):
        if elsewhere := home(f"hydra.{group}.{name}"):
            raise UserError(f"hydra.{group}.{name} is no setting of {node._target_}\nType: {elsewhere}")
        near = [MEANT[name]] if MEANT.get(name) in names else difflib.get_close_matches(name, names, 1)
        meant = f". Did you mean hydra.{group}.{near[0]}?" if near else ""
        option = f"+hydra.launcher.additional_parameters.{name}={node[name]}"
        hint = f"\nFor an option of sbatch: {option}" if kind is SlurmLauncherConf else ""
        raise UserError(f"hydra.{group}.{name} is no setting of {node._target_}{meant}{hint}")
    try:
        settings = OmegaConf.to_object(node)
    except OmegaConfBaseException as error:  # below its first line it says where in OmegaConf
        said = str(error).splitlines()[0].rpartition(" raised while resolving interpolation: ")[2].strip('"')
        raise UserError(f"{error.full_key or node._get_full_key(None)}: {said}") from error
    except ValueError as error:
        raise UserError(str(error)) from error
    assert isinstance(settings, kind)
    for one in fields(kind):
        value, least, above = getattr(settings, one.name), one.metadata.get("least"), one.metadata.get("above")
        if str(one.type).startswith("list") and isinstance(value, str):  # which an interpolation may bring
            raise UserError(f"hydra.{group}.{one.name}={value}: it must be a list, as in [{value}]")
        if isinstance(value, float) and math.isnan(value):
            raise UserError(f"hydra.{group}.{one.name}=nan: it must be a number")
        if value is not None and least is not None and value < least:
            raise UserError(f"hydra.{group}.{one.name}={value}: it must be {least} or more")
        if value is not None and above is not None and value <= above:
            none = f"hydra.{group}.{one.name}=null"
            raise UserError(f"hydra.{group}.{one.name}={value}: nothing could start\nFor no limit type {none}")
    return settings


def home(word: str) -> str:
    """What to type for a setting that was typed as `word`, elsewhere or by the name that other tools give it; empty if
    it is none, or this is its place.
    """
    section, _, name = word.rpartition(".")
    name = MEANT.get(name, name) if section else name
    slurms = "hydra/launcher=slurm hydra.launcher"
    places = {"hydra.sweeper": SweeperConf, "hydra.launcher": LocalLauncherConf, slurms: SlurmLauncherConf}
    for place, kind in places.items() if section in {"", *places} else ():
        if name in {one.name for one in fields(kind)}:
            chosen = f"hydra/sweeper/{name}=..." if name in _CHOSEN else f"{place}.{name}=..."
            return "" if section == place else chosen
    return ""


def at_least(least: float, default: float | None) -> Any:
    """A number that may not be below `least`."""
    return field(default=default, metadata={"least": least})


@dataclass
class SweeperConf:
    """hydra/sweeper=grid and hydra/sweeper=optuna."""

    _target_: str = "hydra_plugins.sweepyard.StudySweeper"
    _recursive_: bool = False
    sampler: Any = None
    """What to try next: hydra/sweeper/sampler=grid, default, tpe, random, gp, cmaes, nsgaii or qmc."""
    pruner: Any = None
    """When to end a trial early: hydra/sweeper/pruner=none, median, asha, hyperband, percentile or wilcoxon."""
    objective: Any = None
    """The metric to search on, or a list of several: a key of what the task returns. Null if it returns numbers."""
    direction: Any = "minimize"
    """minimize or maximize, or a list with one for each objective."""
    study_name: str | None = None
    """The name of the study; the same name goes on where it was. Null gives it the time of its start."""
    storage: str | None = None
    """An Optuna storage that mirrors the study, for optuna-dashboard: sqlite:///studies.db. Null: none."""
    n_trials: int | None = at_least(1, None)
    """Trials in all; with `repeats`, configurations. A grid has as many as it has points."""
    repeats: int = at_least(1, 1)
    """Seeds that each configuration runs under: a search is told the mean."""
    final_race: int = at_least(0, 0)
    """So many of the best configurations run under fresh seeds after all others. A test drops those that are worse."""
    final_race_seeds: int = at_least(2, 5)
    """Fresh seeds that each of them runs under, at most."""
    seed_key: str = "seed"
    """The key of the app's configuration that holds the seed, a whole number; its value is the first one."""
    n_jobs: int | None = at_least(1, None)
    """Trials at a time, at most. Null fills every slot that the launcher has."""
    max_failure_rate: float | None = at_least(0, None)
    """The share of trials (0 to 1) that may fail; beyond it none starts. Null runs all, and exits with 1 if any did."""
    max_attempts: int = at_least(1, 3)
    """Attempts that may be lost, or reach a time limit without having advanced, before a trial is given up."""
    target: float | None = None
    """Enough: once a trial returned this objective or a better one, no further trial starts, and the study is done."""
    patience: int | None = at_least(1, None)
    """Enough: once so many trials ended without an improvement of the best, the same."""
    max_hours: float | None = field(default=None, metadata={"above": 0})
    """A budget: hours in which some trial of the study waited or ran, over all its drivers. No trial starts once it is
    spent, nor one whose predicted end lies beyond it."""
    max_gpu_hours: float | None = field(default=None, metadata={"above": 0})
    """A budget in the same way: GPUs times hours."""
    budget_overrun: bool = False
    """Starts trials as long as the budgets are not spent, whatever is predicted of their ends."""
    memory_axes: list[str] = field(default_factory=list)
    """What needs at least as much on each of these as a trial that ran out of memory, all else being equal, is not
    tried: keys, or a key by another one, as in '[batch_size/gpus,model.filters]'."""
    start: list[dict[str, Any]] = field(default_factory=list)
    """Points that a search tries first: '[{lr: 0.001, batch_size: 64}]'. What one leaves out, the sampler chooses."""
    learn_from: list[str] = field(default_factory=list)
    """Earlier studies, beside this one's folder, whose trials its sampler knows of."""
    refit: list[str] | None = None
    """The overrides under which `python -m sweeps refit` trains the best trial once more, so that its model is kept."""
    refit_all_data: list[str] | None = None
    """Those that have it train on what it was judged by too: `refit --all-data`."""
    extend: bool = False
    """Lets a study of the same name go on with more values or trials than it was started with, or under other code."""
    preview: bool = False
    """Only say which trials there would be, and what they would cost."""
    notify: Any = None
    """What tells you that the study has ended or stopped: a command that reads the rest, as
    '[mail,-s,"{subject}",me@example.org]', or the webhook of a chat, '${oc.env:WEBHOOK}'. See docs/notify.md."""
    params: dict[str, Any] = field(default_factory=dict)
    """The search space, in Hydra's override grammar: lr: tag(log, interval(1e-4, 1e-1))."""
    conditional_params: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Parameters that exist only under a choice: in YAML optimizer=adam: {optimizer.beta_2: "0.99,0.999"}, typed
    '+hydra.sweeper.conditional_params={optimizer\\=adam: {optimizer.beta_2: "0.99,0.999"}}'."""
    custom_search_space: str | None = None
    """Dotted name of f(cfg, trial), which calls trial.suggest_*() of Optuna for further parameters."""
    tracking_uri: str | None = None
    """Where MLflow keeps the runs. Null follows MLFLOW_TRACKING_URI, or else mlflow.db in the working folder."""
    tracking: bool = True
    """False keeps the study out of MLflow."""
    experiment: str = "sweepyard"
    """The MLflow experiment that holds the studies."""

    def __post_init__(self) -> None:
        for name in _CHOSEN:
            if isinstance(chosen := getattr(self, name), str):
                raise ValueError(
                    f"hydra.sweeper.{name}={chosen}: it is chosen with slashes: hydra/sweeper/{name}={chosen}"
                )
        if (self.n_trials or 0) > MOST_TRIALS:
            raise ValueError(f"hydra.sweeper.n_trials={self.n_trials}: more than a million trials; type fewer")
        if (self.max_failure_rate or 0) > 1:
            raise ValueError(f"hydra.sweeper.max_failure_rate={self.max_failure_rate}: it must be between 0 and 1")
        for direction in self.directions:
            if direction not in {"minimize", "maximize"}:
                raise ValueError(f"hydra.sweeper.direction={direction}: choose minimize or maximize")
        if not self.directions:
            raise ValueError("hydra.sweeper.direction=[] names none; type hydra.sweeper.direction=maximize")
        if len(self.objectives) != len(self.directions):
            ask = "give one direction for each objective, as in 'hydra.sweeper.direction=[maximize,minimize]'"
            raise ValueError(f"{len(self.objectives)} objectives, but {len(self.directions)} directions: {ask}")
        if self.final_race and len(self.directions) > 1:
            said = f"hydra.sweeper.final_race={self.final_race} looks for one winner, by one objective"
            raise ValueError(f"{said}: of {len(self.directions)} the answer is a front; leave it out")
        for name in ("target", "patience"):
            if getattr(self, name) is not None and len(self.directions) > 1:
                raise ValueError(f"hydra.sweeper.{name} is for one objective, and this study has several: leave it out")

    @property
    def directions(self) -> tuple[str, ...]:
        """One for each objective."""
        return tuple(self.direction) if isinstance(self.direction, list) else (self.direction,)

    @property
    def most(self) -> int | None:
        """Trials of a grid at most, where n_trials counts configurations."""
        return self.n_trials and self.n_trials * self.repeats

    @property
    def objectives(self) -> tuple[str, ...]:
        """Their names; numbered where the task function returns numbers."""
        count = len(self.directions)
        names = self.objective or (["objective"] if count == 1 else [f"objective_{i}" for i in range(count)])
        return tuple(map(str, names if isinstance(names, list) else [names]))


@dataclass
class LocalLauncherConf:
    """hydra/launcher=local: trials as forks of a warm process on this machine."""

    _target_: str = "hydra_plugins.sweepyard.LocalLauncher"
    nodes: int = at_least(1, 1)
    """This machine is one; for more choose hydra/launcher=slurm."""
    tasks_per_node: int = at_least(1, 1)
    """Processes (ranks) of a trial. All of them run it; rank 0, the chief, reports and writes its end."""
    rank_timeout_s: float = at_least(1, 120.0)
    """Seconds that the ranks of a trial wait for one that does not come or hangs, before they give the attempt up."""
    gpus_per_node: int = at_least(0, 0)
    """GPUs that a trial owns."""
    cpus_per_task: int | None = at_least(0, None)
    """CPU cores that each of its processes owns. Null: one, or with GPUs their share. 0: none, for those that wait."""
    mem_gb: float | None = at_least(0.001, None)
    """The limit of a trial's resident memory, in GB, what it starts included. Null: none, and 1 GB is its estimate."""
    timeout_min: float | None = at_least(0.001, None)
    """Minutes an attempt may take."""
    preload: list[str] = field(default_factory=list)
    """Modules to import once, before the trials are forked."""


@dataclass
class SlurmLauncherConf:
    """hydra/launcher=slurm: each trial a SLURM job, submitted by submitit."""

    _target_: str = "hydra_plugins.sweepyard.SlurmLauncher"
    timeout_min: int = at_least(1, 60)
    """Time limit of a job, in minutes."""
    signal_delay_s: int = at_least(0, 120)
    """A trial is warned so many seconds before its time limit: it saves its state, to go on in a new job."""
    nodes: int = at_least(1, 1)
    """Nodes of a job."""
    tasks_per_node: int = at_least(1, 1)
    """Tasks (ranks) on each node. All of them run the trial; rank 0, the chief, reports and writes its end."""
    rank_timeout_s: float = at_least(1, 120.0)
    """Seconds that the ranks of a trial wait for one that does not come or hangs, before they give the attempt up."""
    cpus_per_task: int | None = at_least(1, None)
    """CPU cores of a task."""
    cpus_per_gpu: int | None = at_least(1, None)
    """CPU cores for each GPU, instead of cpus_per_task; none without a GPU."""
    gpus_per_node: int | None = at_least(0, None)
    """GPUs on each node, as --gpus-per-node."""
    gpus_per_task: int | None = at_least(0, None)
    """GPUs of each task, as --gpus-per-task."""
    gres: str | None = None
    """Generic resources, as --gres, for sites that count GPUs so: gpu:2."""
    mem_gb: float | None = at_least(0.001, None)
    """Memory on each node, in GB. Null asks for 4, or with mem_per_cpu or mem_per_gpu for what those make."""
    mem_per_cpu: str | None = None
    """Memory for each CPU core, as SLURM writes it: 4G."""
    mem_per_gpu: str | None = None
    """Memory for each GPU, as SLURM writes it: 16G."""
    partition: str | None = None
    """The partition to submit to, as --partition. Null: the cluster's default."""
    qos: str | None = None
    """The quality of service, as --qos."""
    account: str | None = None
    """The account to charge, as --account."""
    constraint: str | None = None
    """Features that nodes must have, as --constraint."""
    exclude: str | None = None
    """Nodes to stay away from, as node[3-5]."""
    comment: str | None = None
    """A comment that SLURM keeps with each job."""
    setup: list[str] | None = None
    """Shell lines run before the trial, such as module load cuda. Where a line fails the trial is refused."""
    srun_args: list[str] | None = None
    """Further options of srun."""
    additional_parameters: dict[str, Any] = field(default_factory=dict)
    """Further options of sbatch, by their long names: {reservation: course}."""
    array_parallelism: int = at_least(1, 256)
    """Jobs queued or running at a time. hydra.sweeper.n_jobs bounds them too."""
    trials_per_job: int | None = at_least(1, 1)
    """Above 1 a job is a worker that runs so many trials in a warm process; null: as many as its time allows."""
    trials_at_once: int = at_least(1, 1)
    """Trials that a worker runs side by side. It asks for so many times the cores, GPUs and memory of one."""
    worker_idle_s: float = 60
    """Seconds that a worker waits for its next trial before it ends."""
    preload: list[str] = field(default_factory=list)
    """Modules that a worker imports once, before its trials are forked."""
    max_num_timeout: int | None = at_least(0, None)
    """Times that a trial may reach its time limit and go on. Null: as often as each attempt advances."""
    detach: bool = False
    """Submit what there is room for (for warm workers: a whole grid), say how to come back, and end: the jobs go on."""
    keep_on_interrupt: bool = False
    """Whether Ctrl-C leaves the jobs alone. Else those that run end their epoch, and those that wait are cancelled."""
    max_submissions_per_min: int = at_least(1, 600)
    """How fast jobs are submitted, at most."""
    poll_s: float = at_least(0.5, 5.0)
    """Seconds between two looks at SLURM's queue. A trial that ends by itself is seen at once."""

    def __post_init__(self) -> None:
        if self.trials_per_job == 1 and self.trials_at_once > 1:
            raise ValueError("hydra.launcher.trials_at_once is for workers: set trials_per_job above 1, or to null")
        for name in self.additional_parameters:
            if name.replace("_", "-") in {"array", "error", "job-name", "no-requeue", "output", "requeue", "signal"}:
                raise ValueError(f"hydra.launcher.additional_parameters.{name}: the launcher sets it; leave it out")
