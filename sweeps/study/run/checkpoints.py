"""Which checkpoints of ended trials are deleted, by hydra.sweeper.keep_checkpoints."""

import shlex
from collections.abc import Set
from dataclasses import dataclass, field

from sweeps.choose.rungs import Halving, Rungs, best_to_train_on
from sweeps.hydra.settings import SweeperConf
from sweeps.record.study import StudySnapshot
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State

# not of trials that failed, because a person may retry them from their checkpoints
_DELETED_IN = (State.COMPLETED, State.PRUNED, State.PAUSED)


def no_longer_needed(
    study: StudySnapshot, most: int, promotable: Set[int] = frozenset()
) -> list[int]:
    """Return the trials whose checkpoints can be deleted: all that ended but the `most` best, those
    that are promotable, and those under way. Before a trial has a result, all may be the best."""
    if most and not study.has_objective:
        return []
    best = {trial.number for trial in best_to_train_on(study)[:most]}
    needed = best | promotable | study.under_way
    ended = [trial.number for trial in study.rows if trial.state in _DELETED_IN]
    return [number for number in ended if number not in needed]


def checkpoints_of(settings: SweeperConf, halving: Halving | None) -> "Checkpoints | None":
    """Return what deletes checkpoints by the settings of a study; None if all are kept."""
    most = settings.most_checkpoints
    if most is None:
        return None
    maximize = settings.directions[0] == "maximize"
    rungs = None if halving is None else Rungs(halving, maximize)
    return Checkpoints(settings.kept_checkpoints, most, rungs)


@dataclass
class Checkpoints:
    """Deletes checkpoints of a running study once they are no longer needed."""

    setting: str  # hydra.sweeper.keep_checkpoints
    most: int  # number of trials whose checkpoints are kept
    rungs: Rungs | None = None
    _deleted: set[int] = field(default_factory=set)  # also those that cannot be deleted
    _has_failed: bool = False

    def delete(self, study: StudySnapshot, is_over: bool = False) -> str:
        """Delete what is no longer needed; of a study that is over, also of trials that might have
        been promoted. Return, once, why a checkpoint cannot be deleted."""
        promotable: set[int] = set()
        if self.rungs and not is_over:
            promotable = self.rungs.may_be_promoted(study)
        unneeded = no_longer_needed(study, self.most, promotable)
        self._deleted.intersection_update(unneeded)
        problem = ""
        for number in unneeded:
            if number in self._deleted:
                continue
            self._deleted.add(number)
            folder = TrialFolder(study.rows[number].folder)
            try:
                folder.delete_checkpoints(self.setting)
            except OSError as error:
                remove = shlex.join(["rm", "-r", str(folder.checkpoint.resolve())])
                problem = (
                    f"hydra.sweeper.keep_checkpoints={self.setting}: the checkpoint of trial"
                    f" {number} cannot be deleted: {error}.\nDelete it: {remove}"
                )
        if not problem or self._has_failed:
            return ""
        self._has_failed = True
        return problem
