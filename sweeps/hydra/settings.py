"""The settings of the launchers, and how all settings are read. Each dataclass is the reference of
its Hydra group.

Names are those of hydra-optuna-sweeper and hydra-submitit-launcher, so that a config written for
them works here.
"""

import difflib
import math
import re
import shlex
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sweeps.base.errors import UserError
from sweeps.hydra.foreign_names import OfJoblib, OfSubmitit, foreign_names, own_names
from sweeps.hydra.slurm_options import options_of_sbatch, options_of_srun
from sweeps.hydra.sweeper_settings import CHOSEN, SweeperConf, at_least

__all__ = [
    "FOREIGN_NAMES",
    "LocalLauncherConf",
    "SlurmLauncherConf",
    "SweeperConf",
    "read",
    "suggest_setting",
]

Settings = TypeVar("Settings", "SweeperConf", "LocalLauncherConf", "SlurmLauncherConf")
FOREIGN_NAMES = {
    "time": "timeout_min",
    "gpus": "gpus_per_node",
    "cpus": "cpus_per_task",
    "name": "study_name",
    "bs": "batch_size",
    "memory": "mem_gb",
    "n_workers": "n_jobs",
    "jobs": "n_jobs",
    "bayes": "gp",
    "bayesian": "gp",
}
"""Names that other tools have for our settings and samplers, and that difflib does not match."""

_LEAST_GB = 0.001  # because sbatch takes whole megabytes

SINGLE_RUN_SETTINGS = (
    "objective",
    "direction",
    "tracking",
    "tracking_uri",
    "tracking_required",
    "experiment",
)
"""The sweeper's settings that a single run, without -m, uses."""


def read(node: DictConfig, kind: type[Settings]) -> Settings:
    """Return the settings of a config's node. Raises UserError if a setting is unknown, or out of
    its range."""
    _refuse_unknown(node, kind)
    settings = _build(node, kind)
    for setting in fields(kind):
        _check_range(f"{_section(kind)}.{setting.name}", getattr(settings, setting.name), setting)
    return settings


def _section(kind: type) -> str:
    return "hydra.sweeper" if kind is SweeperConf else "hydra.launcher"


def _refuse_unknown(node: DictConfig, kind: type) -> None:
    """Raise UserError for a setting that we do not have."""
    prefix = _section(kind)
    names = own_names(kind)
    unset = foreign_names(kind)
    written: Any = OmegaConf.to_container(node)
    for name, value in written.items():
        if name in names or (name in unset and value is None):
            continue
        problem = f"{prefix}.{name} is no setting of {node._target_}"
        if suggestion := suggest_setting(f"{prefix}.{name}"):
            typed = suggestion.replace("...", shlex.quote(str(value)))
            raise UserError(f"{problem}\nType: {typed}")
        near = [FOREIGN_NAMES[name]] if FOREIGN_NAMES.get(name) in names else []
        near += difflib.get_close_matches(str(name), names, 1)
        meant = f". Did you mean {prefix}.{near[0]}?" if near else ""
        option = f"+hydra.launcher.additional_parameters.{name}={value}"
        hint = f"\nFor an option of sbatch, type: {option}" if kind is SlurmLauncherConf else ""
        raise UserError(f"{problem}{meant}{hint}")


def _build(node: DictConfig, kind: type[Settings]) -> Settings:
    """Return a config's node as our dataclass. Raises UserError if a value is missing, or of
    another type."""
    try:
        settings = OmegaConf.to_object(node)
    except OmegaConfBaseException as error:
        # because the other lines name OmegaConf's own objects
        first_line = str(error).splitlines()[0]
        problem = first_line.rpartition(" raised while resolving interpolation: ")[2].strip('"')
        problem = f"{error.full_key or node._get_full_key(None)}: {problem}"
        raise UserError(problem + _advise_reference(problem, node._get_root())) from error
    except ValueError as error:
        raise UserError(str(error)) from error
    assert isinstance(settings, kind)
    return settings


def _advise_reference(problem: str, root: Any) -> str:
    """Return what to type in place of the value by which a reference leads to no key; empty if no
    typed word is such a value."""
    match = re.search(r"Interpolation key '(.+)' not found", problem)
    section: Any = root
    for part in match[1].split(".") if match else ():
        if not isinstance(section, DictConfig):
            break
        if part not in section:
            words = [word for word in root.hydra.overrides.task if word.endswith(f"={part}")]
            nodes = [str(name) for name in section]
            sections = [name for name in nodes if isinstance(section._get_node(name), DictConfig)]
            near = difflib.get_close_matches(part, sections, 1) or sections
            keys = [word.removesuffix(part) for word in words[:1]]
            typed = " or ".join(key + name for key in keys for name in near)
            return f".\nType: {typed}" if typed else ""
        section = section._get_node(part)
    return ""


def _check_range(key: str, value: Any, setting: Field[Any]) -> None:
    """Raise UserError if the value of a setting is out of its range."""
    least = setting.metadata.get("least")
    above = setting.metadata.get("above")
    # because an interpolation may bring a text
    if str(setting.type).startswith("list") and isinstance(value, str):
        raise UserError(f"{key}={value}: it must be a list.\nType: {key}=[{value}]")
    if isinstance(value, float) and math.isnan(value):
        raise UserError(f"{key}=nan: it must be a number.\nType one, or remove {key}=nan")
    if None not in (value, least) and value < least:
        raise UserError(f"{key}={value}: it must be {least} or more.\nType at least {key}={least}")
    if None not in (value, above) and value <= above:
        raise UserError(f"{key}={value}: nothing could start.\nFor no limit, type: {key}=null")


def suggest_setting(word: str) -> str:
    """Return what to type for a setting in the wrong group, or with another tool's name; empty if
    `word` is right."""
    section, _, name = re.sub(r"^hydra[./](?=[^./]*$)", "", word).rpartition(".")
    name = FOREIGN_NAMES.get(name, name) if section else name
    section = "" if section in ("sweeper", "launcher") else section
    for right_section, kind in _SECTIONS.items() if section in {"", *_SECTIONS} else ():
        if name in own_names(kind):
            typed = f"hydra/sweeper/{name}" if name in CHOSEN else f"{right_section}.{name}"
            return "" if section == right_section else f"{typed}=..."
    return ""


def near_setting(name: str) -> str:
    """Return the setting of the sweeper or a launcher that was likely meant; empty if none is
    near."""
    settings = [setting for kind in _SECTIONS.values() for setting in own_names(kind)]
    names = [setting for setting in settings if not setting.startswith("_")]
    return next(iter(difflib.get_close_matches(name, names, 1, cutoff=0.8)), "")


def short_min(short_trial_min: float | None, timeout_min: float) -> float:
    """Return the minutes below which a trial is short: `short_trial_min` or, if that is None, its
    default."""
    return min(10, timeout_min) if short_trial_min is None else short_trial_min


@dataclass
class LocalLauncherConf(OfSubmitit, OfJoblib):
    """hydra/launcher=local: trials as forks of a warm process on this machine."""

    _target_: str = "hydra_plugins.sweepyard.LocalLauncher"
    nodes: int = at_least(1, 1)
    """Number of nodes: 1, this machine. For more nodes, choose hydra/launcher=slurm."""
    tasks_per_node: int = at_least(1, 1)
    """Processes (ranks) of a trial. All ranks run the trial; rank 0, the chief, reports and writes
    the outcome."""
    rank_timeout_s: float = at_least(1, 120.0)
    """Seconds that the ranks of a trial wait for a missing or hanging rank before they abort the
    attempt."""
    gpus_per_node: int | None = at_least(0, 0)
    """Number of GPUs for each trial. Null: none."""
    trials_per_gpu: int = at_least(1, 1)
    """Trials that share one GPU, each with an equal part of its memory and of its cores. It needs
    gpus=1."""
    cpus_per_task: int | None = at_least(0, None)
    """CPU cores for each process. Null: 1, or with GPUs an equal share of all cores. 0: for trials
    that only wait."""
    mem_gb: float | None = at_least(0.001, None)
    """Limit of a trial's resident memory with child processes, in GB. Null: none; 1 GB for each
    rank is assumed."""
    timeout_min: float | None = at_least(0.001, None)
    """Time limit of an attempt, in minutes. Null: no limit."""
    preload: list[str] = field(default_factory=list)
    """Modules to import once, before the trials are forked."""
    idle_gpu_min: float | None = field(default=30, metadata={"above": 0})
    """Minutes for which a GPU of a running trial is idle before a warning is printed. Null: no
    warning."""
    co2_g_per_kwh: float | None = at_least(0, None)
    """Emissions of the site's electricity, in grams of CO2 for each kWh. Null: emissions are not
    shown."""


@dataclass
class SlurmLauncherConf(OfSubmitit, OfJoblib):
    """hydra/launcher=slurm: each trial a SLURM job, submitted by submitit."""

    _target_: str = "hydra_plugins.sweepyard.SlurmLauncher"
    timeout_min: int = at_least(1, 60)
    """Time limit of a job, in minutes."""
    signal_delay_s: int = at_least(0, 120)
    """Seconds before the time limit at which a trial gets a signal, saves its state, and resumes in
    a new job."""
    nodes: int = at_least(1, 1)
    """Number of nodes of a job."""
    tasks_per_node: int = at_least(1, 1)
    """Tasks (ranks) on each node. All ranks run the trial; rank 0, the chief, reports and writes
    the outcome."""
    rank_timeout_s: float = at_least(1, 120.0)
    """Seconds that the ranks of a trial wait for a missing or hanging rank before they abort the
    attempt."""
    cpus_per_task: int | None = at_least(1, None)
    """Number of CPU cores for each task, as --cpus-per-task."""
    cpus_per_gpu: int | None = at_least(1, None)
    """Number of CPU cores for each GPU, instead of cpus_per_task. Without a GPU, it has no
    effect."""
    gpus_per_node: int | None = at_least(0, None)
    """Number of GPUs on each node, as --gpus-per-node."""
    gpus_per_task: int | None = at_least(0, None)
    """Number of GPUs for each task, as --gpus-per-task."""
    gres: str | None = None
    """Generic resources, as --gres: gpu:2. A kind of GPU or MIG slice, as in gpu:a100, is counted
    by gpus_per_node."""
    mem_gb: float | None = at_least(0, None)
    """Memory on each node, in GB. Null: 4, or as requested by mem_per_cpu or mem_per_gpu. 0: all
    memory of the node."""
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
    """Shell lines to run before the trial, such as module load cuda. If a line fails, the trial is
    refused."""
    modules: list[str] = field(default_factory=list)
    """Environment modules to load before the setup lines, after one `module purge`: [gcc/13,
    cuda/12.4]."""
    python: str | None = None
    """Python that runs the jobs: a path, or a name on their PATH. Null: the driver's; in a
    container: python."""
    container: str | None = None
    """Container that runs the trials: an image file for Apptainer, or with Pyxis also the name of
    an image."""
    container_binds: list[str] = field(default_factory=list)
    """Further folders to mount in the container, as source:target. The study, the code and the cwd
    are mounted."""
    stage: list[str] | None = None
    """Files and folders to copy to the node's disk ($SLURM_TMPDIR, $TMPDIR or /tmp), once for each
    node and job."""
    clusters: str | None = None
    """Cluster to submit to, as --clusters, at sites with several clusters. Null: the cluster of
    this machine."""
    srun_args: Any = None
    """Further options of srun: a list, or one text."""
    additional_parameters: dict[str, Any] = field(default_factory=dict)
    """Further options of sbatch, by their long names: {reservation: course, spread-job: true}.
    false or null: not that option. A list becomes one text with commas."""
    array: str = "auto"
    """Job arrays: auto sends trials of a grid that request the same, and their workers, as arrays,
    never sends each job alone, always also sends a single trial or worker as an array."""
    array_parallelism: int = at_least(1, 256)
    """Maximum number of jobs that run at a time; without arrays, also of queued jobs.
    hydra.sweeper.n_jobs is a second limit."""
    trials_per_job: Any = "auto"
    """Trials for each job. Above 1, a job is a worker, a warm process. Null: as many as the time
    limit allows. auto: 1, and null once trials have turned out to be short."""
    short_trial_min: float | None = at_least(0, None)
    """auto: minutes below which a trial is short. Null: 10, or timeout_min if that is less."""
    trials_at_once: int = at_least(1, 1)
    """Trials that a worker runs side by side. A job requests this many times the cores, GPUs and
    memory of a trial."""
    trials_per_gpu: int = at_least(1, 1)
    """Trials that share one GPU in a worker, each with an equal part of its memory. It needs
    gpus=1. With trials_at_once, a worker has that many GPUs, each with this many trials."""
    worker_idle_s: float = 60
    """Seconds that a worker waits for its next trial before it ends."""
    preload: list[str] = field(default_factory=list)
    """Modules that a worker imports once, before its trials are forked."""
    max_num_timeout: int | None = at_least(0, None)
    """Times that a trial may reach its time limit and resume. Null: no limit while each attempt
    makes progress."""
    detach: bool = False
    """Detach: submit as many jobs as fit (with workers, a whole grid), print how to resume, and
    exit. Jobs continue."""
    keep_on_interrupt: bool = False
    """Keep all jobs after Ctrl-C. False: running jobs finish their epoch, and queued jobs are
    cancelled."""
    driver: str = "here"
    """Place of the driver: here, or job, a SLURM job of its own that submits its successor. See
    docs/how_to/driver_job.md."""
    driver_partition: str | None = None
    """Partition of the driver's job. Null: the partition of the trials."""
    driver_timeout_min: int | None = at_least(1, None)
    """Time limit of the driver's job, in minutes. Null: 24 hours, or as long as the partition
    allows."""
    max_submissions_per_min: int = at_least(1, 60)
    """Maximum number of job submissions per minute. An array counts as many as may run at a
    time."""
    poll_s: float = at_least(0.5, 5.0)
    """Seconds between polls of SLURM's queue after a change, then up to 12 times as many. Ends are
    noticed without."""
    idle_gpu_min: float | None = field(default=30, metadata={"above": 0})
    """Minutes for which a GPU of a running trial is idle before a warning is printed. Null: no
    warning."""
    co2_g_per_kwh: float | None = at_least(0, None)
    """Emissions of the site's electricity, in grams of CO2 for each kWh. Null: emissions are not
    shown."""

    @property
    def slots(self) -> int:
        """Return the number of trials that a worker runs side by side."""
        return self.trials_at_once * self.trials_per_gpu

    @property
    def short_s(self) -> float:
        """Return the seconds below which a trial is short."""
        return 60 * short_min(self.short_trial_min, self.timeout_min)

    def __post_init__(self) -> None:
        self._refuse_workers()
        self._refuse_places()
        if self.array not in ("auto", "never", "always"):
            raise ValueError(
                f"hydra.launcher.array={self.array}: unknown.\nChoose auto, never or always"
            )
        if self.mem_gb is not None and 0 < self.mem_gb < _LEAST_GB:
            raise ValueError(
                f"hydra.launcher.mem_gb={self.mem_gb:g}: it must be {_LEAST_GB} or more"
                ".\nFor all memory of the node, type hydra.launcher.mem_gb=0"
            )
        self.srun_args = options_of_srun(self.srun_args)
        self.additional_parameters = options_of_sbatch(self.additional_parameters)

    def _refuse_workers(self) -> None:
        """Raise ValueError for numbers of trials that no worker, or no job, can have."""
        per_job = self.trials_per_job
        if per_job not in ("auto", None) and not (isinstance(per_job, int) and per_job >= 1):
            raise ValueError(
                f"hydra.launcher.trials_per_job={per_job}: it is no number of trials"
                ".\nType auto, null, or a number from 1 on"
            )
        if self.short_trial_min is not None and self.short_trial_min > self.timeout_min:
            raise ValueError(
                f"hydra.launcher.short_trial_min={self.short_trial_min:g}: no trial is longer than"
                " its time limit"
                f".\nType at most hydra.launcher.short_trial_min={self.timeout_min}"
            )
        if self.trials_per_job == 1 and self.slots > 1:
            name = "trials_at_once" if self.trials_at_once > 1 else "trials_per_gpu"
            raise ValueError(
                f"hydra.launcher.{name}={getattr(self, name)}: it needs workers"
                ".\nType hydra.launcher.trials_per_job=null, or a number above 1"
            )

    def _refuse_places(self) -> None:
        """Raise ValueError for an account, a container, a cluster or a driver that cannot be."""
        # not ???, because OmegaConf merges no missing value over a default
        if self.account == "REQUIRED":
            raise ValueError(
                "hydra.launcher.account: this site charges each job to one.\nAdd"
                " hydra.launcher.account=YOURS"
            )
        if self.container_binds and not self.container:
            raise ValueError(
                "hydra.launcher.container_binds: it needs a container.\nAdd"
                " hydra.launcher.container=image.sif"
            )
        if "," in (self.clusters or ""):
            raise ValueError(
                f"hydra.launcher.clusters={self.clusters}: a study has one cluster.\nType one name"
            )
        if self.driver not in ("here", "job"):
            raise ValueError(
                f"hydra.launcher.driver={self.driver}: unknown place.\nChoose here or job"
            )
        if self.driver == "job" and self.detach:
            raise ValueError(
                "hydra.launcher.driver=job and detach=true conflict: such a driver leaves by itself"
                ".\nRemove hydra.launcher.detach=true"
            )


_SECTIONS = {
    "hydra.sweeper": SweeperConf,
    "hydra.launcher": LocalLauncherConf,
    "hydra/launcher=slurm hydra.launcher": SlurmLauncherConf,
}
"""The settings of each section, and what is typed before them."""
