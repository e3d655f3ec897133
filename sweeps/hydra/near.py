"""The key or the choice that was likely meant by one that does not exist."""

import difflib
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from omegaconf import DictConfig

from sweeps.hydra.followed import GROUPS, source
from sweeps.hydra.plain import content
from sweeps.hydra.settings import FOREIGN_NAMES
from sweeps.hydra.sweeper_settings import CHOSEN

_WORDS_OF_CHOICES = {
    "hydra/sweeper": {
        "optuna": "bayes bayesian bayesopt bo bohb search hyperopt skopt smac tune sweep",
        "grid": "gridsearch grid_search cartesian product all",
    },
    "hydra/launcher": {
        "slurm": "sbatch srun submitit cluster hpc batch job jobs",
        "local": (
            "here machine laptop process processes multiprocessing parallel fork thread threads cpu"
            " gpu single"
        ),
    },
}
"""Words that people type for choices of our groups."""


def closest(word: str, words: Iterable[str]) -> str:
    """Return the word that was likely meant, or an empty string. `adma` means adam, not adamax."""
    words = [*words]
    foreign = [name for name in words if name == FOREIGN_NAMES.get(word)]
    matches = difflib.get_close_matches(word, words)
    swapped = [match for match in matches if sorted(match) == sorted(word)]
    return next(iter([*foreign, *swapped, *matches]), "")


def advise_names(option: str, typed: Sequence[str], names: Sequence[str]) -> str:
    """Return an option with the names that were likely meant, or all names that it takes."""
    meant = [word if word in names else _nearest(word, names) for word in typed]
    if all(meant):
        return f"Did you mean: {shlex.join([option, ','.join(meant)])}"
    return f"Choose among {', '.join(names)}"


def _nearest(word: str, names: Sequence[str]) -> str:
    """Return the closest of the names, or the shortest that contains the word; empty if none does,
    and of a number."""
    if word.isdecimal():
        return ""
    containing = [name for name in names if len(word) > 2 and word.lower() in name.lower()]
    return closest(word.lower(), names) or min(containing, key=len, default="")


def near_choice(group: str, name: str, choices: Sequence[str]) -> str:
    """Return the choice of a group that was likely meant, as typed; empty if there is none."""
    if group == "hydra/sweeper":
        for part in CHOSEN:
            files = GROUPS.glob(f"sweeper/{part}/*.yaml")
            if name in {file.stem for file in files} - {"default", "grid", "none"}:
                return f"hydra/sweeper=optuna hydra/sweeper/{part}={name}"
    for choice, words in _WORDS_OF_CHOICES.get(group, {}).items():
        if name in words.split():
            return f"{group}={choice}"
    near = closest(name, [choice for choice in choices if choice != "basic"])
    return near and f"{group}={near}"


def advise_key(key: str, config: DictConfig) -> str:
    """Return the key that was likely meant, or the keys of its section; empty if there are none."""
    if near := near_key(key, config):
        return f" Did you mean '{near}'?"
    section = key.rpartition(".")[0]
    siblings = [name for name in keys(config) if section and name.rpartition(".")[0] == section]
    return f" Known here: {', '.join(siblings)}." if siblings else ""


def near_key(key: str, config: DictConfig) -> str:
    """Return the key that was likely meant; empty if none is near."""
    key = key.replace("/", ".")
    every = keys(config)
    if key in every:
        return key
    names = [name for name in every if name.startswith("hydra.") == key.startswith("hydra.")]
    typed_section, _, last = key.rpartition(".")
    prefix = f"{_near_section(typed_section, names)}."
    if same := _same_name(last, prefix, names, every):
        return same
    if "." not in key:
        near = closest(last, names)
        return source(config, near) if near else ""
    # only the last part is compared, because all keys of a section share the others
    below = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    near = closest(last, [name for name in below if "." not in name])
    return source(config, f"{prefix}{near}") if near else ""


def _same_name(name: str, prefix: str, names: Sequence[str], every: Sequence[str]) -> str:
    """Return the key with this last part in a section, at the top level in another case, below the
    section, or at the top level of all; empty if there is none."""
    if f"{prefix}{name}" in names:
        return f"{prefix}{name}"
    similar = [key for key in names if key.lower() == name.lower()]
    similar += [key for key in names if key.startswith(prefix) and key.endswith(f".{name}")]
    similar += [key for key in every if key == name]
    return next(iter(similar), "")


def _near_section(section: str, names: Sequence[str]) -> str:
    """Return the section that was likely meant. It is a very near one, because a new section may be
    meant."""
    if section in names:
        return section
    sections = {name.rpartition(".")[0] for name in names}
    return next(iter(difflib.get_close_matches(section, sections, 1, cutoff=0.8)), "")


def keys(config: DictConfig) -> list[str]:
    """Return all keys of a configuration, its sections included, as dotted names."""
    return _dotted(content(config))


def _dotted(node: Any, prefix: str = "") -> list[str]:
    names = []
    for key, value in node.items() if isinstance(node, dict) else ():
        if not str(key).startswith("_"):
            names += [f"{prefix}{key}", *_dotted(value, f"{prefix}{key}.")]
    return names
