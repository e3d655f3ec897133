"""Who extended a study, when, and by which values; and why a command does not only extend it."""

import getpass
import json
import math
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweeps.errors import UserError
from sweeps.record.exclusion import Exclusion
from sweeps.record.grammar import space_of
from sweeps.record.listed import lost_point
from sweeps.record.space import Choice, Interval
from sweeps.trial.job import Point
from sweeps.wording import point_text

if TYPE_CHECKING:
    from sweeps.record.definition import Definition

FIXED = "Fixed values cannot change, even with hydra.sweeper.extend=true"
_LATEST = 2**37  # seconds, because a date has a year of four digits


def add_extension(old: "Definition", new: "Definition") -> "Definition":
    """Return the `new` definition of a study with its extensions, of which the last is that of the `old` definition."""
    values = "; ".join(old.differences(new).values())
    newest = [{"by": user_name(), "at": time.time(), "values": values}] if values else []
    return replace(new, version=old.version, extended=[*old.extended, *newest])


def explain_loss(old: "Definition", new: "Definition", key: str, line: Callable[[str], str]) -> str:
    """Return what `new` takes from a study by the value of this key, and what to type; empty if it only adds trials.

    `line` returns the line of a command about the study. If no value of the key may be added, the answer is FIXED.
    """
    has = f"study {old.name} has"
    if key == "hydra.sweeper.n_trials":
        if new.n_trials == "None" or new.total >= old.total:
            return ""
        problem = f"{key}={new.n_trials}: {has} {old.total if old.n_trials == 'None' else old.n_trials}"
        typed = f"Remove {key}" if old.n_trials == "None" else f"Type {key}={old.n_trials} or more"
        return f"{problem}.\n{typed}. To start no further trial: {line('stop')}"
    if key in ("hydra.sweeper.final_race", "hydra.sweeper.final_race_seeds"):
        return ""
    if key == "hydra.sweeper.points":
        return _explain_lost_point(old, new, has, line)
    if key == "hydra.sweeper.exclude":
        added = [condition for condition in new.exclude if condition not in old.exclude]
        advice = f"Remove it here, and type: {line('exclude')} {shlex.quote(added[0])}" if added else ""
        return advice and f"{key}: '{added[0]}' would take points from study {old.name}.\n{advice}"
    return _explain_lost_values(old, new, key, has, line)


def _explain_lost_point(old: "Definition", new: "Definition", has: str, line: Callable[[str], str]) -> str:
    if (lost := lost_point(old.listed, new.listed, old.parameters)) is None:
        return ""
    words = " ".join([*old.command, *new.command])
    sources = {"zip(": "zip(...)", "sweeper.also=": "hydra.sweeper.also", "sweeper.points=": "hydra.sweeper.points"}
    typed = [name for word, name in sources.items() if word in words]
    problem = f"{point_text(lost)}: {has} this point, and this command lacks it"
    return f"{problem}.\nAdd it to {' or '.join(typed or sources.values())}{_to_exclude(lost, line)}"


def _explain_lost_values(old: "Definition", new: "Definition", key: str, has: str, line: Callable[[str], str]) -> str:
    if key not in old.parameters and f"+{key}" in old.parameters:
        return ""  # because the loss is explained under the key with its plus
    if key in old.parameters and key not in new.parameters:
        (before,) = space_of({key: old.parameters[key]}).parameters
        problem = f"{before.key}: this command does not sweep it, and {has} {before.typed}"
        return f"{problem}.\nType: {shlex.quote(f'{before.key}={before.typed}')}"
    if key not in old.parameters or key not in new.parameters:
        return FIXED
    (before,), (after,) = (space_of({key: study.parameters[key]}).parameters for study in (old, new))
    if isinstance(before, Choice) and isinstance(after, Choice):
        pairs = zip(before.values, before.texts, strict=True)
        lost = {text: value for value, text in pairs if not after.find(value)}
        typed = shlex.quote(f"{before.key}={','.join([*after.texts, *lost])}")
        advice = f"Type: {typed}{_to_exclude({before.key: next(iter(lost.values()))}, line)}" if lost else ""
        return advice and f"{before.key}={after.typed}: {has} {', '.join(lost)} too.\n{advice}"
    if isinstance(before, Interval) and isinstance(after, Interval):
        return _explain_lost_ends(before, after, has, line)
    return FIXED


def _explain_lost_ends(before: Interval, after: Interval, has: str, line: Callable[[str], str]) -> str:
    if (before.log, before.whole) != (after.log, after.whole):  # because Optuna can change neither
        return FIXED
    name = before.key.lstrip("+")
    lost = [f"{name} < {after.low}"] if before.low < after.low else []
    lost += [f"{name} > {after.high}"] if after.high < before.high else []
    advice = f"To narrow it: {line('exclude')} {shlex.quote(' or '.join(lost))}" if lost else ""
    problem = f"{before.key}={after.typed}: {has} {before.typed}"
    return advice and f"{problem}.\nType an interval that contains it. {advice}"


def _to_exclude(point: Point, line: Callable[[str], str]) -> str:
    """Return how to exclude the point; empty if a condition cannot name its values."""
    values = {key.lstrip("+"): value for key, value in point.items()}
    texts = [f"{key}={value if str(value).isidentifier() else json.dumps(value)}" for key, value in values.items()]
    try:
        Exclusion(condition := " and ".join(texts), values)
    except UserError:
        return ""
    return f". To try it no further: {line('exclude')} {shlex.quote(condition)}"


def well_formed(extended: object) -> list[dict[str, Any]]:
    """Return the extensions that have a time, because a damaged one must hide no study."""
    entries = extended if isinstance(extended, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and _is_time(entry.get("at"))]


def _is_time(at: object) -> bool:
    return isinstance(at, int | float) and math.isfinite(at) and 0 <= at < _LATEST


def user_name() -> str:
    """Return the name of the user, or their number if they have no name."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # which of them depends on Python's version
        return str(os.getuid())
