"""Hooks of mkdocs: tables of settings from the dataclasses that declare them, tables of keys from
the comments of YAML files, and no script of another site."""

import json
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from sweeps.hydra import settings
from sweeps.study.plan.comments import File, read, read_group
from sweeps.study.plan.help import descriptions

_MARK = re.compile(r"^<!-- (settings|choices|keys) ([\w/]+) -->$", re.MULTILINE)
_ROOT = Path(__file__).parents[1]
_CONF = _ROOT / "conf"
# by which the search works without a server
_FOREIGN_SCRIPT = "https://unpkg.com/iframe-worker/shim"
_SCRIPT = "docs/iframe_worker.js"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each `<!-- settings CLASS -->`, `<!-- choices GROUP -->` and `<!-- keys GROUP -->` by
    a table. The keys of `config` are those of no group."""
    tables = {"settings": _settings, "choices": _choices, "keys": _keys}
    return _MARK.sub(lambda match: tables[match[1]](match[2]), markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Return the page with our copy of the script that the offline search needs."""
    return output.replace(_FOREIGN_SCRIPT, f"{'../' * page.url.count('/')}{_SCRIPT}")


def on_post_template(output_content: str, **_: Any) -> str:
    """Return a page that is no document, such as 404.html, with that copy."""
    return output_content.replace(_FOREIGN_SCRIPT, f"/{_SCRIPT}")


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


def _settings(name: str) -> str:
    kind = getattr(settings, name)
    meanings = descriptions(kind)
    own = [field for field in fields(kind) if field.name in meanings]  # not those of other plugins
    rows = [f"| `{field.name}` | `{_default(field)}` | {meanings[field.name]} |" for field in own]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def _default(field: Field[Any]) -> str:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    return value if isinstance(value, str) else json.dumps(value)
