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
FOREIGN_NAMES = {"time": "timeout_min", "gpus": "gpus_per_node", "cpus": "cpus_per_task", "name": "study_name"}
FOREIGN_NAMES |= {"memory": "mem_gb", "n_workers": "n_jobs"}
"""Names that other tools have for our settings, and that difflib does not match."""

MAX_TRIALS = 1_000_000
_CHOSEN = ("sampler", "pruner")
SINGLE_RUN_SETTINGS = ("objective", "direction", "tracking", "tracking_uri", "tracking_required", "experiment")
"""The sweeper's settings that a single run, without -m, uses."""


def read(node: DictConfig, kind: type[Settings]) -> Settings:
    """Return the settings of a config's node. Raises UserError if a setting is unknown, or out of its range."""
    prefix = "hydra.sweeper" if kind is SweeperConf else "hydra.launcher"
    names = [setting.name for setting in fields(kind)]
    for name in (str(key) for key in node if key not in names):
        problem = f"{prefix}.{name} is no setting of {node._target_}"
        if suggestion := suggest_setting(f"{prefix}.{name}"):
            raise UserError(f"{problem}\nType: {suggestion}")
        near = [FOREIGN_NAMES[name]] if FOREIGN_NAMES.get(name) in names else difflib.get_close_matches(name, names, 1)
        meant = f". Did you mean {prefix}.{near[0]}?" if near else ""
        option = f"+hydra.launcher.additional_parameters.{name}={node[name]}"
        hint = f"\nFor an option of sbatch, type: {option}" if kind is SlurmLauncherConf else ""
        raise UserError(f"{problem}{meant}{hint}")
    try:
        settings = OmegaConf.to_object(node)
    except OmegaConfBaseException as error:
        first_line = str(error).splitlines()[0]  # because the other lines name OmegaConf's own objects
        problem = first_line.rpartition(" raised while resolving interpolation: ")[2].strip('"')
        raise UserError(f"{error.full_key or node._get_full_key(None)}: {problem}") from error
    except ValueError as error:
        raise UserError(str(error)) from error
    assert isinstance(settings, kind)
    for setting in fields(kind):
        key, value = f"{prefix}.{setting.name}", getattr(settings, setting.name)
        least, above = setting.metadata.get("least"), setting.metadata.get("above")
        if str(setting.type).startswith("list") and isinstance(value, str):  # because an interpolation may bring a text
            raise UserError(f"{key}={value}: it must be a list, as in [{value}]")
        if isinstance(value, float) and math.isnan(value):
            raise UserError(f"{key}=nan: it must be a number")
        if None not in (value, least) and value < least:
            raise UserError(f"{key}={value}: it must be {least} or more")
        if None not in (value, above) and value <= above:
            raise UserError(f"{key}={value}: nothing could start.\nFor no limit, type: {key}=null")
    return settings


def suggest_setting(word: str) -> str:
    """Return what to type for a setting in the wrong group, or with another tool's name; empty if `word` is right."""
    section, _, name = word.rpartition(".")
    name = FOREIGN_NAMES.get(name, name) if section else name
    slurm = "hydra/launcher=slurm hydra.launcher"
    sections = {"hydra.sweeper": SweeperConf, "hydra.launcher": LocalLauncherConf, slurm: SlurmLauncherConf}
    for right_section, kind in sections.items() if section in {"", *sections} else ():
        if name in {setting.name for setting in fields(kind)}:
            suggestion = f"hydra/sweeper/{name}=..." if name in _CHOSEN else f"{right_section}.{name}=..."
            return "" if section == right_section else suggestion
    return ""


def at_least(least: float, default: float | None) -> Any:
    """Return the field of a number that may not be below `least`."""
    return field(default=default, metadata={"least": least})


@dataclass
class SweeperConf:
    """hydra/sweeper=grid and hydra/sweeper=optuna."""

    _target_: str = "hydra_plugins.sweepyard.StudySweeper"
    _recursive_: bool = False
    sampler: Any = None
    """Sampler: choose each next trial. hydra/sweeper/sampler=grid, default, tpe, random, gp, cmaes, nsgaii or qmc."""
    pruner: Any = None
    """Pruner: end a trial early. hydra/sweeper/pruner=none, median, asha, hyperband, percentile or wilcoxon."""
    objective: Any = None
    """Objective: the metric to optimize, or a list of metrics. Null: the task function returns a number."""
    direction: Any = "minimize"
    """Direction: minimize or maximize the objective. For several objectives: a list with a direction for each."""
    study_name: str | None = None
    """Name of the study. The name of an existing study resumes that study. Null: the time of the start."""
    storage: str | None = None
    """Optuna storage to mirror the study in, for optuna-dashboard: sqlite:///studies.db. Null: none."""
    n_trials: int | None = at_least(1, None)
    """Number of trials; with `repeats`, of configurations. Default: 20 in a search, every point in a grid."""
    repeats: int = at_least(1, 1)
    """Replicates: run each configuration of a search with this many seeds. The search uses their mean."""
    final_race: int = at_least(0, 0)
    """Final race: run this many of the best configurations with fresh seeds. t-tests eliminate the worse. 0: none."""
    final_race_seeds: int = at_least(2, 5)
    """Final race: the maximum number of fresh seeds for each configuration."""
    seed_key: str = "seed"
    """Key of the app's configuration that holds the seed, a whole number. Its value is the first seed."""
    n_jobs: int | None = at_least(1, None)
    """Maximum number of trials at a time. Null: as many as the launcher has room for."""
    max_failure_rate: float | None = at_least(0, None)
    """Failure limit: start no trial once more than this fraction (0 to 1) failed. Null: exit with 1 if any failed."""
    max_attempts: int = at_least(1, 3)
    """Retries: give up a trial after this many attempts that were lost, or timed out without progress."""
    target: float | None = None
    """Target: stop the search once a trial reaches this objective. The study is then finished. Null: no target."""
    patience: int | None = at_least(1, None)
    """Early stopping: stop after this many trials without improvement. The study is then finished. Null: never."""
    max_hours: float | None = field(default=None, metadata={"above": 0})
    """Budget: hours of wall-clock time with at least one trial queued or running, summed over all starts. No trial
    starts once the budget is spent, or if its predicted end exceeds the budget. Null: no limit."""
    max_gpu_hours: float | None = field(default=None, metadata={"above": 0})
    """Budget: GPU-hours (GPUs times hours). No trial starts once they are spent, or if the trial would exceed them."""
    budget_overrun: bool = False
    """Start trials as long as the budgets are not spent, even if their predicted ends exceed the budgets."""
    memory_axes: list[str] = field(default_factory=list)
    """Keys that memory grows with, or key/key, as in '[batch_size/gpus,model.filters]'. After an out-of-memory trial,
    skip points that need at least as much on each axis and are otherwise equal."""
    start: list[dict[str, Any]] = field(default_factory=list)
    """Warm start: points to try first: '[{lr: 0.001, batch_size: 64}]'. The sampler chooses any omitted params."""
    learn_from: list[str] = field(default_factory=list)
    """Warm start: earlier studies whose trials the sampler uses, by name (beside this study's folder) or by path."""
    refit: list[str] | None = None
    """Overrides of `python -m sweeps refit`, which trains the best trial once more and saves its model."""
    refit_all_data: list[str] | None = None
    """Overrides of `python -m sweeps refit --all-data`, which trains on the validation data, too."""
    extend: bool = False
    """Extend the study of this name: resume the study with more values, more trials or changed code."""
    preview: bool = False
    """Preview: only print the trials that would run, and their cost."""
    notify: Any = None
    """Notification at the end: '[mail,-s,"{subject}",me@example.org]', or '${oc.env:WEBHOOK}'. See docs/notify.md."""
    points: Any = None
    """Grid of listed points, each with all swept values: '[{loss: mse, lr: 1},{loss: mae}]', or a CSV file's path."""
    params: dict[str, Any] = field(default_factory=dict)
    """Search space in Hydra's override grammar: lr: tag(log, interval(1e-4, 1e-1))."""
    conditional_params: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Params that exist only under a choice: in YAML optimizer=adam: {optimizer.beta_2: "0.99,0.999"}, typed
    '+hydra.sweeper.conditional_params={optimizer\\=adam: {optimizer.beta_2: "0.99,0.999"}}'."""
    custom_search_space: str | None = None
    """Dotted name of f(cfg, trial), which calls trial.suggest_*() of Optuna for further params."""
    tracking_uri: str | None = None
    """Address of MLflow's store. Null: MLFLOW_TRACKING_URI, or else mlflow.db in the working folder."""
    tracking: bool = True
    """Track the study in MLflow."""
    tracking_required: bool = True
    """Start a new study only if MLflow answers. False: start without it, and send everything once it answers."""
    experiment: str = "sweepyard"
    """MLflow experiment of the studies."""

    def __post_init__(self) -> None:
        for name in _CHOSEN:
            if isinstance(choice := getattr(self, name), str):
                problem = f"hydra.sweeper.{name}={choice}: a {name} is chosen with slashes"
                raise ValueError(f"{problem}.\nType: hydra/sweeper/{name}={choice}")
        if (self.n_trials or 0) > MAX_TRIALS:
            raise ValueError(f"hydra.sweeper.n_trials={self.n_trials}: it must be at most {MAX_TRIALS}")
        if (self.max_failure_rate or 0) > 1:
            raise ValueError(f"hydra.sweeper.max_failure_rate={self.max_failure_rate}: it must be between 0 and 1")
        if wrong := [direction for direction in self.directions if direction not in {"minimize", "maximize"}]:
            raise ValueError(f"hydra.sweeper.direction={wrong[0]}: choose minimize or maximize")
        if not (count := len(self.directions)):
            raise ValueError("hydra.sweeper.direction=[]: the list is empty.\nType: hydra.sweeper.direction=maximize")
        if len(self.objectives) != count:
            problem = f"hydra.sweeper.direction: {len(self.objectives)} objectives, but {count} directions"
            raise ValueError(f"{problem}.\nType one for each, as in 'hydra.sweeper.direction=[maximize,minimize]'")
        for name in ("final_race", "target", "patience"):
            if count > 1 and (value := getattr(self, name)) != getattr(SweeperConf, name):
                problem = f"hydra.sweeper.{name}={value}: it needs one objective, but this study has {count}"
                raise ValueError(f"{problem}.\nRemove hydra.sweeper.{name}")

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
        """Return the names of the objectives; numbered names if the task function returns numbers."""
        count = len(self.directions)
        names = self.objective or (["objective"] if count == 1 else [f"objective_{i}" for i in range(count)])
        return tuple(map(str, names if isinstance(names, list) else [names]))


@dataclass
class LocalLauncherConf:
    """hydra/launcher=local: trials as forks of a warm process on this machine."""

    _target_: str = "hydra_plugins.sweepyard.LocalLauncher"
    nodes: int = at_least(1, 1)
    """Number of nodes: 1, this machine. For more nodes, choose hydra/launcher=slurm."""
    tasks_per_node: int = at_least(1, 1)
    """Processes (ranks) of a trial. All ranks run the trial; rank 0, the chief, reports and writes the outcome."""
    rank_timeout_s: float = at_least(1, 120.0)
    """Seconds that the ranks of a trial wait for a missing or hanging rank before they abort the attempt."""
    gpus_per_node: int = at_least(0, 0)
    """Number of GPUs for each trial."""
    cpus_per_task: int | None = at_least(0, None)
    """CPU cores for each process. Null: 1, or with GPUs an equal share of all cores. 0: for trials that only wait."""
    mem_gb: float | None = at_least(0.001, None)
    """Limit of a trial's resident memory with child processes, in GB. Null: none; 1 GB for each rank is assumed."""
    timeout_min: float | None = at_least(0.001, None)
    """Time limit of an attempt, in minutes. Null: no limit."""
    preload: list[str] = field(default_factory=list)
    """Modules to import once, before the trials are forked."""


@dataclass
class SlurmLauncherConf:
    """hydra/launcher=slurm: each trial a SLURM job, submitted by submitit."""

    _target_: str = "hydra_plugins.sweepyard.SlurmLauncher"
    timeout_min: int = at_least(1, 60)
    """Time limit of a job, in minutes."""
    signal_delay_s: int = at_least(0, 120)
    """Seconds before the time limit at which a trial gets a signal, saves its state, and resumes in a new job."""
    nodes: int = at_least(1, 1)
    """Number of nodes of a job."""
    tasks_per_node: int = at_least(1, 1)
    """Tasks (ranks) on each node. All ranks run the trial; rank 0, the chief, reports and writes the outcome."""
    rank_timeout_s: float = at_least(1, 120.0)
    """Seconds that the ranks of a trial wait for a missing or hanging rank before they abort the attempt."""
    cpus_per_task: int | None = at_least(1, None)
    """Number of CPU cores for each task, as --cpus-per-task."""
    cpus_per_gpu: int | None = at_least(1, None)
    """Number of CPU cores for each GPU, instead of cpus_per_task. Without a GPU, it has no effect."""
    gpus_per_node: int | None = at_least(0, None)
    """Number of GPUs on each node, as --gpus-per-node."""
    gpus_per_task: int | None = at_least(0, None)
    """Number of GPUs for each task, as --gpus-per-task."""
    gres: str | None = None
    """Generic resources, as --gres, for sites that request GPUs in this way: gpu:2."""
    mem_gb: float | None = at_least(0.001, None)
    """Memory on each node, in GB. Null: 4, or as requested by mem_per_cpu or mem_per_gpu."""
    mem_per_cpu: str | None = None
    """Memory for each CPU core, in SLURM's notation: 4G."""
    mem_per_gpu: str | None = None
    """Memory for each GPU, in SLURM's notation: 16G."""
    partition: str | None = None
    """Partition to submit to, as --partition. Null: the cluster's default."""
    qos: str | None = None
    """Quality of service, as --qos."""
    account: str | None = None
    """Account to charge, as --account."""
    constraint: str | None = None
    """Features that nodes must have, as --constraint."""
    exclude: str | None = None
    """Nodes to avoid, as --exclude: node[3-5]."""
    comment: str | None = None
    """Comment that SLURM stores with each job, as --comment."""
    setup: list[str] | None = None
    """Shell lines to run before the trial, such as module load cuda. If a line fails, the trial is refused."""
    srun_args: list[str] | None = None
    """Further options of srun."""
    additional_parameters: dict[str, Any] = field(default_factory=dict)
    """Further options of sbatch, by their long names: {reservation: course}."""
    array_parallelism: int = at_least(1, 256)
    """Maximum number of jobs queued or running at a time. hydra.sweeper.n_jobs is a second limit."""
    trials_per_job: int | None = at_least(1, 1)
    """Trials for each job. Above 1, a job is a worker, a warm process. Null: as many as the time limit allows."""
    trials_at_once: int = at_least(1, 1)
    """Trials that a worker runs side by side. A job requests this many times the cores, GPUs and memory of a trial."""
    worker_idle_s: float = 60
    """Seconds that a worker waits for its next trial before it ends."""
    preload: list[str] = field(default_factory=list)
    """Modules that a worker imports once, before its trials are forked."""
    max_num_timeout: int | None = at_least(0, None)
    """Times that a trial may reach its time limit and resume. Null: no limit while each attempt makes progress."""
    detach: bool = False
    """Detach: submit as many jobs as fit (with workers, a whole grid), print how to resume, and exit. Jobs continue."""
    keep_on_interrupt: bool = False
    """Keep all jobs after Ctrl-C. False: running jobs finish their epoch, and queued jobs are cancelled."""
    max_submissions_per_min: int = at_least(1, 60)
    """Maximum number of job submissions per minute."""
    poll_s: float = at_least(0.5, 5.0)
    """Seconds between polls of SLURM's queue after a change, then up to 12 times as many. Ends are noticed without."""

    def __post_init__(self) -> None:
        if self.trials_per_job == 1 and self.trials_at_once > 1:
            problem = f"hydra.launcher.trials_at_once={self.trials_at_once}: it needs workers"
            raise ValueError(f"{problem}.\nType hydra.launcher.trials_per_job=null, or a number above 1")
        for name in self.additional_parameters:
            if name.replace("_", "-") in {"array", "error", "job-name", "no-requeue", "output", "requeue", "signal"}:
                setting = f"hydra.launcher.additional_parameters.{name}"
                raise ValueError(f"{setting}: the launcher sets this option. Remove it")
