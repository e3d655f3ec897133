"""A table of points: CSV as programs write it, with commas, semicolons or tabs."""

import csv
import io
from collections import Counter
from pathlib import Path

from sweeps.base.errors import UserError

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

Row = dict[str, str]
Cells = list[str]


def read(path: Path, setting: str, example: str) -> list[Row]:
    """Return a mapping for each line, without its empty cells. Raises UserError if the file is no
    such table.

    setting: the key whose value is `path`, for messages; example: what can be typed instead of a
    file.
    """
    source = f"{setting}={path}"
    try:
        content = path.read_bytes()
        text = content.decode("utf-16" if content.startswith(_UTF_16) else "utf-8-sig")
        separator = _separator(text)
        if "\0" in text:
            raise csv.Error("it contains a zero byte")
        lines = _split(text, separator)
    except FileNotFoundError as error:
        raise UserError(
            f"{source}: there is no such file.\nType a list, as in {example}, or a CSV file"
        ) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{source}: not a table in UTF-8: {error}.\nUse CSV with a header of keys"
        ) from error
    if not lines:
        return []

    (_, header), *rows = lines
    if separator == ";":
        _refuse_decimal_commas(source, header, rows)
    _refuse_header(source, header, rows, separator)
    return [_row(source, header, number, cells) for number, cells in rows]


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


def _refuse_header(
    source: str, header: Cells, rows: list[tuple[int, Cells]], separator: str
) -> None:
    unnamed = [column for column, key in enumerate(header) if not key]
    if unnamed == [0] and _is_index([cells[0] for _, cells in rows]):
        raise UserError(
            f"{source}: its first column has no name, and counts the lines from 0, as the index of"
            " pandas.\nWrite the table without it: to_csv(path, index=False)"
        )
    if unnamed and any(cells[unnamed[0]] for _, cells in rows if len(cells) > unnamed[0]):
        raise UserError(
            f"{source}: column {unnamed[0] + 1} has no name.\nAdd its key to the header"
        )

    twice = next((key for key, count in Counter(filter(None, header)).items() if count > 1), None)
    if twice is not None:
        raise UserError(f"{source}: column {twice!r} occurs twice.\nRemove or rename one of them")
    wrong = next((key for key in filter(None, header) if _is_number(key)), None)
    if wrong is not None:
        raise UserError(
            f"{source}: its first line has the value {wrong}, and no key.\nAdd a header of keys"
        )
    spaced = next((key for key in header if any(sign.isspace() for sign in key)), None)
    if spaced is not None:
        remedy = (
            f"Separate the columns by {_SEPARATORS[separator]}, and name each by its key, such"
            " as lr"
        )
        raise UserError(
            f"{source}: column {spaced!r} is no key, because it contains a space.\n{remedy}"
        )


def _refuse_decimal_commas(source: str, header: Cells, rows: list[tuple[int, Cells]]) -> None:
    for number, cells in rows:
        for key, cell in zip(header, cells, strict=False):
            if cell.count(",") == 1 and _is_number(cell.replace(",", ".")):
                raise UserError(
                    f"{source}: line {number} has {key}={cell}: a decimal comma, and semicolons as"
                    f" separators.\nWrite {cell.replace(',', '.')} with a point"
                )


def _row(source: str, header: Cells, number: int, cells: Cells) -> Row:
    if any(cells[len(header) :]):
        problem = f"{source}: line {number} has more cells than the header"
        raise UserError(f"{problem}.\nQuote values with a comma")
    if len(cells) < len(header):
        problem = f"{source}: line {number} has {len(cells)} of {len(header)} cells"
        raise UserError(
            f"{problem}.\nLeave a cell empty, as in 'adam,,32', if the point lacks its key"
        )
    return {key: cell for key, cell in zip(header, cells, strict=False) if cell}


def _is_index(cells: Cells) -> bool:
    return bool(cells) and cells == [str(number) for number in range(len(cells))]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
