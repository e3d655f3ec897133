"""A table that people or programs wrote as CSV, with commas, semicolons or tabs."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeps.base.errors import UserError

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

Cells = list[str]


@dataclass(frozen=True)
class Line:
    """The cells of a line of a table, by column; a cell may be empty."""

    number: int
    cells: dict[str, str]


@dataclass(frozen=True)
class Table:
    """A table with a header. Its columns have different names."""

    header_line: int
    columns: Sequence[str]
    lines: Sequence[Line]
    separator: str  # a word, such as semicolons


def read(path: Path, source: str, comment: str = "") -> Table | None:
    """Return the table in a file; None if the file is empty.

    source: what names the file in messages; comment: what a line begins with that is no part of the
    table. Raises UserError if the file is no such table, and FileNotFoundError.
    """
    try:
        content = path.read_bytes()
        text = content.decode("utf-16" if content.startswith(_UTF_16) else "utf-8-sig")
        if comment:
            text = _blank_comments(text, comment)
        separator = _separator(text)
        if "\0" in text:
            raise csv.Error("it contains a zero byte")
        numbered = _split(text, separator)
    except FileNotFoundError:
        raise
    except IsADirectoryError as error:
        raise UserError(f"{source}: it is a folder.\nUse a CSV file with a header") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{source}: not a table in UTF-8: {error}.\nUse CSV with a header"
        ) from error
    if not numbered:
        return None

    (header_line, header), *rows = numbered
    if separator == ";":
        _refuse_decimal_commas(source, header, rows)
    _refuse_header(source, header, rows)
    lines = [Line(number, _by_column(source, header, number, cells)) for number, cells in rows]
    columns = [column for column in header if column]
    return Table(header_line, columns, lines, _SEPARATORS[separator])


def _blank_comments(text: str, comment: str) -> str:
    """Return the text with empty lines for comments, so that lines keep their numbers."""
    lines = text.splitlines(keepends=True)
    return "".join("\n" if line.startswith(comment) else line for line in lines)


def _separator(text: str) -> str:
    """Return the separator that occurs most in the header, outside of quotes."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    unquoted = "".join(header.split('"')[::2])
    # a comma without any separator, because it is the first
    return max(_SEPARATORS, key=unquoted.count)


def _split(text: str, separator: str) -> list[tuple[int, Cells]]:
    """Return number and cells of each line that is not empty."""
    file = io.StringIO(text, newline="")  # because str.splitlines ends lines at form feeds, too
    reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
    lines: list[tuple[int, Cells]] = []
    for cells in reader:
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            lines.append((reader.line_num, stripped))
        if text.count('"') % 2 and any("\n" in cell for cell in cells):
            raise csv.Error(f"a quote before line {reader.line_num} is not closed")
    return lines


def _refuse_header(source: str, header: Cells, rows: list[tuple[int, Cells]]) -> None:
    if len(header) == 1 and len(header[0].split()) > 1:
        raise UserError(
            f"{source}: column {header[0]!r} contains a space, and the header no separator.\n"
            "Separate the columns by commas"
        )
    _refuse_unnamed(source, header, rows)

    twice = next((key for key, count in Counter(filter(None, header)).items() if count > 1), None)
    if twice is not None:
        raise UserError(f"{source}: column {twice!r} occurs twice.\nRemove or rename one of them")
    wrong = next((column for column in header if _is_number(column)), None)
    if wrong is not None:
        raise UserError(
            f"{source}: its first line has the value {wrong}, and no name.\nAdd a header"
        )


def _refuse_unnamed(source: str, header: Cells, rows: list[tuple[int, Cells]]) -> None:
    """Raise UserError for a column with values and without a name."""
    unnamed = [column for column, key in enumerate(header) if not key]
    if unnamed == [0] and _is_index([cells[0] for _, cells in rows]):
        raise UserError(
            f"{source}: its first column has no name, and counts the lines from 0, as the index of"
            " pandas.\nWrite the table without it: to_csv(path, index=False)"
        )
    if unnamed and any(cells[unnamed[0]] for _, cells in rows if len(cells) > unnamed[0]):
        raise UserError(
            f"{source}: column {unnamed[0] + 1} has no name.\nAdd its name to the header"
        )


def _refuse_decimal_commas(source: str, header: Cells, rows: list[tuple[int, Cells]]) -> None:
    for number, cells in rows:
        for key, cell in zip(header, cells, strict=False):
            if cell.count(",") == 1 and _is_number(cell.replace(",", ".")):
                raise UserError(
                    f"{source}: line {number} has {key}={cell}: a decimal comma, and semicolons as"
                    f" separators.\nWrite {cell.replace(',', '.')} with a point"
                )


def _by_column(source: str, header: Cells, number: int, cells: Cells) -> dict[str, str]:
    if any(cells[len(header) :]):
        problem = f"{source}: line {number} has more cells than the header"
        raise UserError(f"{problem}.\nQuote values with a comma")
    if len(cells) < len(header):
        problem = f"{source}: line {number} has {len(cells)} of {len(header)} cells"
        raise UserError(f"{problem}.\nLeave a cell empty, as in '1,,32', if it has no value")
    return {column: cell for column, cell in zip(header, cells, strict=False) if column}


def _is_index(cells: Cells) -> bool:
    return bool(cells) and cells == [str(number) for number in range(len(cells))]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
