"""What `--help` explains of sweeps: every setting of the sweeper and the launchers, and how many
trials run at a time.

The descriptions are the texts below the fields in `sweeps.hydra.settings`.
"""

import ast
import inspect
import re
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.followed import GROUPS, followed, source, written
from sweeps.hydra.plain import plain
from sweeps.hydra.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf, read
from sweeps.space.space import text_of

_COMPARISON = re.compile("([<>]=?) ")


@dataclass(frozen=True)
class Entry:
    """A key with its value as typed, and what it means."""

    key: str
    typed: str
    meaning: str

    def lines(self, column: int, width: int) -> list[str]:
        """Return the entry in lines, with its meaning from a column on."""
        setting = f"  {self.typed}"
        unbroken = _COMPARISON.sub("\\1\N{NO-BREAK SPACE}", self.meaning)
        wrapped = textwrap.wrap(unbroken, width - column)
        lines = [f"{' ' * column}{line}".replace("\N{NO-BREAK SPACE}", " ") for line in wrapped]
        if lines and len(setting) < column:
            lines[0] = setting.ljust(column) + lines[0][column:]
            return lines
        return [setting, *lines]


def settings(config: DictConfig) -> dict[str, list[Entry]]:
    """Return the settings of the sweeper and of each launcher under a composed configuration, by a
    title."""
    sections = [
        ("The sweeper, hydra/sweeper=grid or optuna", "sweeper", "grid", SweeperConf),
        ("Trials on this machine, hydra/launcher=local", "launcher", "local", LocalLauncherConf),
        ("Trials as SLURM jobs, hydra/launcher=slurm", "launcher", "slurm", SlurmLauncherConf),
    ]
    entries = {}
    for title, group, name, kind in sections:
        node = config.hydra[group]
        if OmegaConf.get_type(node) is not kind:
            file: Any = OmegaConf.load(GROUPS / group / f"{name}.yaml")
            del file["defaults"]
            node = OmegaConf.merge(kind, file)
        entries[title] = [
            Entry(f"hydra.{group}.{setting}", _typed(config, node, group, setting), words)
            for setting, words in descriptions(kind).items()
        ]
    return entries


def descriptions(kind: type) -> dict[str, str]:
    """Return the text below each field of a dataclass, by the field's name; empty if there is
    none."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    texts: dict[str, str] = {}
    for node, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id[0] != "_"
        ):
            text = ""
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = " ".join(str(below.value.value).split())
            texts[node.target.id] = text
    return texts


def at_once(config: DictConfig, planned: int | None = None) -> str:
    """Return how many trials of this configuration run at a time, at most all that are `planned`,
    and why; empty for a foreign launcher."""
    kind = OmegaConf.get_type(config.hydra.launcher)
    try:
        if kind is LocalLauncherConf:
            from sweeps.launchers.local.machine import Machine

            count, reason = Machine.here().at_once(config)
        elif kind is SlurmLauncherConf:
            settings = read(config.hydra.launcher, SlurmLauncherConf)
            count = settings.array_parallelism * settings.slots
            reason = (
                "the SLURM jobs that may be queued or running (hydra.launcher.array_parallelism)"
            )
            reason += f", of {settings.slots} trials each" if settings.slots > 1 else ""
        else:
            return ""
    except UserError as error:
        return str(error)
    is_ours = OmegaConf.get_type(config.hydra.sweeper) is SweeperConf
    limit = config.hydra.sweeper.get("n_jobs") if is_ours else None
    most = min(count, limit or count)
    if planned is not None and planned <= most:
        return (
            f"Trials at a time: {planned} (all that are planned). There is room for {count}:"
            f" {reason}"
        )
    if most < count:
        return (
            f"Trials at a time: {limit} (hydra.sweeper.n_jobs). There is room for {count}: {reason}"
        )
    return f"Trials at a time: {count}: {reason}. For fewer: hydra.sweeper.n_jobs=1"


def _typed(config: DictConfig, node: DictConfig, group: str, name: str) -> str:
    """Return a setting as one types it, by the app's own key if it follows one. The environment is
    not resolved."""
    slashed = f"hydra/{group}/{name}"
    if slashed in config.hydra.runtime.choices:
        return f"{slashed}={config.hydra.runtime.choices[slashed]}"
    key = f"hydra.{group}.{name}"
    value = written(node, name)
    if app_key := followed(value):
        value = None  # unless the app has the key
        with suppress(KeyError):
            key = source(config, app_key)
            value = written(config, key)
    value = None if followed(value) else value
    return as_typed(key, value)


def as_typed(key: str, value: Any) -> str:
    """Return a key and its value in one line, without the end of a long value."""
    shown = value if isinstance(value, str) else text_of(plain(value))
    if isinstance(value, bool):
        shown = shown.lower()
    return f"{key}={textwrap.shorten(shown, 60, placeholder=' ...')}"
