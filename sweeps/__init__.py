"""sweepyard, a hyperparameter sweep service. In Python and notebooks: `sweeps.load("mine")`."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweeps.api import Study
    from sweeps.trial import Trial

__version__ = "0.1.0"


def current_trial() -> "Trial":
    """Return the trial that this process runs, from inside any Hydra task function."""
    from sweeps.trial import current_trial

    return current_trial()


def load(name: str | Path, root: str | Path = "multirun") -> "Study":
    """Return the study `name` in the folder `root`, or in the folder `name`, running or over.

    Raises UserError if there is no such study, or if its definition or journal is damaged.
    """
    from sweeps.api import Study
    from sweeps.record.study_file import locate

    return Study.of(*locate(str(name), Path(root)))
