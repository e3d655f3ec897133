"""sweepyard, a hyperparameter sweep service. In Python and notebooks: `sweeps.load("mine")`."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweeps.api import Study
    from sweeps.trial import Trial

__version__ = "0.1.0"


def current_trial() -> "Trial":
    """Return the trial that this process runs, from inside any Hydra task function.

    Without a sweep, as in `python train.py`, it is a trial on its own: reports are written to
    Hydra's folder of the run, and nothing stops it.

    Returns:
        The trial. Further calls in the same process return the same one.
    """
    from sweeps.trial import current_trial

    return current_trial()


def load(name: str | Path, root: str | Path = "multirun") -> "Study":
    """Return a snapshot of a study, running or over, for a notebook::

        import sweeps

        study = sweeps.load("mine")
        print(study)  # its trials by state, the best, its folder
        study.trials.sort_values("loss").head(3)

    Args:
        name: The study's name, or a path with a slash of its folder.
        root: The folder of all studies; not used with a path.

    Returns:
        The study as it is now. Load it again to see later changes.

    Raises:
        UserError: There is no such study, or its definition or journal is damaged.
    """
    from sweeps.api import Study
    from sweeps.record.study_file import locate

    return Study.of(*locate(str(name), Path(root)))
