"""Paragraphs and tables of text, in Markdown and as HTML."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.show.markup import fill

CSV = "trials.csv"
HTML = "report.html"
"""The table of all trials, and the page, in the folder of their study."""
Table = list[list[str]]  # rows of cells; the first is the header
GAP = "\u2003\u200b"
"""End of a cell in Markdown, because MLflow shows cells without a gap (0.01 and 64 as 0.0164) and
trims spaces."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, with a bold lead if there is one."""

    rest: str
    lead: str = ""

    @property
    def plain(self) -> str:
        return self.lead + self.rest

    @property
    def markdown(self) -> str:
        return f"**{self.lead}**{self.rest}" if self.lead else self.rest

    @property
    def html(self) -> str:
        return fill("paragraph", self.lead, self.rest)


Part = Paragraph | Table


def build(columns: Mapping[str, Callable[[Any], Any]], rows: Iterable[Any]) -> list[list[Any]]:
    """Return the titles of the columns, and below them the cells of each row."""
    return [[*columns], *([cell(row) for cell in columns.values()] for row in rows)]


def as_markdown(table: Table, gap: str = GAP) -> str:
    lines = []
    for row in table:
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append(f"| {f'{gap} | '.join(cells)} |")
    lines.insert(1, f"|{' --- |' * len(table[0])}")
    return "\n".join(lines)


def as_note(parts: Sequence[Part], most: int, rest: str) -> str:
    """Return at most `most` characters of Markdown.

    The text has all paragraphs and those tables that fit. If a part is left out, the text ends with
    `rest`.
    """
    rendered = [
        part.markdown if isinstance(part, Paragraph) else as_markdown(part) for part in parts
    ]
    whole = "\n\n".join(rendered)
    if len(whole) <= most:
        return whole

    room = most - len(f"\n\n{rest}")
    left = room - sum(len(part.markdown) + 2 for part in parts if isinstance(part, Paragraph))
    fitting = []
    for part, markdown in zip(parts, rendered, strict=True):
        size = 0 if isinstance(part, Paragraph) else len(markdown) + 2
        if size <= left:
            left -= size
            fitting.append(markdown)
    shown = "\n\n".join(fitting)
    return f"{shown[:room]}\n\n{rest}"


def as_html(table: Table, trials: Sequence[int | None] = ()) -> str:
    """Return a table that page.js sorts. A click on a row opens its trial, by the number in
    `trials`."""
    header, *lines = table
    return fill("table", header, [*zip(trials or [None] * len(lines), lines, strict=True)])


def without_empty_columns(table: Table) -> Table:
    filled = [i for i in range(len(table[0])) if any(cells[i] for cells in table[1:])]
    return [[cells[i] for i in filled] for cells in table]


def parts_as_html(parts: Sequence[Part]) -> str:
    return fill("lines", [_as_html(part) for part in parts])


def _as_html(part: Part) -> str:
    return part.html if isinstance(part, Paragraph) else as_html(part)
