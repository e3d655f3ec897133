"""Installed packages whose names sweepyard uses too."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlparse

import sweeps

# Both packages install sweeps/__init__.py into one folder; the last that was installed has it.
_IMPORTED = (
    "sweepyard's was imported"
    if hasattr(sweeps, "current_trial")
    else "its __init__ replaced sweepyard's"
)


def warn() -> None:
    """Print a line for each installed package that has a name of sweepyard's."""
    if _is_installed("sweeps"):
        place = Path(__file__).parents[1]
        _note(
            f"the package sweeps of Weights & Biases is installed too; {_IMPORTED}, in {place}."
            " Type: pip uninstall sweeps && pip install --force-reinstall --no-deps"
            f" {_source()}"
        )
    if _is_installed("hydra-optuna-sweeper"):
        _note(
            "hydra-optuna-sweeper is installed too; sweepyard serves hydra/sweeper=optuna and its"
            " settings. Type: pip uninstall hydra-optuna-sweeper"
        )


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def _source() -> str:
    """Return the words with which pip installs sweepyard again, from where it was installed."""
    # Several, because a checkout that is the working folder is found as one, too.
    records = [package.read_text("direct_url.json") for package in distributions(name="sweepyard")]
    origin = json.loads(next(filter(None, records), "{}"))
    url = origin.get("url", "sweepyard")
    folder = unquote(urlparse(url).path) if url.startswith("file:") else url
    is_editable = origin.get("dir_info", {}).get("editable", False)
    return f"-e {shlex.quote(folder)}" if is_editable else shlex.quote(folder)


def _note(line: str) -> None:
    print(f"note: {line}", file=sys.stderr)
