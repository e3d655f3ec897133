"""Hooks of mkdocs: tables of settings from the dataclasses that declare them, and no script of
another site."""

import json
import re
from dataclasses import MISSING, Field, fields
from typing import Any

from sweeps.hydra import settings
from sweeps.study.plan.help import descriptions

_MARK = re.compile(r"^<!-- settings (\w+) -->$", re.MULTILINE)
# by which the search works without a server
_FOREIGN_SCRIPT = "https://unpkg.com/iframe-worker/shim"
_SCRIPT = "docs/iframe_worker.js"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each `<!-- settings CLASS -->` by a table of the settings of that class."""
    return _MARK.sub(lambda match: _table(getattr(settings, match[1])), markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Return the page with our copy of the script that the offline search needs."""
    return output.replace(_FOREIGN_SCRIPT, f"{'../' * page.url.count('/')}{_SCRIPT}")


def on_post_template(output_content: str, **_: Any) -> str:
    """Return a page that is no document, such as 404.html, with that copy."""
    return output_content.replace(_FOREIGN_SCRIPT, f"/{_SCRIPT}")


def _table(kind: type) -> str:
    meanings = descriptions(kind)
    own = [field for field in fields(kind) if field.name in meanings]  # not those of other plugins
    rows = [f"| `{field.name}` | `{_default(field)}` | {meanings[field.name]} |" for field in own]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def _default(field: Field[Any]) -> str:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    return value if isinstance(value, str) else json.dumps(value)
