"""What `--help` says of sweeps: every setting of the sweeper and the launchers, and how many trials run at a time.

The descriptions are those below the fields in `sweeps.settings`. It is OmegaConf's resolver `sweepyard.help`, for
conf/hydra/help/sweepyard.yaml: only who asks for help pays for it.
"""

import ast
import inspect
import shutil
import textwrap
from contextlib import suppress
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.errors import UserError
from sweeps.record.followed import GROUPS, followed, source, written
from sweeps.record.space import text_of
from sweeps.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf, read

_INDENT = 46


def text(*, _root_: DictConfig) -> str:
    """The help on sweeps under a composed configuration, with the dollars doubled, as string.Template wants it."""
    sections = [
        ("The sweeper, hydra/sweeper=grid or optuna", "sweeper", "grid", SweeperConf),
        ("Trials on this machine, hydra/launcher=local", "launcher", "local", LocalLauncherConf),
        ("Trials as SLURM jobs, hydra/launcher=slurm", "launcher", "slurm", SlurmLauncherConf),
    ]
    shown = ["== Sweeps ==", "-m makes a trial of each combination of what has commas: -m key=a,b other=1,2,3"]
    shown += filter(None, [at_once(_root_)])
    for title, group, name, kind in sections:
        node = _root_.hydra[group]
        if OmegaConf.get_type(node) is not kind:
            file: Any = OmegaConf.load(GROUPS / group / f"{name}.yaml")
            del file["defaults"]
            node = OmegaConf.merge(kind, file)
        lines = (_line(_typed(_root_, node, group, key), said) for key, said in described(kind).items())
        shown += ["", f"{title}:", *lines]
    return "\n".join(shown).replace("$", "$$")


def described(kind: type) -> dict[str, str]:
    """The settings of a dataclass, each with the text below its field, or none."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for node, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            found[node.target.id] = " ".join(str(below.value.value).split()) if is_text else ""  # type: ignore[union-attr]
    return found


def at_once(config: DictConfig) -> str:
    """How many trials of this configuration run at a time, and why; empty with a launcher that is not ours."""
    kind = OmegaConf.get_type(config.hydra.launcher)
    try:
        if kind is LocalLauncherConf:
            from sweeps.launchers.machine import Machine

            count, why = Machine.here().at_once(config)
        elif kind is SlurmLauncherConf:
            settings = read(config.hydra.launcher, SlurmLauncherConf)
            count = settings.array_parallelism * settings.trials_at_once
            why = "the SLURM jobs that may be queued or running (hydra.launcher.array_parallelism)"
            why += f", of {settings.trials_at_once} trials each" if settings.trials_at_once > 1 else ""
        else:
            return ""
    except UserError as error:
        return str(error)
    most = config.hydra.sweeper.get("n_jobs") if OmegaConf.get_type(config.hydra.sweeper) is SweeperConf else None
    if most is not None and most < count:
        return f"Trials at a time: {most}, as hydra.sweeper.n_jobs says. There is room for {count}: {why}"
    return f"Trials at a time: {count}: {why}. For fewer: hydra.sweeper.n_jobs=1"


def _typed(config: DictConfig, node: DictConfig, group: str, name: str) -> str:
    """A setting as one types it: by the app's own key where it follows one. What is in the environment stays there."""
    if f"hydra/{group}/{name}" in config.hydra.runtime.choices:
        return f"hydra/{group}/{name}={config.hydra.runtime.choices[f'hydra/{group}/{name}']}"
    key, value = f"hydra.{group}.{name}", written(node, name)
    if own := followed(value):
        value = None  # unless the app has that key
        with suppress(KeyError):
            key = source(config, own)
            value = written(config, key)
    value = None if followed(value) else value
    shown = value if isinstance(value, str) else text_of(value)
    return f"{key}={textwrap.shorten(shown, 60, placeholder=' ...')}"


def _line(typed: str, said: str) -> str:
    width = max(100, shutil.get_terminal_size((120, 24)).columns)
    first = typed.ljust(_INDENT - 3) + " "
    lines = textwrap.wrap(said, width - _INDENT) or [""]
    if len(first) > _INDENT - 2:
        first, lines = typed, ["", *lines]
    return f"  {first}{lines[0]}".rstrip() + "".join(f"\n{' ' * _INDENT}{line}" for line in lines[1:])
