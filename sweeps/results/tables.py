"""Tables of text, as Markdown and as HTML, and the page that holds them."""

import html
from collections.abc import Sequence

Table = list[list[str]]  # rows of cells; the first is the header
Part = str | Table  # a paragraph, or a table


def as_markdown(table: Table) -> str:
    header, *lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in cells] for cells in table]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *lines])


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


def as_html(table: Table) -> str:
    header, *lines = [[html.escape(cell) for cell in cells] for cells in table]
    rows = [f"<th>{'<th>'.join(header)}", *(f"<td>{'<td>'.join(cells)}" for cells in lines)]
    return f"<table><tr>{'<tr>'.join(rows)}</table>"  # the end of a cell or row may be left out in HTML


def paragraphs(lines: list[str]) -> str:
    """Lines of text as HTML, without Markdown's stars."""
    return "".join(f"<p>{html.escape(line).replace('**', '')}</p>" for line in lines)


def page(title: str, body: str) -> str:
    """A whole HTML page."""
    return _PAGE.format(title=html.escape(title), body=body)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; color: #222 }}
h1 {{ font-size: 1.5em }} h2 {{ font-size: 1.15em; margin-top: 2em }} h3 {{ font-size: 1em; margin-top: 1.5em }}
p {{ margin: .3em 0 }}
table {{ border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums }}
table + table, div + p, table + p {{ margin-top: 1em }}
th, td {{ text-align: left; padding: .3em 1em .3em 0; border-bottom: 1px solid #e4e4e4 }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""
