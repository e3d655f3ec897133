"""What a command that extends a study would remove from the study, and what to type instead."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from sweeps.record.definition import Definition
from sweeps.space.exclusion import exact, written
from sweeps.space.grammar import space_of
from sweeps.space.listed import removed_point
from sweeps.space.space import Choice, Interval, without_plus
from sweeps.trial.job import Point


@dataclass(frozen=True)
class Removal:
    """What a command would remove from a study, and what to type."""

    problem: str
    advice: str = ""  # the words that keep what the study has
    instead: str = ""  # the command that has the effect of the removal; empty if there is none
    adds: bool = False  # whether the command adds values, too

    def __str__(self) -> str:
        instead = f". To {self.instead}" if self.instead else ""
        return f"{self.problem}.\n{self.advice}{instead}"


FIXED = Removal("Fixed values cannot change, even with hydra.sweeper.extend=true")
"""The removal of the one value that a key may have."""


def explain_removal(
    old: Definition, new: Definition, key: str, line: Callable[[str], str]
) -> Removal | None:
    """Return what `new` would remove from a study by the value of this key.

    The answer is None if the value only adds trials, and FIXED if the key may have no other value.
    `line` returns the line of a command about the study.
    """
    has = f"study {old.name} has"
    if key == "hydra.sweeper.n_trials":
        return _explain_fewer_trials(old, new, line)
    if key in ("hydra.sweeper.final_race", "hydra.sweeper.final_race_seeds"):
        return None
    if key == "hydra.sweeper.points":
        return _explain_removed_point(old, new, has, line)
    if key == "hydra.sweeper.exclude":
        added = [condition for condition in new.exclude if condition not in old.exclude]
        if not added:
            return None
        exclude_line = f"{line('exclude')} {shlex.quote(added[0])}"
        problem = f"{key}: '{added[0]}' would take points from study {old.name}"
        return Removal(problem, f"Remove it here, and type: {exclude_line}")
    return _explain_removed_values(old, new, key, has, line)


def _explain_fewer_trials(
    old: Definition, new: Definition, line: Callable[[str], str]
) -> Removal | None:
    if new.n_trials == "None" or new.total >= old.total:
        return None
    key = "hydra.sweeper.n_trials"
    before = old.n_trials
    advice = f"Type {key}={before} or more"
    if before == "None":
        before = str(old.total)
        advice = f"Remove {key}"
    problem = f"{key}={new.n_trials}: study {old.name} has {before}"
    return Removal(problem, advice, f"start no further trial: {line('stop')}")


def _explain_removed_point(
    old: Definition, new: Definition, has: str, line: Callable[[str], str]
) -> Removal | None:
    values = {parameter.key: parameter.values for parameter in space_of(old.parameters).parameters}
    if (removed := removed_point(old.listed, new.listed, values)) is None:
        return None
    words = " ".join([*old.command, *new.command])
    sources = {
        "zip(": "zip(...)",
        "sweeper.also=": "hydra.sweeper.also",
        "sweeper.points=": "hydra.sweeper.points",
    }
    typed = [name for word, name in sources.items() if word in words]
    point = " ".join(f"{key.lstrip('+')}={written(value)}" for key, value in removed.items())
    advice = f"Add it to {' or '.join(typed or sources.values())}"
    problem = f"{point}: {has} this point, and this command lacks it"
    return Removal(problem, advice, _to_exclude(removed, old, line))


def _explain_removed_values(
    old: Definition, new: Definition, key: str, has: str, line: Callable[[str], str]
) -> Removal | None:
    if key not in old.parameters:
        # because the key with its plus is answered, too
        return None if f"+{key}" in old.parameters else FIXED
    (before,) = space_of({key: old.parameters[key]}).parameters
    if key not in new.parameters:
        problem = f"{before.key}: this command does not sweep it, and {has} {before.typed}"
        return Removal(problem, f"Type: {shlex.quote(f'{before.key}={before.typed}')}")
    (after,) = space_of({key: new.parameters[key]}).parameters
    if isinstance(before, Choice) and isinstance(after, Choice):
        pairs = zip(before.values, before.texts, strict=True)
        removed = {text: value for value, text in pairs if not after.find(value)}
        if not removed:
            return None
        typed = shlex.quote(f"{before.key}={','.join([*after.texts, *removed])}")
        first = next(iter(removed.values()))
        return Removal(
            f"{before.key}={after.typed}: {has} {', '.join(removed)} too",
            f"Type: {typed}",
            _to_exclude({before.key: first}, old, line),
            adds=not all(map(before.find, after.values)),
        )
    if isinstance(before, Interval) and isinstance(after, Interval):
        return _explain_removed_ends(before, after, has, line)
    return FIXED


def _explain_removed_ends(
    before: Interval, after: Interval, has: str, line: Callable[[str], str]
) -> Removal | None:
    if (before.log, before.whole) != (after.log, after.whole):  # because Optuna can change neither
        return FIXED
    name = written(before.key.lstrip("+"))
    removed = []
    if before.low < after.low:
        removed.append(f"{name} < {after.low}")
    if after.high < before.high:
        removed.append(f"{name} > {after.high}")
    if not removed:
        return None
    return Removal(
        f"{before.key}={after.typed}: {has} {before.typed}",
        "Type an interval that contains it",
        f"narrow it: {line('exclude')} {shlex.quote(' or '.join(removed))}",
        adds=after.low < before.low or before.high < after.high,
    )


def _to_exclude(point: Point, old: Definition, line: Callable[[str], str]) -> str:
    """Return what the command that excludes a point does, and the command; empty if no condition
    can be typed."""
    keys = {name.partition(" under ")[0].lstrip("+") for name in old.parameters}
    condition = exact(without_plus(point), keys)
    return condition and f"try it no further: {line('exclude')} {shlex.quote(condition)}"
