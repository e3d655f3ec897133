"""What the comparison view of one study shows: a function of the study's record, whoever writes the
view."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from sweeps.base.files import CorruptFile
from sweeps.record.study import StudySnapshot
from sweeps.tracking import comparison_view
from sweeps.tracking.run_data import mlflow_name, names_by_log
from sweeps.trial.folder import TrialFolder
from sweeps.trial.metrics import METRICS, SYSTEM_METRICS

# trials whose files show which metrics are curves, because most trials report the same
_CURVES_OF = 20


class StudyView:
    """The swept params and the curves of a study, by their names in MLflow."""

    def __init__(self) -> None:
        self._swept: dict[str, None] = {}  # ordered set
        self._curves: dict[str, None] = {}
        # params that trials have together: several in a conditional space
        self._branches: set[frozenset[str]] = set()

    def derive(self, study: StudySnapshot) -> None:
        """Add the params and curves of the study's trials, which earlier drivers may have run."""
        for trial in study.rows:
            self._add_params([mlflow_name(name) for name in trial.params])
        reporting = [trial for trial in study.rows if trial.metrics]
        for trial in reporting[:_CURVES_OF]:
            self._curves |= dict.fromkeys(_read_curves(TrialFolder(trial.folder)))

    def add(self, params: Sequence[str], curves: Sequence[str]) -> bool:
        """Add the params and curves of a trial, as MLflow names them, and return whether the view
        changes."""
        count = len(self._branches) + len(self._curves)
        self._add_params(params)
        self._curves |= dict.fromkeys(curves)
        return count < len(self._branches) + len(self._curves)

    def _add_params(self, params: Sequence[str]) -> None:
        """Add the params of a trial. A trial whose params are lost has none."""
        if params:
            self._swept |= dict.fromkeys(params)
            self._branches.add(frozenset(params))

    def tag(self, study: StudySnapshot) -> tuple[str, str]:
        """Return the experiment tag, as key and value, that describes the view."""
        view = comparison_view.View(
            study=study.name,
            params=[*self._swept],
            objective=[*map(mlflow_name, study.objective)],
            maximize=study.directions[0] == "maximize",
            curves=self._curves,
            numbers=[*map(mlflow_name, study.numbers())],
            errors_first=study.all_failed,
            lacking=self._partial_params(),
            logarithms=names_by_log(study.space).values(),
        )
        return view.tag

    def _partial_params(self) -> set[str]:
        """Return the params that some trials lack: a final race's seed, a param that exists under a
        condition.

        If each param is lacking somewhere, return those outside of the largest branch, which then
        has charts.
        """
        if not self._branches:
            return set()
        shared = frozenset.intersection(*self._branches)
        shown = shared or max(self._branches, key=lambda branch: (len(branch), sorted(branch)))
        return {*self._swept} - shown


def _read_curves(folder: TrialFolder) -> list[str]:
    """Return the metrics that a trial reported at several steps."""
    points: Counter[str] = Counter()
    for name in (METRICS, SYSTEM_METRICS):
        # because the view of the other metrics is still of use
        with suppress(CorruptFile, OSError):
            for line in folder.read_metrics(0, name).values:
                points.update(map(mlflow_name, line.metrics))
    return [name for name, count in points.items() if count > 1]
