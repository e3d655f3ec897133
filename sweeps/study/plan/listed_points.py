"""Points that a person lists: those of a grid, `hydra.sweeper.points`, and the first ones of a
search, `hydra.sweeper.start`. They are a list of mappings, or a CSV file."""

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from sweeps.base import csv_table
from sweeps.base.errors import UserError
from sweeps.hydra.settings import FOREIGN_NAMES, SweeperConf
from sweeps.space.grammar import point_of
from sweeps.space.space import SearchSpace, canonical, is_grid, text_of
from sweeps.study.plan.compose import Composer
from sweeps.trial.job import Point

_GRID = "hydra.sweeper.points"
_START = "hydra.sweeper.start"
_EXAMPLES = {
    _GRID: "[{loss: mse, lr: 0.1},{loss: huber, lr: 0.2}]",
    _START: "[{lr: 0.001, batch_size: 64}]",
}


def read_listed(settings: SweeperConf, composer: Composer, space: SearchSpace) -> list[Point]:
    """Return the points of a grid. Raises UserError if the list, or a point of it, is wrong, or one
    of its keys is swept."""
    typed = settings.points
    if not is_grid(settings):
        start = shlex.quote(f"{_START}={text_of(typed)}")
        raise UserError(
            f"{_GRID}: a search chooses its points.\nTo try these first, type in its place: {start}"
        )
    rows = _read_table(_GRID, typed) if isinstance(typed, str) else typed
    if not rows or not _are_points(rows):
        raise _no_points(_GRID, typed)
    listed: dict[str, Point] = {}
    for number, point in enumerate(_parse_rows(_GRID, rows, composer), 1):
        identity = canonical(point)
        if identity in listed:
            first = [*listed].index(identity) + 1
            raise UserError(f"{_GRID}: point {number} equals point {first}.\nRemove one of them")
        listed[identity] = point
    keys = {key.lstrip("+") for point in listed.values() for key in point}
    for key in (parameter.key for parameter in space.parameters):
        if key.lstrip("+") in keys:
            raise UserError(
                f"{_GRID} has {key}, which is swept, too.\nRemove {key} from the points, or {key}="
            )
    return [*listed.values()]


def with_start(settings: SweeperConf, composer: Composer) -> SweeperConf:
    """Return the settings with the first points of a search as a list, also those of a CSV file.
    Raises UserError if they are none."""
    typed = settings.start
    if isinstance(typed, str):
        rows = _read_table(_START, typed)
        return replace(settings, start=[*_parse_rows(_START, rows, composer)])
    if not _are_points(typed):
        raise _no_points(_START, typed)
    return settings


def in_table(error: UserError, settings: SweeperConf, point: Point) -> UserError:
    """Return the error of a value that a CSV file has, with the file and the line or the column;
    another error as it is."""
    if not isinstance(settings.points, str):
        return error
    source = f"{_GRID}={settings.points}"
    problem, _, advice = str(error).partition("\n")
    for line in csv_table.read(Path(settings.points), source).lines:  # type: ignore[union-attr]
        words = [f"{key}={cell}" for key, cell in line.cells.items() if cell]
        row = point_of(OverridesParser.create().parse_overrides(words))
        key = next((key for key in row if problem.startswith((f"{key}=", f"'{key}'"))), "")
        if not key or not row.items() <= point.items():
            continue
        if problem.startswith(f"'{key}' is not in the configuration."):
            return UserError(f"{source}: {_explain_column(key, problem)}")
        if " has no '" in problem:  # of a choice, such as optimizer=sgd
            problem = f"{problem.partition('. Type')[0]}."
            advice = "Leave its cell empty"
        advice = re.sub(r"^Type: '?[^=]+=(.*?)'?$", r"Write in its place: \1", advice)
        return UserError(f"{source}, line {line.number}: {problem}\n{advice}".rstrip())
    return error


def _explain_column(column: str, problem: str) -> str:
    """Return that a column is no key, and the key that it certainly means, which `problem` has."""
    match = re.search(r"Did you mean '(.+?)'\?", problem)
    near = match[1] if match else ""
    lowered = column.lower()
    likeness = difflib.SequenceMatcher(None, lowered, near).ratio()
    is_certain = likeness >= 0.8 or near == FOREIGN_NAMES.get(lowered)
    other_name = f", or name it {near}" if near and is_certain else ""
    return f"column '{column}' is no key of the configuration.\nDelete the column{other_name}"


def _are_points(rows: Any) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) and row for row in rows)


def _no_points(key: str, typed: Any) -> UserError:
    example = shlex.quote(f"{key}={_EXAMPLES[key]}")
    return UserError(
        f"{key}={text_of(typed)}: not a list of points.\nType a list of points in braces, as in"
        f" {example}, or a CSV file"
    )


def _parse_rows(key: str, rows: list[Mapping[str, Any]], composer: Composer) -> Iterator[Point]:
    for number, row in enumerate(rows, 1):
        texts = [value if isinstance(value, str) else text_of(value) for value in row.values()]
        words = [f"{name}={text}" for name, text in zip(row, texts, strict=True)]
        try:
            yield point_of(composer.parse(words))
        except UserError as error:
            raise UserError(f"{key}, point {number}: {error}") from error


def _read_table(key: str, typed: str) -> list[Mapping[str, Any]]:
    """Return the points of a CSV file as texts, without empty cells. Raises UserError if it has
    none."""
    source = f"{key}={typed}"
    try:
        table = csv_table.read(Path(typed), source)
    except FileNotFoundError as error:
        example = shlex.quote(f"{key}={_EXAMPLES[key]}")
        raise UserError(
            f"{source}: there is no such file.\nType a list, as in {example}, or a CSV file"
        ) from error
    if table is None or not table.lines:
        raise UserError(
            f"{source}: the file has no points.\nUse CSV with keys as its header, and a line for"
            " each point"
        )

    for column in table.columns:
        if any(sign.isspace() for sign in column):
            raise UserError(
                f"{source}: column {column!r} is no key, because it contains a space.\n"
                f"Separate the columns by {table.separator}, and name each by its key, such as lr"
            )
    return [{column: cell for column, cell in line.cells.items() if cell} for line in table.lines]
