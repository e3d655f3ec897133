"""Run sweepyard, the commands for studies, of which `python -m sweeps` is another name; see
sweeps/commands/."""

import gc
import sys

import typer

from sweeps.base.errors import ExitCode, UserError
from sweeps.base.streams import open_closed_streams
from sweeps.base.wording import printable

# All modules are imported, because each adds its commands to the app.
from sweeps.commands import (  # noqa: F401
    app,
    best,
    bundle,
    compare,
    continue_,
    exclude,
    init,
    listing,
    remove,
    reports,
    resume,
    stop,
    ui,
)
from sweeps.commands.disk_errors import explain
from sweeps.commands.usage import UsageError, explain_usage
from sweeps.hydra import neighbours
from sweeps.show.terminal.console import SafeConsole
from sweeps.show.terminal.lines import escape_unencodable


def main() -> None:
    open_closed_streams()
    escape_unencodable()
    neighbours.warn()
    gc.disable()  # because reading a long study makes many objects, but no garbage
    try:
        raise SystemExit(app(prog_name="sweepyard", standalone_mode=False))
    except typer.Abort:
        print("Aborted!", file=sys.stderr)
        raise SystemExit(ExitCode.FAILED) from None
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            print(printable(explain_usage(error)), file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED) from None
    except (UserError, OSError) as error:
        SafeConsole(stderr=True, highlight=False, emoji=False).print(
            explain(error), soft_wrap=True, markup=False
        )
        raise SystemExit(ExitCode.REFUSED) from None


if __name__ == "__main__":
    main()
