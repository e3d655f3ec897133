"""python -m sweeps: what already exists, also after its driver is gone. The commands are in sweeps/commands/."""

import gc

from rich.console import Console

from sweeps.commands import app, best, listing, remove, reports, resume, stop, ui
from sweeps.errors import UserError
from sweeps.results.terminal import escape_unencodable

__all__ = ["best", "listing", "main", "remove", "reports", "resume", "stop", "ui"]  # each adds its own to the app


def main() -> None:
    escape_unencodable()
    gc.disable()  # to read a long study makes many objects and no garbage
    try:
        app()
    except (UserError, OSError) as error:
        Console(stderr=True, highlight=False).print(str(error), soft_wrap=True, markup=False)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
