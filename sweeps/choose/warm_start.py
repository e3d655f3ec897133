"""Where a search starts: at points that a person knows, and from the trials of earlier studies."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from sweeps.errors import UserError
from sweeps.files import CorruptFile, read_json, write_whole
from sweeps.record import definition
from sweeps.record.configurations import by_configuration
from sweeps.record.space import SearchSpace, canonical, is_grid, text_of
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.settings import SweeperConf
from sweeps.trial.job import Point, State
from sweeps.wording import counted

_FILE = "learned.json"
_TELLING = {State.COMPLETED, State.PRUNED, State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY}
_LEARN = ("sweeps.choose.sampler.build.DefaultSampler", "optuna.samplers.TPESampler", "optuna.samplers.GPSampler")
Read = Callable[[Path, definition.Definition], StudySnapshot]


def start_points(settings: SweeperConf, space: SearchSpace) -> list[Point]:
    """The points of `hydra.sweeper.start`, with the space's own values; what one leaves out the sampler chooses.

    Raises UserError: one is not of the search space.
    """
    if settings.start and is_grid(settings):
        raise UserError(
            "hydra.sweeper.start is for a search: a grid tries every point anyway. Add hydra/sweeper=optuna"
        )
    if len(settings.start) > (settings.n_trials or 0):
        said = f"hydra.sweeper.start has {len(settings.start)} points, more than hydra.sweeper.n_trials"
        raise UserError(f"{said}\nType hydra.sweeper.n_trials={len(settings.start)}, or more")
    found: list[Point] = []
    for typed in settings.start:
        point = _point(typed, space)
        if canonical(point) in map(canonical, found):
            raise UserError(f"hydra.sweeper.start has a point twice, {text_of(dict(point))}: leave one of them out")
        found.append(point)
    return found


def _point(typed: Mapping[str, Any], space: SearchSpace) -> Point:
    given = {str(key).lstrip("+"): value for key, value in typed.items()}
    said, point = f"hydra.sweeper.start={text_of([dict(typed)])}", Point()
    for one in space.parameters:
        name, needed = one.key.lstrip("+"), one.condition.key if one.condition else ""
        if name not in given or (needed not in point and any(needed == other.key for other in space.parameters)):
            continue
        if space.exists(one, point):
            value = given[name]
            if not (own := one.find(value)):
                raise UserError(
                    f"{said}: {name}={text_of(value)} is not in the search space\nIt has {one.key}={one.typed}"
                )
            point[one.key] = own[0]
    for name in given.keys() - {key.lstrip("+") for key in point}:
        under = " or ".join(str(one.condition) for one in space.parameters if one.key.lstrip("+") == name)
        swept = ", ".join(dict.fromkeys(one.key.lstrip("+") for one in space.parameters))
        why = (
            f"exists only under {under}, which it does not say"
            if under
            else f"is not in the search space, which has {swept}"
        )
        raise UserError(f"{said}: {name} {why}")
    if not point:
        raise UserError(f"{said}: a point has values, as in 'hydra.sweeper.start=[{{lr: 0.001}}]'")
    return point


@dataclass(frozen=True)
class EarlierTrial:
    """A trial of an earlier study, as a point of this one's search space."""

    point: Point
    state: str
    objective: list[float]

    @property
    def failed(self) -> bool:
        return self.state not in (State.COMPLETED, State.PRUNED)


@dataclass
class EarlierTrials:
    """What a study learns from: `hydra.sweeper.learn_from`. A copy stays in its folder, whatever becomes of theirs."""

    folder: Path
    trials: list[EarlierTrial]
    notes: list[str]
    """How the earlier studies differ, a line each; empty once the copy is there."""

    def save(self) -> None:
        """Write the copy, before any trial relies on it."""
        if self.notes:
            write_whole(self.folder / _FILE, json.dumps({"trials": [asdict(one) for one in self.trials]}))


def load_earlier(
    settings: SweeperConf, space: SearchSpace, config: DictConfig, folder: Path, read: Read
) -> EarlierTrials:
    """Return what the study learns from; `read` reads an earlier study.

    Raises UserError: there is no such study, it searched for something else, or the sampler cannot learn from it."""
    if not settings.learn_from:
        return EarlierTrials(folder, [], [])
    if (settings.sampler or {}).get("_target_") not in _LEARN:
        raise UserError(
            "hydra.sweeper.learn_from: only hydra/sweeper/sampler=default, tpe and gp learn from earlier studies"
        )
    with suppress(CorruptFile, TypeError, LookupError):  # else they are read once more
        if (copy := read_json(folder / _FILE)) is not None:
            return EarlierTrials(folder, [EarlierTrial(**one) for one in copy["trials"]], [])
    trials, said, taken = [], [], set[Path]()
    for name in settings.learn_from:
        there = next((one for one in (folder.parent / name, Path(name)) if (one / "study.json").exists()), None)
        if there and there.absolute() == folder:
            raise UserError(f"hydra.sweeper.learn_from={name}: that is this study itself; name an earlier one")
        if there is None:
            known = definition.suggest_study(name, folder.parent)
            raise UserError(
                f"hydra.sweeper.learn_from={name}: there is no such earlier study\nIn {folder.parent}: {known}"
            )
        if there.resolve() in taken:
            raise UserError(f"hydra.sweeper.learn_from has study {name} twice: leave one of them out")
        taken.add(there.resolve())
        found, line = _of_study(there, settings, space, config, read)
        trials += found
        said.append(f"learns from {line}")
    return EarlierTrials(folder, trials, said)


def _of_study(
    folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig, read: Read
) -> tuple[list[EarlierTrial], str]:
    try:
        theirs = definition.read(folder)
    except CorruptFile as error:
        raise UserError(f"hydra.sweeper.learn_from={folder.name}: {error}") from error
    wanted = (list(settings.objectives), list(settings.directions))
    if (theirs.objective, theirs.directions) != wanted:
        has = f"{' and '.join(theirs.objective)} ({' and '.join(theirs.directions)})"
        raise UserError(
            f"hydra.sweeper.learn_from={folder.name}: it searched for {has}, "
            f"and this one for {' and '.join(wanted[0])} ({' and '.join(wanted[1])})"
        )
    summary = read(folder, theirs)
    rows, what = [row for row in summary.rows if row.state in _TELLING], "trial"
    if all(one.key.lstrip("+") != summary.seed_key.lstrip("+") for one in space.parameters):
        together = [_together(one.rows, one.params) for one in by_configuration(rows, summary.seed_key) if one.rows]
        rows, what = together, "configuration" if len(together) < len(rows) else what
    before, now = theirs.config | _choices(folder / "multirun.yaml"), definition.shared(config) | _choices(config)
    found = [point for row in rows if (point := _within(row, before, now, space)) is not None]
    if not found:
        said = f"none of its {len(rows)} {what}s lies in this search space"
        raise UserError(f"hydra.sweeper.learn_from={folder.name}: {said}")
    swept = {one.key for one in space.parameters} | {name.partition(" under ")[0] for name in theirs.parameters}
    below = tuple(f"{key}." for key in swept)
    differs = [
        f"{key}={before.get(key, '(nothing)')}, not {now.get(key, '(nothing)')}"
        for key in before | now
        if key and before.get(key) != now.get(key) and key not in swept and not key.startswith(below)
    ]
    line = f"{counted(len(found), what)} of study {folder.name}"
    if left := len(rows) - len(found):
        line += f" ({left} more outside of this search space)"
    if differs:
        line += f", which had {'; '.join(differs[:5])}{' ...' * (len(differs) > 5)}"
    return found, line


def _together(rows: list[TrialRecord], params: Point) -> TrialRecord:
    """The trials of one configuration, which differ in their seed alone, as one: with their mean, or as the first that
    was pruned or failed.
    """
    bad = next((row for row in rows if row.state is not State.COMPLETED), None)
    if bad or len(rows) == 1:
        return replace(bad or rows[0], params=params)
    mean = [fmean(values) for values in zip(*(row.objective for row in rows), strict=True)]
    *before, last = rows[0].attempts
    return replace(rows[0], params=params, attempts=(*before, replace(last, objective=mean)))


def _within(
    row: TrialRecord, before: Mapping[str, str], now: Mapping[str, str], space: SearchSpace
) -> EarlierTrial | None:
    """The trial as a point of this space, also of what its study did not vary; None if it is none."""
    point, left = Point(), {key.lstrip("+"): value for key, value in row.params.items()}
    for one in space.parameters:
        if space.exists(one, point):
            name = one.key.lstrip("+")
            own = one.find(left.pop(name)) if name in left else one.find(_value(before.get(name)))
            if not own:
                return None
            point[one.key] = own[0]
    if any(now.get(name) != (value if isinstance(value, str) else text_of(value)) for name, value in left.items()):
        return None
    return EarlierTrial(point, row.state, row.objective)


def _value(text: str | None) -> Any:
    """What a text stands for; of None something that is no value of any parameter."""
    if text is None:
        return {}
    try:
        return json.loads(text)
    except ValueError:
        return text


def _choices(config: DictConfig | Path) -> dict[str, str]:
    """What was chosen of each config group; nothing if the file cannot be read."""
    with suppress(OSError, ValueError, YAMLError, OmegaConfBaseException):
        node: Any = OmegaConf.load(config) if isinstance(config, Path) else config
        choices = OmegaConf.select(node, "hydra.runtime.choices", default={})
        return {str(key): str(value) for key, value in choices.items() if not str(key).startswith("hydra/")}
    return {}
