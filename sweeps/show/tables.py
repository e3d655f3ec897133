"""Paragraphs and tables of text, in Markdown and as HTML."""

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sweeps.base.secrets import without_password

CSV = "trials.csv"
HTML = "report.html"
"""The table of all trials, and the page, in the folder of their study."""
Table = list[list[str]]  # rows of cells; the first is the header
Row = TypeVar("Row")
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
        lead, rest = (html.escape(without_password(words)) for words in (self.lead, self.rest))
        return f"<p><b>{lead}</b>{rest}</p>" if lead else f"<p>{rest}</p>"


Part = Paragraph | Table


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table: its title, and its cell in each row."""

    title: str
    cell: Callable[[Row], Any]


def build(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> list[list[Any]]:
    """Return the titles, and the cells of each row."""
    return [
        [column.title for column in columns],
        *([column.cell(row) for column in columns] for row in rows),
    ]


def as_markdown(table: Table, gap: str = GAP) -> str:
    header, *lines = [
        [cell.replace("|", "\\|").replace("\n", " ") for cell in cells] for cells in table
    ]
    texts = [f"| {f'{gap} | '.join(cells)} |" for cells in [header, *lines]]
    return "\n".join([texts[0], f"| {' | '.join(['---'] * len(header))} |", *texts[1:]])


def as_note(parts: Sequence[Part], most: int, rest: str) -> str:
    """Return at most `most` characters of Markdown.

    The text has all paragraphs and those tables that fit. If a part is left out, the text ends with
    `rest`.
    """
    rendered = [
        part.markdown if isinstance(part, Paragraph) else as_markdown(part) for part in parts
    ]
    if len(whole := "\n\n".join(rendered)) <= most:
        return whole
    room = most - len(f"\n\n{rest}")
    left = room - sum(len(part.markdown) + 2 for part in parts if isinstance(part, Paragraph))
    fitting = []
    for part, markdown in zip(parts, rendered, strict=True):
        size = 0 if isinstance(part, Paragraph) else len(markdown) + 2
        if size <= left:
            left -= size
            fitting.append(markdown)
    return "\n\n".join(["\n\n".join(fitting)[:room], rest])


def as_html(table: Table, trials: Sequence[int | None] = ()) -> str:
    """Return a table that page.js sorts. A click on a row opens its trial, by the number in
    `trials`."""
    header, *lines = [[html.escape(without_password(cell)) for cell in cells] for cells in table]
    rows = []
    for cells, number in zip(lines, trials or [None] * len(lines), strict=True):
        if number is None:
            rows.append(f"<tr><td>{'<td>'.join(cells)}")
        else:
            first = f'<a href="#trial-{number}">{cells[0]}</a>'
            rows.append(f'<tr data-trial="{number}"><td>{"<td>".join([first, *cells[1:]])}')
    head = f"<thead><tr><th scope=col>{'<th scope=col>'.join(header)}</thead>"
    # Cells and rows have no end tags, because HTML does not need them.
    return f'<div class="table" tabindex="0"><table>{head}<tbody>{"".join(rows)}</table></div>'


def without_empty_columns(table: Table) -> Table:
    filled = [i for i in range(len(table[0])) if any(cells[i] for cells in table[1:])]
    return [[cells[i] for i in filled] for cells in table]


def parts_as_html(parts: Sequence[Part]) -> str:
    return "\n".join(part.html if isinstance(part, Paragraph) else as_html(part) for part in parts)
