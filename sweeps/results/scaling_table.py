"""Scaling that was measured elsewhere, from a table in a CSV file.

Columns: gpus, nodes, ranks (at least one of them); epoch_time or total_time (s, of the whole training); and if known
images_per_second, accuracy, epochs (that were trained), seed. The values of any other column tell series apart. Lines
alike but for their numbers are repetitions; those that begin with # are left out.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

from sweeps.errors import UserError
from sweeps.results.scaling import COUNTED, EPOCH_TIME, SINGULAR, SPEED, Sample, Scaling, compare, size

_TOTAL_TIME, _ACCURACY, _EPOCHS = "total_time", "accuracy", "epochs"
_REPETITION = "seed"
_OPTIONAL = (SPEED, _ACCURACY, _EPOCHS)
_MOST = 1e9  # seconds are 30 years


def read_table(path: Path, target: float | None = None, wanted: Sequence[int] = ()) -> Scaling:
    """Raises UserError, naming line and column, for what is no such table; OSError if it cannot be read."""
    header, samples = read_samples(path)
    if len({(sample.count, sample.nodes) for sample in samples}) < 2:
        alone = f"{path} tells of one count alone: {samples[0].count}."
        raise UserError(f"{alone}\nGive two or more, each on a line of its own")
    unit = "GPUs" if "gpus" in header else "processes" if "ranks" in header else "nodes"
    time = "epoch time" if EPOCH_TIME in header or _EPOCHS in header else "total time"
    found = Scaling(path.stem, unit, f"{SINGULAR[unit]}-hours", _ACCURACY, time, wanted=wanted)
    return compare(found, samples, True, target)


def read_samples(path: Path) -> tuple[list[str], list[Sample]]:
    """The columns that hold something, and a sample for each line. Raises as read_table does, but for one count."""
    if not path.is_file():
        raise UserError(f"there is no table {path}\nName a CSV file, as docs/scaling.md describes it")
    (where, header), *lines = _lines(path)
    if twice := [name for name in header if header.count(name) > 1]:
        raise UserError(f"{where} has the column {twice[0]!r} twice.\nName each column once")
    for wanted in (COUNTED, (EPOCH_TIME, _TOTAL_TIME)):
        if set(wanted).isdisjoint(header):
            missing = f"{', '.join(wanted[:-1])} or {wanted[-1]}"
            raise UserError(f"{where} has the columns {', '.join(header)}.\nOne is missing: {missing}")
    if not lines:
        raise UserError(f"{path} has a header and no line of numbers below it.\nGive a line for each trial")
    for where, cells in lines:
        if len(cells) != len(header):
            raise UserError(f"{where} has {len(cells)} cells.\nGive as many as the header: {len(header)}")
    rows = [(where, dict(zip(header, cells, strict=True))) for where, cells in lines]
    header = [name for name in header if any(cells[name] for _, cells in rows)]
    if blank := [where for where, cells in rows if _EPOCHS in header and not cells[_EPOCHS]]:
        raise UserError(f"{blank[0]}, column {_EPOCHS}: it is empty\nGive it on every line, or on none")
    known = (*COUNTED, EPOCH_TIME, _TOTAL_TIME, *_OPTIONAL, _REPETITION)
    others = [name for name in header if name not in known and len({cells[name] for _, cells in rows}) > 1]
    return header, [_sample(cells, others, where) for where, cells in rows]


def _sample(cells: dict[str, str], others: Sequence[str], where: str) -> Sample:
    names = [name for name in (*COUNTED, EPOCH_TIME, _TOTAL_TIME, *_OPTIONAL) if name in cells]
    told = {n: _number(n, cells[n], where) for n in names if cells[n] or n not in _OPTIONAL}
    found = size({name: int(told[name]) for name in COUNTED if name in told})
    assert found
    epochs, accuracy, total_s = told.get(_EPOCHS), told.get(_ACCURACY), told.get(_TOTAL_TIME)
    epoch_s = told.get(EPOCH_TIME) or (total_s or 0.0) / (epochs or 1)
    total_s = total_s or (epochs and epochs * epoch_s)
    return Sample(
        count=found[0],
        nodes=found[1],
        devices=found[0],
        series=" ".join(f"{name}={cells[name]}" for name in others if cells[name]),
        epoch_s=[epoch_s],
        course=[(total_s, accuracy)] if total_s and accuracy is not None else [],
        objective=accuracy,
        images_s=told.get(SPEED),
    )


def _number(name: str, cell: str, where: str) -> float:
    whole, least = name in (*COUNTED, _EPOCHS), -_MOST if name == _ACCURACY else 0
    try:
        value = float(cell)
        if (1 <= value <= 1e6 and value == int(value)) if whole else least < value <= _MOST:
            return value
    except ValueError:
        pass
    allowed = "a whole number, 1 to 1,000,000" if whole else f"a number{' above 0' * (not least)}, at most {_MOST:.0e}"
    raise UserError(f"{where}, column {name}: {cell!r}\nAllowed: {allowed.replace('e+0', 'e')}")


def _lines(path: Path) -> list[tuple[str, list[str]]]:
    """The header and the lines below it, as cells, and where each is."""
    try:
        numbered = enumerate(path.read_text("utf-8-sig").splitlines(), 1)
        told = [(number, line) for number, line in numbered if line.strip(", \t") and not line.startswith("#")]
        rows = [(f"{path} line {n}", [cell.strip() for cell in next(csv.reader([line]))]) for n, line in told]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is no CSV in UTF-8: {error}\nSave it as CSV in UTF-8") from None
    if not rows:
        raise UserError(f"{path} is empty.\nGive a line of column names, and below it a line for each trial")
    return rows
