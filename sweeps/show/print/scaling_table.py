"""Scaling that was measured elsewhere, from a table in a CSV file.

Columns: gpus, nodes, ranks (at least one of them); epoch_time or total_time (s, of the whole
training). Optional: images_per_second, or examples (of an epoch); accuracy, epochs (that were
trained), epochs_to_stable, seed. The values of any other column name the series. Lines of one
series with equal counts are repetitions. Lines that begin with # are comments.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sweeps.base import csv_table
from sweeps.base.errors import UserError
from sweeps.show.scaling import (
    COUNTED,
    EPOCH_TIME,
    EPOCHS_TO_STABLE,
    SINGULAR,
    SPEED,
    Sample,
    Scaling,
    compare,
    parse_size,
)

_TOTAL_TIME = "total_time"
_ACCURACY = "accuracy"
_EPOCHS = "epochs"
_EXAMPLES = "examples"
_OPTIONAL = (SPEED, _ACCURACY, _EPOCHS, EPOCHS_TO_STABLE, _EXAMPLES)
_NUMBERS = (*COUNTED, EPOCH_TIME, _TOTAL_TIME, *_OPTIONAL)
_UNITS = {"gpus": "GPUs", "ranks": "processes", "nodes": "nodes"}  # of the count, by column
_MOST = 1e9  # in seconds, 30 years


def read_table(
    path: Path, target: float | None = None, forecast_counts: Sequence[int] = ()
) -> Scaling:
    """Return the scaling in a table. Raises UserError if the table is invalid, OSError if it cannot
    be read."""
    header, samples = read_samples(path)
    if len({(sample.count, sample.nodes) for sample in samples}) < 2:
        raise UserError(
            f"{path} has a single count: {samples[0].count}.\nAdd a line with another count."
        )
    unit = next(unit for name, unit in _UNITS.items() if name in header)
    time = "epoch time" if EPOCH_TIME in header or _EPOCHS in header else "total time"
    scaling = Scaling(
        path.stem, unit, f"{SINGULAR[unit]}-hours", _ACCURACY, time, forecast_counts=forecast_counts
    )
    return compare(scaling, samples, True, target)


def read_samples(path: Path) -> tuple[list[str], list[Sample]]:
    """Return the columns with values, and a sample per line. Raises as read_table, but accepts a
    single count."""
    table = _table(path)
    _check_columns(table.columns, f"{path} line {table.header_line}")
    if not table.lines:
        raise UserError(f"{path} has a header, but no lines below it.\nAdd a line for each trial.")
    rows = [(f"{path} line {line.number}", line.cells) for line in table.lines]
    filled = [name for name in table.columns if any(row[name] for _, row in rows)]
    blank = [where for where, row in rows if _EPOCHS in filled and not row[_EPOCHS]]
    if blank:
        raise UserError(
            f"{blank[0]}, column {_EPOCHS}: empty cell.\nUse a number on every line, or remove the"
            " column."
        )
    others = [name for name in filled if name not in (*_NUMBERS, "seed")]
    differing = [name for name in others if len({row[name] for _, row in rows}) > 1]
    return filled, [_sample(row, differing, where) for where, row in rows]


def _check_columns(columns: Sequence[str], where: str) -> None:
    """Raise UserError if a column is missing."""
    for required in (COUNTED, (EPOCH_TIME, _TOTAL_TIME)):
        if set(required).isdisjoint(columns):
            missing = f"{', '.join(required[:-1])} or {required[-1]}"
            raise UserError(
                f"{where}: a column is missing among {', '.join(columns)}.\n"
                f"Add a column: {missing}."
            )


def _sample(cells: Mapping[str, str], names: Sequence[str], where: str) -> Sample:
    """Return the sample of a line; its series has the values of the columns `names`."""
    numbers = _read_numbers(cells, where)
    size = parse_size({name: int(numbers[name]) for name in COUNTED if name in numbers})
    assert size
    count, nodes, _ = size
    epochs = numbers.get(_EPOCHS, 0.0)
    epoch_s = numbers.get(EPOCH_TIME) or numbers[_TOTAL_TIME] / (epochs or 1)
    total_s = numbers.get(_TOTAL_TIME) or epochs * epoch_s
    is_timed = total_s and _ACCURACY in numbers
    sample = Sample(
        count=count,
        nodes=nodes,
        devices=count,
        series=_name({name: cells[name] for name in names}),
        epoch_s=[epoch_s],
        course=[(total_s, numbers[_ACCURACY])] if is_timed else [],
        objective=numbers.get(_ACCURACY),
        images_s=numbers.get(SPEED),
        epochs_to_stable=numbers.get(EPOCHS_TO_STABLE),
    )
    if EPOCH_TIME in numbers or epochs:
        return _with_epochs(sample, numbers)
    return sample


def _name(cells: Mapping[str, str]) -> str:
    return " ".join(f"{name}={cell}" for name, cell in cells.items() if cell)


def _with_epochs(sample: Sample, numbers: Mapping[str, float]) -> Sample:
    """Return the sample with what follows from the duration of an epoch."""
    (epoch_s,) = sample.epoch_s
    images_s = sample.images_s
    if images_s is None and _EXAMPLES in numbers:
        images_s = numbers[_EXAMPLES] / epoch_s
    stable_s = sample.epochs_to_stable and sample.epochs_to_stable * epoch_s
    return replace(sample, images_s=images_s, time_to_stable_s=stable_s)


def _read_numbers(cells: Mapping[str, str], where: str) -> dict[str, float]:
    """Return the numbers of a line by column; only optional cells may be empty."""
    numbers = {}
    for name in _NUMBERS:
        if name in cells and (cells[name] or name not in _OPTIONAL):
            numbers[name] = _number(name, cells[name], where)
    return numbers


def _number(name: str, cell: str, where: str) -> float:
    is_whole = name in (*COUNTED, _EPOCHS)
    least = -_MOST if name == _ACCURACY else 0
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if is_whole:
        allowed = "a whole number, 1 to 1,000,000"
        is_allowed = 1 <= value <= 1e6 and value.is_integer()
    else:
        allowed = "a number, at most 1e9" if least else "a number above 0, at most 1e9"
        is_allowed = least < value <= _MOST
    if not is_allowed:
        raise UserError(f"{where}, column {name}: invalid value {cell!r}.\nUse {allowed}.")
    return value


def _table(path: Path) -> csv_table.Table:
    if not path.is_file():
        raise UserError(
            f"{path} is not a file.\n"
            "Type the path of a CSV file as described in docs/how_to/scaling.md."
        )
    table = csv_table.read(path, str(path), comment="#")
    if table is None:
        raise UserError(
            f"{path} is empty.\nAdd a line of column names, and below it a line for each trial."
        )
    return table
