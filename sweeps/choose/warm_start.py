"""The warm start of a search: points that a person chose, and the trials of earlier studies."""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from sweeps.analysis.configurations import by_configuration
from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, read_json, write_whole
from sweeps.base.wording import counted
from sweeps.hydra.settings import SweeperConf
from sweeps.hydra.sweeper_settings import advise_search, target_of
from sweeps.record import place, study_file
from sweeps.record.definition import Definition, shared
from sweeps.record.study import StudySnapshot, verdict
from sweeps.space.space import Parameter, SearchSpace, canonical, is_grid, text_of, without_plus
from sweeps.trial.job import Outcome, Point, State

_FILE = "learned.json"
_MOST_CHANGES = 5  # different values that the note about a study shows
_LEARNED = {State.COMPLETED, State.PRUNED, State.FAILED, State.DIVERGED, State.OUT_OF_MEMORY}
_SAMPLERS = ("default", "tpe", "gp")  # options that learn from earlier trials
Read = Callable[[Path, Definition], StudySnapshot]


def start_points(settings: SweeperConf, space: SearchSpace) -> list[Point]:
    """Return the points of `hydra.sweeper.start`. Raises UserError if a point is not in the space
    or listed twice."""
    start = settings.start
    if start and is_grid(settings):
        raise _needs_a_search("hydra.sweeper.start")
    count = len(start)
    if count > (settings.n_trials or 0):
        raise UserError(
            f"hydra.sweeper.start: {count} points, but"
            f" hydra.sweeper.n_trials={settings.n_trials}.\nType hydra.sweeper.n_trials={count} or"
            " more."
        )
    points: dict[str, Point] = {}
    for typed in start:
        point = _parse_point(typed, space)
        identity = canonical(point)
        words = f"hydra.sweeper.start: {text_of(dict(point))}"
        if identity in points:
            raise UserError(f"{words} is listed twice.\nRemove one.")
        if not space.allows(point):
            raise UserError(f"{words} is not in the search space.\nRemove it.")
        points[identity] = point
    return [*points.values()]


def _needs_a_search(setting: str) -> UserError:
    advice = f"To search, {advise_search(sys.argv)}"
    return UserError(f"{setting}: a grid tries every point anyway.\n{advice}")


def _parse_point(typed: Mapping[str, Any], space: SearchSpace) -> Point:
    setting = f"hydra.sweeper.start={text_of([dict(typed)])}"
    point = Point()
    values = {str(key).lstrip("+"): value for key, value in typed.items()}
    for parameter in space.parameters:
        name = parameter.key.lstrip("+")
        if name not in values or not _is_decided(parameter, point, space):
            continue
        value = values[name]
        matches = parameter.find(value)
        if not matches:
            problem = f"{name}={text_of(value)} is not in the search space"
            raise UserError(f"{setting}: {problem}.\nChoose from {parameter.key}={parameter.typed}")
        point[parameter.key] = matches[0]

    used = {key.lstrip("+") for key in point}
    unused = [name for name in values if name not in used]
    if unused:
        raise UserError(f"{setting}: {_explain_unused(unused[0], space)}")
    if not point:
        raise UserError(
            f"{setting}: the point has no values.\nType, for example: 'hydra.sweeper.start=[{{lr:"
            " 0.001}]'"
        )
    return point


def _is_decided(parameter: Parameter, point: Point, space: SearchSpace) -> bool:
    """Return whether a parameter exists beside the values of a point; not while the key of its
    condition has no value."""
    condition = parameter.condition
    swept = {other.key for other in space.parameters}
    is_undecided = condition and condition.key in swept and condition.key not in point
    return not is_undecided and space.exists(parameter, point)


def _explain_unused(name: str, space: SearchSpace) -> str:
    """Return why a value has no parameter, and what to type."""
    keys = [parameter.key.lstrip("+") for parameter in space.parameters]
    if name not in keys:
        swept = ", ".join(dict.fromkeys(keys))
        return f"{name} is not in the search space.\nChoose from: {swept}"
    same = [parameter for parameter in space.parameters if parameter.key.lstrip("+") == name]
    conditions = " or ".join(str(parameter.condition) for parameter in same)
    return f"{name} exists only under {conditions}.\nAdd this condition, or remove {name}."


@dataclass(frozen=True)
class EarlierTrial:
    """A trial of an earlier study, as a point of this study's search space."""

    point: Point
    state: str
    objective: list[float]
    study: int = 0  # index of the earlier study

    @property
    def has_failed(self) -> bool:
        return self.state not in (State.COMPLETED, State.PRUNED)


@dataclass
class EarlierTrials:
    """The trials of `hydra.sweeper.learn_from`. The study has its own copy, because earlier studies
    can be deleted."""

    folder: Path
    trials: list[EarlierTrial]
    notes: list[str]  # one line about each earlier study; empty if the trials are from the copy

    def save(self) -> None:
        """Write the copy, before any trial depends on it."""
        if self.notes:
            write_whole(
                self.folder / _FILE,
                json.dumps({"trials": [asdict(trial) for trial in self.trials]}),
            )


def load_earlier(
    settings: SweeperConf, space: SearchSpace, config: DictConfig, folder: Path, read: Read
) -> EarlierTrials:
    """Return the trials of the earlier studies, which `read` reads unless the study has its copy.

    Raises UserError if there is no such study, it has another objective, or the sampler cannot use
    earlier trials.
    """
    earlier = EarlierTrials(folder, [], [])
    if not settings.learn_from:
        return earlier
    _check_sampler(settings)
    with suppress(CorruptFile, TypeError, LookupError):  # because the copy can be made again
        copy = read_json(folder / _FILE) or {}
        return EarlierTrials(folder, [EarlierTrial(**trial) for trial in copy["trials"]], [])

    folders = set[Path]()
    for index, name in enumerate(settings.learn_from):
        study = find_study(name, folder)
        if study.resolve() in folders:
            raise UserError(f"hydra.sweeper.learn_from: study {name} is listed twice.\nRemove one.")
        folders.add(study.resolve())
        trials, note = _read_study(study, settings, space, config, read)
        earlier.trials += [replace(trial, study=index) for trial in trials]
        earlier.notes.append(note)
    return earlier


def _check_sampler(settings: SweeperConf) -> None:
    """Raise UserError if the study's sampler cannot use earlier trials."""
    if is_grid(settings):
        raise _needs_a_search("hydra.sweeper.learn_from")
    target = (settings.sampler or {}).get("_target_")
    if target not in [target_of("sampler", name) for name in _SAMPLERS]:
        raise UserError(
            "hydra.sweeper.learn_from: this sampler cannot learn from earlier studies.\n"
            "Use hydra/sweeper/sampler=default, tpe or gp."
        )


def find_study(name: str, folder: Path) -> Path:
    """Return the folder of an earlier study: beside the study's `folder`, or a path. Raises
    UserError."""
    paths = (folder.parent / name, Path(name))
    study = next((path for path in paths if (path / "study.json").exists()), None)
    if study is None:
        studies = place.suggest_study(name, folder.parent)
        raise UserError(
            f"hydra.sweeper.learn_from={name}: there is no such earlier study in"
            f" {folder.parent}.\n{studies}"
        )
    if study.absolute() == folder:
        raise UserError(
            f"hydra.sweeper.learn_from={name}: this is the study itself.\nChoose an earlier study."
        )
    return study


def _read_study(
    folder: Path, settings: SweeperConf, space: SearchSpace, config: DictConfig, read: Read
) -> tuple[list[EarlierTrial], str]:
    """Return the trials of an earlier study that are points of `space`, and a note for the user."""
    setting = f"hydra.sweeper.learn_from={folder.name}"
    definition = _read_definition(setting, folder, settings)
    trials, noun = _merge(read(folder, definition), space)
    before = definition.config | _choices(folder / "multirun.yaml")
    now = shared(config) | _choices(config)

    points = [*filter(None, (_to_space(*trial, before, now, space) for trial in trials))]
    if not points:
        raise UserError(
            f"{setting}: none of its {len(trials)} {noun}s is in this search space.\nChoose another"
            " study."
        )

    note = f"warm start: {counted(len(points), noun)} of study {folder.name}"
    if outside := len(trials) - len(points):
        note += f" ({outside} more outside of this search space)"
    names = [*(parameter.key for parameter in space.parameters), *definition.parameters]
    return points, note + _describe_changes(before, now, names)


def _read_definition(setting: str, folder: Path, settings: SweeperConf) -> Definition:
    """Return the definition of an earlier study. Raises UserError if it has another objective."""
    try:
        definition = study_file.read(folder)
    except CorruptFile as error:
        raise UserError(
            f"{setting}: {error}.\nTo repair it, type the command that started that study"
        ) from error
    theirs = _objective_text(definition.objective, definition.directions)
    ours = _objective_text(settings.objectives, settings.directions)
    if theirs != ours:
        problem = f"its objective is {theirs}, but this study's is {ours}"
        raise UserError(f"{setting}: {problem}.\nChoose another study.")
    return definition


def _objective_text(names: Sequence[str], directions: Sequence[str]) -> str:
    return f"{' and '.join(names)} ({' and '.join(directions)})"


def _merge(study: StudySnapshot, space: SearchSpace) -> tuple[list[tuple[Point, Outcome]], str]:
    """Return params and outcomes to learn from, the repeats of a configuration as one, and a noun
    for them.

    If the space has the seed, repeats are points of their own.
    """
    trials = [
        trial
        for trial in study.rows
        if trial.state in _LEARNED and all(map(math.isfinite, trial.objective))
    ]
    seed = study.seed_key.lstrip("+")
    if any(parameter.key.lstrip("+") == seed for parameter in space.parameters):
        return [(trial.params, trial.attempts[-1]) for trial in trials], "trial"
    merged = []
    for group in by_configuration(trials, study.seed_key):
        if end := verdict(group.rows, 1):
            merged.append((group.params, end))
    return merged, "configuration" if len(merged) < len(trials) else "trial"


def _describe_changes(
    before: Mapping[str, str], now: Mapping[str, str], names: Sequence[str]
) -> str:
    """Return the values outside of the search space, of parameters with these `names`, that differ
    from the earlier study's; "" if none does."""
    swept = {name.partition(" under ")[0] for name in names}
    groups = tuple(f"{key}." for key in swept)
    texts = []
    for key in {**before, **now}:
        is_fixed = key and key not in swept and not key.startswith(groups)
        if is_fixed and _parse_value(before.get(key)) != _parse_value(now.get(key)):
            old, new = (values.get(key, "(nothing)") for values in (before, now))
            texts.append(f"{key}={old}, not {new}")
    if not texts:
        return ""
    more = " ..." if len(texts) > _MOST_CHANGES else ""
    return f"; its configuration differs: {'; '.join(texts[:_MOST_CHANGES])}{more}"


def _to_space(
    params: Point,
    end: Outcome,
    before: Mapping[str, str],
    now: Mapping[str, str],
    space: SearchSpace,
) -> EarlierTrial | None:
    """Return a trial as a point of this space, with values that its study fixed; None if it is
    outside."""
    point = Point()
    left = without_plus(params)
    for parameter in space.parameters:
        if not space.exists(parameter, point):
            continue
        name = parameter.key.lstrip("+")
        value = left.pop(name) if name in left else _parse_value(before.get(name))
        matches = parameter.find(value)
        if not matches:
            return None
        point[parameter.key] = matches[0]

    for name, value in left.items():
        fixed = now.get(name)
        if value not in (fixed, _parse_value(fixed)):
            return None
    if not space.contains(point):
        return None
    return EarlierTrial(point, end.state, end.objective)


def _parse_value(text: str | None) -> Any:
    """Return the value of a text; for None a value that no parameter has."""
    try:
        return {} if text is None else json.loads(text)
    except ValueError:
        return text


def _choices(config: DictConfig | Path) -> dict[str, str]:
    """Return the chosen option of each config group; empty if the file cannot be read."""
    with suppress(OSError, ValueError, YAMLError, OmegaConfBaseException):
        node: Any = OmegaConf.load(config) if isinstance(config, Path) else config
        choices = OmegaConf.select(node, "hydra.runtime.choices", default={})
        return {
            str(key): str(value)
            for key, value in choices.items()
            if not str(key).startswith("hydra/")
        }
    return {}
