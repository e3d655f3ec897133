"""Tables of text, as Markdown and as HTML, and the page that holds them."""

import html

Table = list[list[str]]  # rows of cells; the first is the header


def as_markdown(table: Table) -> str:
    header, *lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in cells] for cells in table]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *lines])


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
table + table {{ margin-top: 1em }}
th, td {{ text-align: left; padding: .3em 1em .3em 0; border-bottom: 1px solid #e4e4e4 }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""
