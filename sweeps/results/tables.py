"""Tables of text, as Markdown and as HTML."""

import html
import re
from collections.abc import Sequence

from sweeps.secrets import without_password

Table = list[list[str]]  # rows of cells; the first is the header
Part = str | Table  # a paragraph, or a table
GAP = "\u2003\u200b"
"""Ends a cell in Markdown: MLflow's pages leave no room between two, 0.01 and 64 read 0.0164, and trim plain spaces."""


def as_markdown(table: Table) -> str:
    header, *lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in cells] for cells in table]
    texts = [f"| {f'{GAP} | '.join(cells)} |" for cells in [header, *lines]]
    return "\n".join([texts[0], f"| {' | '.join(['---'] * len(header))} |", *texts[1:]])


def as_note(parts: Sequence[Part], most: int, rest: str) -> str:
    """Markdown of `most` characters or fewer: the words, with the tables that leave room for them; then, if that is
    not all of it, the `rest`.
    """
    written = [part if isinstance(part, str) else as_markdown(part) for part in parts]
    if len(whole := "\n\n".join(written)) <= most:
        return whole
    room = most - len(f"\n\n{rest}")
    left = room - sum(len(part) + 2 for part in parts if isinstance(part, str))
    kept = []
    for part, shown in zip(parts, written, strict=True):
        if isinstance(part, str) or len(shown) + 2 <= left:
            left -= 0 if isinstance(part, str) else len(shown) + 2
            kept.append(shown)
    return "\n\n".join(["\n\n".join(kept)[:room], rest])


def as_html(table: Table, trials: Sequence[int | None] = ()) -> str:
    """A table that page.js lets its reader sort; its lines are of these `trials`, which a click then opens."""
    header, *lines = [[html.escape(without_password(cell)) for cell in cells] for cells in table]
    rows = []
    for cells, number in zip(lines, trials or [None] * len(lines), strict=True):
        if number is None:
            rows.append(f"<tr><td>{'<td>'.join(cells)}")
        else:
            first = f'<a href="#trial-{number}">{cells[0]}</a>'
            rows.append(f'<tr data-trial="{number}"><td>{"<td>".join([first, *cells[1:]])}')
    head = f"<thead><tr><th scope=col>{'<th scope=col>'.join(header)}</thead>"
    # The end of a cell or row may be left out in HTML.
    return f'<div class="table" tabindex="0"><table>{head}<tbody>{"".join(rows)}</table></div>'


def paragraphs(lines: Sequence[str]) -> str:
    """Lines of text as HTML, with what Markdown sets in stars."""
    safe = (html.escape(without_password(line)) for line in lines if line)
    return "".join(f"<p>{_bold(line)}</p>" for line in safe)


def _bold(line: str) -> str:
    return re.sub(r"[*][*](.*?)[*][*]", r"<b>\1</b>", line)


def parts_as_html(parts: Sequence[Part]) -> str:
    return "\n".join(paragraphs([part]) if isinstance(part, str) else as_html(part) for part in parts)
