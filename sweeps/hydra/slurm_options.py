"""The options of sbatch and srun that a user types, as the commands take them."""

import shlex
from collections.abc import Mapping
from typing import Any

_LIST = """Type a list, such as 'hydra.launcher.srun_args=["--mpi=pmix"]'"""
_PLAIN = (str, int, float)  # bool is an int
_OWN = (
    "array",
    "error",
    "input",
    "job-name",
    "no-requeue",
    "open-mode",
    "output",
    "requeue",
    "signal",
)
_NO_JOB = ("help", "parsable", "test-only", "usage", "version", "wait")
"""Options by which sbatch prints another answer, or none before the job ends."""


def options_of_sbatch(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their names: without false and null, and a list as one text.

    Raises ValueError for an option that the launcher sets, and for a value of another type.
    """
    options: dict[str, Any] = {}
    for name, value in typed.items():
        setting = f"hydra.launcher.additional_parameters.{name}"
        if str(name).replace("_", "-") in (*_OWN, *_NO_JOB):
            raise ValueError(f"{setting}: the launcher sets this option.\nRemove {setting}")
        entries = value if isinstance(value, list) else [value]
        if not all(entry is None or isinstance(entry, _PLAIN) for entry in entries):
            raise ValueError(
                f"{setting}={value}: it is no value of an option"
                ".\nType a text, a number, true, false, null, or a list of texts"
            )
        if isinstance(value, list):
            options[name] = ",".join(str(entry) for entry in value)
        elif value is not None and value is not False:
            options[name] = value
    return options


def options_of_srun(typed: Any) -> list[str] | None:
    """Return the options in a list, or in a text as a shell splits it. Raises ValueError for
    another type."""
    setting = "hydra.launcher.srun_args"
    if typed is None:
        return None
    if isinstance(typed, str):
        try:
            return shlex.split(typed)
        except ValueError as error:
            raise ValueError(f"{setting}={typed}: {error}.\n{_LIST}") from error
    if not isinstance(typed, list) or not all(isinstance(option, _PLAIN) for option in typed):
        raise ValueError(f"{setting}={typed}: it must be a list of options.\n{_LIST}")
    return [str(option) for option in typed]
