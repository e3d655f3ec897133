"""Installed packages whose names sweepyard uses too."""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import sweeps

# Both packages install sweeps/__init__.py into one folder; the last that was installed has it.
_IMPORTED = (
    "sweepyard's was imported"
    if hasattr(sweeps, "current_trial")
    else "its __init__ replaced sweepyard's"
)
_ADVICE = {
    "sweeps": (
        f"the package sweeps of Weights & Biases is installed too; {_IMPORTED}, in"
        f" {Path(__file__).parents[1]}. Type: pip uninstall sweeps && pip install --force-reinstall"
        " --no-deps sweepyard"
    ),
    "hydra-optuna-sweeper": (
        "hydra-optuna-sweeper is installed too; sweepyard serves hydra/sweeper=optuna and its "
        "settings. Type: pip uninstall hydra-optuna-sweeper"
    ),
}


def warn() -> None:
    """Print a line for each installed package that has a name of sweepyard's."""
    for package, advice in _ADVICE.items():
        try:
            distribution(package)
        except PackageNotFoundError:
            continue
        print(f"note: {advice}", file=sys.stderr)
