"""Hooks of mkdocs: tables of settings from the dataclasses that declare them, a section for each
command from its help, the version, and no script of another site."""

import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

import typer

import sweeps
from sweeps.__main__ import app
from sweeps.hydra import settings
from sweeps.study.plan.help import descriptions

_SETTINGS = re.compile(r"^<!-- settings (\w+) -->$", re.MULTILINE)
_COMMANDS = re.compile(r"^<!-- commands -->$", re.MULTILINE)
# by which the search works without a server
_FOREIGN_SCRIPT = "https://unpkg.com/iframe-worker/shim"
_SCRIPT = "docs/iframe_worker.js"


def on_config(config: Any, **_: Any) -> Any:
    """Return the configuration, with the version for the footer of each page, and an edit link if
    the repository has an address."""
    config.edit_uri = "edit/main/" if config.repo_url else ""
    config.copyright = f"sweepyard {sweeps.__version__}, Apache-2.0"
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each `<!-- settings CLASS -->` by a table of the settings of that class, and
    `<!-- commands -->` by a section for each command."""
    with_settings = _SETTINGS.sub(lambda match: _settings(getattr(settings, match[1])), markdown)
    return _COMMANDS.sub(lambda _: "\n\n".join(_commands()), with_settings)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with one colon before an example of a docstring, where reST has two."""
    return html.replace("::</p>", ":</p>")


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Return the page with our copy of the script that the offline search needs."""
    return output.replace(_FOREIGN_SCRIPT, f"{'../' * page.url.count('/')}{_SCRIPT}")


def on_post_template(output_content: str, **_: Any) -> str:
    """Return a page that is no document, such as 404.html, with that copy."""
    return output_content.replace(_FOREIGN_SCRIPT, f"/{_SCRIPT}")


def _settings(kind: type) -> str:
    meanings = descriptions(kind)
    own = [field for field in fields(kind) if field.name in meanings]  # not those of other plugins
    rows = [f"| `{field.name}` | `{_default(field)}` | {meanings[field.name]} |" for field in own]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def _default(field: Field[Any]) -> str:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    return value if isinstance(value, str) else json.dumps(value)


def _commands() -> Iterator[str]:
    """Yield the heading, the help, the usage, and the arguments and options of each command."""
    group: Any = typer.main.get_command(app)
    for name, command in sorted(group.commands.items()):
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        usage = " ".join([f"sweepyard {name}", "[OPTIONS]", *map(_typed, arguments)])
        rows = [
            f"| `{_name(param)}` | {_value(param)} | {param.help} |" for param in command.params
        ]
        table = ["| argument or option | default | meaning |", "|---|---|---|", *rows]
        yield "\n\n".join([f"## {name}", command.help, f"```text\n{usage}\n```", "\n".join(table)])


def _typed(argument: Any) -> str:
    """Return the argument as the usage has it: in brackets if it may be left out."""
    several = argument.metavar.removesuffix("...") + "..."
    name = several if argument.nargs == -1 else argument.metavar
    is_bare = argument.required or name.startswith("[")
    return name if is_bare else f"[{name}]"


def _name(param: Any) -> str:
    """Return what is typed: the name of an argument, or the option."""
    is_argument = param.param_type_name == "argument"
    return str(param.metavar) if is_argument else "/".join(param.opts)


def _value(param: Any) -> str:
    """Return the default, if it is a value, or that the argument or the option is required."""
    if param.required:
        return "required"
    return f"`{param.default}`" if param.default else ""
