"""A hook of mkdocs: tables of the choices of groups and of their keys, from the comments of YAML
files."""

import re
from pathlib import Path
from typing import Any

from sweeps.study.plan.comments import File, read, read_group

_MARK = re.compile(r"^<!-- (choices|keys) ([\w/]+) -->$", re.MULTILINE)
_ROOT = Path(__file__).parents[1]
_CONF = _ROOT / "conf"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each `<!-- choices GROUP -->` and `<!-- keys GROUP -->` by a table. The keys of
    `config` are those of no group."""
    tables = {"choices": _choices, "keys": _keys}
    return _MARK.sub(lambda match: tables[match[1]](match[2]), markdown)


def _files(group: str) -> list[File]:
    folder = _CONF if (_CONF / group).is_dir() else _ROOT / "sweeps" / "conf"
    return read_group(folder, group)


def _choices(group: str) -> str:
    rows = [f"| `{group}={file.choice}` | {_cell(file.title)} |" for file in _files(group)]
    return "\n".join(["| choice | |", "|---|---|", *rows])


def _keys(group: str) -> str:
    """Return a table with a row for each key and meaning, and the choices that have each default,
    unless all have."""
    common = {key.name: key for key in read(_CONF / "config.yaml").keys}
    files = [] if group == "config" else _files(group)
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for key in common.values():
        section = key.name.partition(".")[0] if "." in key.name else "config"
        if section == group:
            rows[key.name, key.meaning] = {key.value: []}
    for file in files:
        for key in file.keys:
            row = rows.setdefault((key.name, key.meaning or common[key.name].meaning), {})
            row.setdefault(key.value, []).append(file.choice)

    order = list(dict.fromkeys(name for name, _ in rows))
    lines = []
    for (name, meaning), values in sorted(rows.items(), key=lambda row: order.index(row[0][0])):
        defaults = []
        for value, choices in values.items():
            of = "" if len(choices) in (0, len(files)) else f" ({', '.join(choices)})"
            defaults.append(f"`{_cell(value)}`{of}")
        lines.append(f"| `{name}` | {', '.join(defaults)} | {_cell(meaning)} |")
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *lines])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace(" *", " \\*")
