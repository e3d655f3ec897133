"""The definition of a study, study.json: what it was started with, and the command that resumes
it."""

import json
import shlex
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from omegaconf import DictConfig

from sweeps.base.errors import UserError
from sweeps.base.files import MALFORMED, CorruptFile, is_private, quarantine, read_json, write_whole
from sweeps.base.secrets import mask_value
from sweeps.base.wording import short_difference
from sweeps.hydra import plain
from sweeps.hydra.followed import by_default, followed, source, written
from sweeps.hydra.settings import SweeperConf
from sweeps.record.entry_types import check_types
from sweeps.record.extension import add_extension, well_formed
from sweeps.record.place import NAME, another_study, resume_line, suggest_study, unpack_line
from sweeps.record.removal import FIXED, explain_removal
from sweeps.space.space import Choice, Parameter, SearchSpace, is_grid, text_of
from sweeps.trial.job import Point

_FILE = "study.json"
FORMAT = 1
"""The format of a study's files. Another one is refused."""
DONE = "done"
"""The file with the reason why a study is done early, such as a target that was reached."""
ARCHIVE = "archive"
"""The folder of archived studies, beside the studies' folders."""
_MAY_CHANGE = {
    "sweeper/grid": ("memory_axes", "may_change", "refit", "refit_all_data"),
    "launcher/local": ("preload",),
}
"""Settings that change no result, and so may change between two commands, like the keys that they
follow."""


@dataclass(frozen=True)
class Definition:
    """The definition of a study. All values are text, as one would type them."""

    name: str
    command: list[str]  # the command line, without the name of the study
    working_folder: str
    objective: list[str]
    directions: list[str]
    parameters: dict[str, str]  # values of each swept parameter
    n_trials: str
    search: dict[str, str]  # sampler, pruner and all other settings that decide which trials run
    config: dict[str, str]  # values that all trials share, by their dotted names
    total: int  # number of trials
    # hydra.sweep.dir as its start resolved it; None for multirun/<name>
    sweep_dir: str | None = None
    storage: str | None = None
    tracking_uri: str | None = None
    """Both addresses as typed, because a password of the environment, `${oc.env:NAME}`, must be in
    no file."""
    seed_key: str = "seed"
    size: int | None = None  # number of points of the search space; None if far more than trials
    format: int = FORMAT
    # by whom, at which time, and by which values
    extended: list[dict[str, Any]] = field(default_factory=list)
    # keys of `config` with which the study may resume changed
    may_change: list[str] = field(default_factory=list)

    @property
    def listed(self) -> list[Point]:
        """Return the points of hydra.sweeper.points."""
        return [Point(point) for point in json.loads(self.search.get("points", "[]"))]

    @property
    def exclude(self) -> list[str]:
        """Return the conditions of hydra.sweeper.exclude."""
        return [*json.loads(self.search.get("exclude", "[]"))]

    @property
    def repeats(self) -> int:
        """Return the number of seeds that each configuration of a search runs under."""
        return int(self.search.get("repeats", 1))

    def differences(self, other: "Definition") -> dict[str, str]:
        """Return the differences of `other` from this study, in words, by the key of each."""
        old = self._identity()
        new = other._identity()
        free = self._free_keys() - other.parameters.keys()
        differences = {}
        for key in old | new:
            if key in free or _is_same(key, old.get(key), new.get(key)):
                continue
            before = old.get(key, "(nothing)")
            after = new.get(key, "(nothing)")
            differences[key] = f"{key}={' was '.join(short_difference(after, before))}"
        return differences

    def _free_keys(self) -> set[str]:
        """Return the keys with which the study may resume changed, as the command named them that
        started it."""
        return {key for key in self.may_change if key in self.config and key not in self.parameters}

    def _identity(self) -> dict[str, str]:
        """Return all settings and values that may not change, as one would type them."""
        settings = {"study_name": self.name, "n_trials": self.n_trials, **self.search}
        shared = {
            key: text for key, text in self.config.items() if key and not _changes_no_result(key)
        }
        return {
            **{f"hydra.sweeper.{key}": value for key, value in settings.items()},
            **shared,
            **self.parameters,
        }


def define(
    name: str,
    settings: SweeperConf,
    space: SearchSpace,
    config: DictConfig,
    planned: int,
    size: int | None,
) -> Definition:
    """Return the definition of a study that tries `planned` points of a space of `size` points."""
    search = {
        name: json.dumps(getattr(settings, name), sort_keys=True) for name in ("sampler", "pruner")
    }
    search |= {
        name: str(getattr(settings, name))
        for name in ("objective", "direction", "custom_search_space")
    }
    search |= {"learn_from": ",".join(settings.learn_from)} if settings.learn_from else {}
    search |= {"points": json.dumps(space.listed)} if space.listed else {}
    search |= {"exclude": json.dumps(settings.exclude)} if settings.exclude else {}
    search |= (
        {"repeats": str(settings.repeats)} if settings.repeats > 1 and not is_grid(settings) else {}
    )
    search |= {
        name: str(getattr(settings, name))
        for name in ("final_race", "final_race_seeds")
        if settings.final_race
    }
    return Definition(
        name,
        command=[text for text in sys.orig_argv if not text.startswith(f"{NAME}=")],
        working_folder=str(Path.cwd()),
        objective=list(settings.objectives),
        directions=list(settings.directions),
        parameters={space.name(p): _values(p) for p in space.parameters},
        n_trials=str(settings.n_trials),
        search=search,
        config=shared(config),
        total=planned * (1 if is_grid(settings) else settings.repeats),
        storage=as_typed(config, "hydra.sweeper.storage"),
        tracking_uri=as_typed(config, "hydra.sweeper.tracking_uri"),
        seed_key=settings.seed_key,
        size=size,
        may_change=settings.may_change,
    )


def shared(config: DictConfig) -> dict[str, str]:
    """Return the values that all trials share and that may not change, as text by their dotted
    names."""
    content = plain.content(config)
    content.pop("hydra", None)
    flat = [(key, text) for key, text in _flat(content) if key and not _changes_no_result(key)]
    return {key: mask_value(key, text) for key, text in flat}


def _changes_no_result(key: str) -> bool:
    """Return whether a key, or the section that it is in, changes no result."""
    return any(key == name or key.startswith(f"{name}.") for name in _may_change())


@cache
def _may_change() -> tuple[str, ...]:
    return (
        "tracking",
        *(by_default(group, name) for group, names in _MAY_CHANGE.items() for name in names),
    )


def as_typed(config: DictConfig, key: str) -> str | None:
    """Return a setting, or the setting that it interpolates, as text with its interpolations; None
    without a value."""
    try:
        value = written(config, source(config, key))
    except KeyError:
        return None
    return None if followed(value) else value and str(value)


def write_or_check(folder: Path, new: Definition, extend: bool) -> str:
    """Write a new study's definition, or raise UserError if it is another study's. Return the
    file's repairs."""
    file = folder / _FILE
    mended = ""
    try:
        old = read(folder)
    except FileNotFoundError:
        old = new
        if (folder / "journal.jsonl").exists():
            mended = f"{file} is missing. This command defines the study anew"
    except CorruptFile as error:
        old = new
        mended = f"{error}. This command defines the study anew (old file: {quarantine(file).name})"
    refuse_differences(folder, old, new, extend)
    is_other = extend or old is new
    definition = add_extension(old, new) if is_other else _with_free_changes(old, new)
    if is_other or definition is not old:
        write_whole(file, json.dumps(asdict(definition), indent=1))
        with suppress(OSError):  # because not every disk has modes
            file.chmod(file.stat().st_mode & ~0o022)  # because `resume` runs the command in it
    return mended


def _with_free_changes(old: Definition, new: Definition) -> Definition:
    """Return the definition with the values and the command that a resumed study changed as
    `may_change` allows."""
    changed = {key: new.config[key] for key in old._free_keys() if key in new.config}
    config = {**old.config, **changed}
    return old if config == old.config else replace(old, command=new.command, config=config)


def refuse_differences(folder: Path, old: Definition, new: Definition, extend: bool) -> None:
    """Raise UserError with the first differences if a command is of another study, or does not only
    extend it."""
    differences = old.differences(new)
    removals = {
        key: explain_removal(old, new, key, partial(sweeps_line, folder=folder))
        for key in differences
    }
    if extend:
        differences = {key: difference for key, difference in differences.items() if removals[key]}
        if differences and FIXED not in removals.values():
            raise UserError(next(filter(None, removals.values())))
    if differences:
        shown = "; ".join([*differences.values()][:5]) + " ..." * (len(differences) > 5)
        restart = f"type the command that started the study: {resume_line(old, folder)}"
        advice = f"1. choose {another_study(new, folder)},"
        if extend:
            shown += f". {FIXED}"
        if FIXED in removals.values():
            advice += f" or 2. {restart}"
        else:
            to_extend = (
                "to add values or trials, keep the earlier ones, and add hydra.sweeper.extend=true"
            )
            advice += f" 2. {restart}, or 3. {to_extend}"
        raise UserError(f"study {new.name} was started with other values: {shown}\nEither {advice}")


def refuse_foreign(folder: Path, line: str) -> None:
    """Raise UserError if another user could have changed the study's definition, from which `line`
    would run."""
    if not is_private((folder / _FILE).stat()):
        raise UserError(
            f"{folder / _FILE}: another user could have changed the command in it.\nCheck it, then"
            f" type it: {line}"
        )


def read(folder: Path) -> Definition:
    """Return the definition of the study in `folder`.

    Raises FileNotFoundError without a study, CorruptFile if its definition is damaged, UserError if
    its files have another format.
    """
    content = read_json(folder / _FILE)
    if content is None:
        raise FileNotFoundError(folder / _FILE)
    # Files of versions before the first format have a version instead.
    if isinstance(content, dict) and (
        "version" in content or content.get("format", FORMAT) != FORMAT
    ):
        raise UserError(
            f"{folder / _FILE}: format={content.get('format')}: this version of sweepyard reads"
            f" format {FORMAT}.\nUse the version that wrote the study, or choose another"
            " hydra.sweeper.study_name"
        )
    try:
        definition = Definition(**{**content, "extended": well_formed(content.get("extended"))})
        check_types(definition)
    except MALFORMED as error:
        raise CorruptFile(folder / _FILE, "its entries are not those of a study") from error
    return definition


def locate(name: str, root: Path) -> tuple[str, Path]:
    """Return the name and the root of a study that was typed as a name in `root`, or as the path of
    its folder."""
    folder = Path(name) if "/" in name and (Path(name) / _FILE).exists() else root / name
    return folder.name, folder.parent


def find(name: str, root: Path) -> tuple[Path, Definition]:
    """Return the folder and the definition of the study `name` in `root`. Raises UserError if there
    is none."""
    folder = (root / name).absolute()
    try:
        return folder, read(folder)
    except FileNotFoundError:
        packed = root / ARCHIVE / f"{name}.tar.gz"
        if packed.exists():
            raise UserError(
                f"study {name} is packed in {packed}\nUnpack it with: {unpack_line(packed)}"
            ) from None
        raise UserError(
            f"there is no study {name} in {root}.\n{suggest_study(name, root)}"
        ) from None
    except CorruptFile as error:
        raise UserError(
            f"{error}.\nTo repair it, type the command that started study {name} again"
        ) from error


def sweeps_line(command: str, folder: Path, python: str = "python") -> str:
    """Return the line `python -m sweeps COMMAND` for the study in `folder`."""
    root = [] if folder.parent == Path("multirun").absolute() else ["--root", str(folder.parent)]
    return shlex.join([python, "-m", "sweeps", command, folder.name, *root])


def _is_same(key: str, old: str | None, new: str | None) -> bool:
    """Return whether a value is unchanged. A `_target_` may have moved, because two modules may
    name one object."""
    if old is None or new is None or old == new:
        return old == new
    if not key.endswith("_target_") or old.rpartition(".")[2] != new.rpartition(".")[2]:
        return False
    try:
        return resolve_name(old) is resolve_name(new)
    except (ImportError, AttributeError, ValueError):
        return False


def _values(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return ",".join(parameter.texts)
    return f"{'log ' * parameter.log}interval({parameter.low}, {parameter.high})"


def _flat(node: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(node, dict) and node:
        return [
            pair
            for key, value in node.items()
            for pair in _flat(value, f"{prefix}.{key}" if prefix else str(key))
        ]
    return [(prefix, text_of(node) if not isinstance(node, str) else node)]
