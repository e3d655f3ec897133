"""The listed points of a grid, `hydra.sweeper.points`: a list of mappings, or a CSV file."""

from pathlib import Path

from sweeps.base import csv_table
from sweeps.base.errors import UserError
from sweeps.hydra.settings import SweeperConf
from sweeps.space.grammar import point_of
from sweeps.space.space import SearchSpace, canonical, is_grid, text_of
from sweeps.study.plan.compose import Composer
from sweeps.trial.job import Point

_KEY = "hydra.sweeper.points"
_EXAMPLE = "'hydra.sweeper.points=[{loss: mse, lr: 0.1},{loss: huber, lr: 0.2}]'"


def read_listed(settings: SweeperConf, composer: Composer, space: SearchSpace) -> list[Point]:
    """Return the points. Raises UserError if the list, or a point of it, is wrong, or one of its
    keys is swept."""
    if not is_grid(settings):
        raise UserError(
            f"{_KEY}: a search chooses its points.\nUse hydra.sweeper.start for the first points of"
            " a search"
        )
    typed = settings.points
    rows = _read_table(typed) if isinstance(typed, str) else typed
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) and row for row in rows)):
        raise UserError(
            f"{_KEY}={text_of(typed)}: not a list of points.\nType a list, as in {_EXAMPLE}, or a"
            " CSV file"
        )
    listed: dict[str, Point] = {}
    for number, row in enumerate(rows, 1):
        texts = [value if isinstance(value, str) else text_of(value) for value in row.values()]
        words = [f"{key}={text}" for key, text in zip(row, texts, strict=True)]
        try:
            point = point_of(composer.parse(words))
        except UserError as error:
            raise UserError(f"{_KEY}, point {number}: {error}") from error
        identity = canonical(point)
        if identity in listed:
            first = [*listed].index(identity) + 1
            raise UserError(f"{_KEY}: point {number} equals point {first}.\nRemove one of them")
        listed[identity] = point
    keys = {key.lstrip("+") for point in listed.values() for key in point}
    for key in (parameter.key for parameter in space.parameters):
        if key.lstrip("+") in keys:
            raise UserError(
                f"{_KEY} has {key}, which is swept, too.\nRemove {key} from the points, or {key}="
            )
    return [*listed.values()]


def _read_table(typed: str) -> list[dict[str, str]]:
    """Return the points of a CSV file as texts, without empty cells."""
    source = f"{_KEY}={typed}"
    try:
        table = csv_table.read(Path(typed), source)
    except FileNotFoundError as error:
        raise UserError(
            f"{source}: there is no such file.\nType a list, as in {_EXAMPLE}, or a CSV file"
        ) from error
    if table is None:
        return []

    for column in table.columns:
        if any(sign.isspace() for sign in column):
            raise UserError(
                f"{source}: column {column!r} is no key, because it contains a space.\n"
                f"Separate the columns by {table.separator}, and name each by its key, such as lr"
            )
    return [{key: cell for key, cell in line.cells.items() if cell} for line in table.lines]
