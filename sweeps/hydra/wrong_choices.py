"""Choices of groups that do not exist, or that are no names."""

import re
import shlex
from collections.abc import Iterable, Sequence

from hydra.core.override_parser.types import Override
from hydra.errors import MissingConfigException

from sweeps.hydra.foreign_names import PACKAGES
from sweeps.hydra.near import near_choice
from sweeps.hydra.unreadable import GRAMMAR


def explain_missing(error: MissingConfigException, missing: str, groups: Iterable[str]) -> str:
    """Return that a group has no such choice, or that a file of the configuration is missing."""
    in_file = re.match(r"In '([^']+)'", str(error))  # whose defaults list has the choice
    parent = in_file[1] if in_file else ""
    if not error.options:
        needed = f", which {parent}.yaml needs," if parent else ""
        return (
            f"{missing}.yaml{needed} does not exist"
            ".\nCorrect its name where it was typed or written"
        )

    group = _group_of(missing, groups)
    name = missing.removeprefix(f"{group}/")
    choices = _shown(group, error.options)
    last_part = name.rpartition("/")[2].lower().removeprefix("submitit_")
    near = near_choice(group, last_part, choices)
    hint = f" Did you mean {near}?" if near else ""
    package = PACKAGES.get(name, "") if group in ("hydra/sweeper", "hydra/launcher") else ""
    install = f", or type: pip install {package}" if package else ""
    is_of_choice = "/" in parent and not parent.startswith("hydra/")
    place = f"{parent}.yaml: " if is_of_choice else ""
    return (
        f"{place}{group}={name} does not exist.{hint}\nChoose one of: {', '.join(choices)}{install}"
    )


def _group_of(missing: str, groups: Iterable[str]) -> str:
    """Return the group of a choice, which may have slashes itself."""
    names = [group.partition("@")[0] for group in groups]
    fitting = [name for name in names if missing.startswith(f"{name}/")]
    return max(fitting, key=len, default=missing.rpartition("/")[0])


def _shown(group: str, options: Iterable[str]) -> list[str]:
    """Return the choices of a group that a person types."""
    # because Hydra's own sweeper, basic, runs without a study
    hidden = ["basic"] if group == "hydra/sweeper" else []
    shown = [option for option in options if not option.startswith("sweepyard_")]
    return [option for option in shown if option not in hidden]


def explain_no_name(override: Override, names: Sequence[str]) -> str:
    """Return that a choice of a group is no name, such as `model=null` or `model=50`; empty if it
    is one."""
    choice = override.value()
    group = override.key_or_group
    if override.is_delete() or isinstance(choice, str | list):
        return ""
    if not group:
        return f"{override.input_line}: a key is missing.\n{GRAMMAR}"
    advice = f"Choose one of: {', '.join(names)}"
    if str(choice) in names:
        typed = f"{override.get_key_element()}='{choice}'"
        advice = f"Type it in quotes: {shlex.quote(typed)}"
    return f"{override.input_line}: a choice of {group} is a name.\n{advice}"
