"""What a study was started with: whether a later command means the same study, and how to type it again."""

import difflib
import json
import re
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.errors import UserError
from sweeps.files import Unreadable, read_json, set_aside, write_whole
from sweeps.results import terminal
from sweeps.settings import SweeperConf
from sweeps.study.search_space import Choice, Parameter, SearchSpace, is_grid, text_of, total

_FILE = "study.json"
DONE = "done"
"""The file that says why a study is done before all its trials were tried: it reached its target, for one."""
ARCHIVE = "archive"
"""The folder beside the studies' own that holds those that were packed."""
_NAME = "hydra.sweeper.study_name"
_MAY_CHANGE = ("tracking", "trainer.memory_axes", "trainer.refit")
_SHOWN = 10
_MAY_GROW = {"n_trials", "final_race", "final_race_seeds"}
sweeps_line = terminal.sweeps_line


@dataclass(frozen=True)
class Definition:
    """All values are text, as a person would type them."""

    name: str
    command: list[str]  # the command line, without the name of the study
    working_folder: str
    objective: list[str]
    directions: list[str]
    parameters: dict[str, str]  # what is swept, and over which values
    n_trials: str
    search: dict[str, str]  # how: sampler, pruner and what else decides the choice of trials
    config: dict[str, str]  # the values that all trials share, by their dotted names
    total: int  # how many trials that makes
    storage: str | None = None
    tracking_uri: str | None = None
    """Both as they were typed: what they take from the environment, `${oc.env:NAME}`, is in no file."""
    seed_key: str = "seed"

    def differences(self, other: "Definition", extending: bool) -> list[str]:
        """Where `other` is not the same study; values and trials that were added are fine if it is being extended."""
        old, new = self._told(), other._told()
        return [
            f"{key}={new.get(key, '(nothing)')} was {old.get(key, '(nothing)')}"
            for key in old | new
            if old.get(key) != new.get(key) and not (extending and self._is_extended_by(other, key))
        ]

    def _told(self) -> dict[str, str]:
        """All that makes it this study, as a person would type it."""
        settings = {"study_name": self.name, "n_trials": self.n_trials, **self.search}
        return {**{f"hydra.sweeper.{key}": value for key, value in settings.items()}, **self.config, **self.parameters}

    def _is_extended_by(self, other: "Definition", key: str) -> bool:
        """Whether what `other` says of this key adds trials, and changes none."""
        if key not in self.parameters or key not in other.parameters:
            return key.removeprefix("hydra.sweeper.") in _MAY_GROW
        old, new = self.parameters[key], other.parameters[key]
        # Optuna keeps the choices of a search for ever; a grid in our own journal can be rewritten.
        takes_more_choices = "GridSampler" in self.search["sampler"] and self.storage is None
        if kind := _kind_of_interval(old):
            return kind == _kind_of_interval(new)
        return takes_more_choices and set(old.split(",")) <= set(new.split(","))


def define(name: str, settings: SweeperConf, space: SearchSpace, config: DictConfig) -> Definition:
    search = {name: json.dumps(getattr(settings, name), sort_keys=True) for name in ("sampler", "pruner")}
    search |= {name: str(getattr(settings, name)) for name in ("objective", "direction", "custom_search_space")}
    search |= {"learn_from": ",".join(settings.learn_from)} if settings.learn_from else {}
    search |= {"repeats": str(settings.repeats)} if settings.repeats > 1 and not is_grid(settings) else {}
    raced = ("final_race", "final_race_seeds") if settings.final_race else ()
    search |= {name: str(getattr(settings, name)) for name in raced}
    return Definition(
        name,
        command=[text for text in sys.orig_argv if not text.startswith(f"{_NAME}=")],
        working_folder=str(Path.cwd()),
        objective=list(settings.objectives),
        directions=list(settings.directions),
        parameters={space.name(p): _values(p) for p in space.parameters},
        n_trials=str(settings.n_trials),
        search=search,
        config=shared(config),
        total=total(settings, space) * (1 if is_grid(settings) else settings.repeats),
        storage=as_typed(config, "hydra.sweeper.storage"),
        tracking_uri=as_typed(config, "hydra.sweeper.tracking_uri"),
        seed_key=settings.seed_key,
    )


def shared(config: DictConfig) -> dict[str, str]:
    """The values that all trials share, but for those that may change, as text by their dotted names."""
    task = OmegaConf.to_container(OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]))
    return {key: text for key, text in _flat(task) if not key.startswith(_MAY_CHANGE)}


def as_typed(config: DictConfig, key: str) -> str | None:
    """A setting before its interpolations are resolved, but for those that stand for another setting."""
    section, _, name = key.rpartition(".")
    node = OmegaConf.select(config, section)
    raw = node._get_node(name)._value() if node is not None and name in node else None
    stands_for = re.fullmatch(r"\$\{oc\.select:([\w.]+),\w*\}", str(raw))
    return as_typed(config, stands_for[1]) if stands_for else raw and str(raw)


def agree(folder: Path, new: Definition, extend: bool) -> str:
    """Write down what the study is, or check that it is what an earlier command started.

    Returns what had to be mended, in words. Raises UserError if it is another study, with the first differences.
    """
    file, mended = folder / _FILE, ""
    try:
        old = read(folder)
    except FileNotFoundError:
        old = new
    except Unreadable as error:
        old = new
        mended = f"{error}. The study is taken for what this command says ({set_aside(file).name} is kept)"
    if differences := old.differences(new, extend):
        shown = "; ".join(differences[:5]) + (" ..." if len(differences) > 5 else "")
        raise UserError(
            f"study {new.name} was started with something else: {shown}\n"
            "Please either 1. choose another hydra.sweeper.study_name, 2. type the command that started it: "
            f"{resume_line(old)}, or 3. for more values or trials, add hydra.sweeper.extend=true"
        )
    if extend or old is new:
        write_whole(file, json.dumps(asdict(new), indent=1))
    return mended


def read(folder: Path) -> Definition:
    """Raises FileNotFoundError if there is no study in `folder`, and Unreadable if its definition is damaged."""
    content = read_json(folder / _FILE)
    if content is None:
        raise FileNotFoundError(folder / _FILE)
    try:
        return Definition(**content)
    except TypeError as error:
        raise Unreadable(folder / _FILE, error) from error


def find(name: str, root: Path) -> tuple[Path, Definition]:
    """The folder of the study of this name in `root`, and what it was started with. Raises UserError."""
    folder = (root / name).absolute()
    try:
        return folder, read(folder)
    except FileNotFoundError:
        packed = root / ARCHIVE / f"{name}.tar.gz"
        if packed.exists():
            raise UserError(f"study {name} is packed in {packed}\nUnpack it with: {unpack_line(packed)}") from None
        raise UserError(f"there is no study {name} in {root}. {which_there_are(name, root)}") from None
    except Unreadable as error:
        raise UserError(f"{error}\nTo mend it, type the command that started study {name} again") from error


def unpack_line(packed: Path) -> str:
    """What to type to have a packed study back."""
    return shlex.join(["tar", "-xzf", str(packed), "-C", str(packed.parent.parent)])


def which_there_are(name: str, root: Path) -> str:
    """The study that was meant, or those that are there, the newest first."""
    files = sorted(root.glob("*/study.json"), key=lambda file: -file.stat().st_mtime)
    if not files:
        return "There is: none; start one with sweep.py -m"
    names = [file.parent.name for file in files]
    if near := difflib.get_close_matches(name, names, 1):
        return f"Did you mean {near[0]}?"
    more = f" and {len(names) - _SHOWN} more: python -m sweeps list" if len(names) > _SHOWN else ""
    return f"There is: {', '.join(names[:_SHOWN])}{more}"


def resume_line(definition: Definition) -> str:
    """What to type to go on with the study."""
    words = [*definition.command, f"{_NAME}={definition.name}"]
    return shlex.join(word for word in words if word != "hydra.sweeper.extend=true")


def _values(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return ",".join(parameter.texts)
    return f"{'log ' * parameter.log}interval({parameter.low}, {parameter.high})"


def _kind_of_interval(values: str) -> tuple[bool, bool] | None:
    """What Optuna keeps for ever of an interval: whether it is logarithmic and whether whole. None if it is none."""
    found = re.fullmatch(r"(log )?interval\((\S+), (\S+)\)", values)
    return found and (bool(found[1]), all(end.lstrip("-").isdecimal() for end in found.groups()[1:]))


def _flat(node: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(node, dict) and node:
        return [pair for key, value in node.items() for pair in _flat(value, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, text_of(node) if not isinstance(node, str) else node)]
