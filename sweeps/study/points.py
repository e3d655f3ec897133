"""From the points of a study to jobs: each is composed, checked and asked what it needs."""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from sweeps.errors import Infeasible, UserError
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.space import SearchSpace, canonical
from sweeps.record.study import TrialRecord
from sweeps.study.compose import Composer, check
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Job, Objective, Point, Request


class Points:
    """Composes the points of one study, and checks each of them once."""

    def __init__(self, composer: Composer, space: SearchSpace, launcher: TrialLauncher) -> None:
        self._composer, self._space, self._launcher = composer, space, launcher
        self._checked: dict[str, Request | str] = {}  # or why it cannot run here, by the points' canonical texts
        self._numbers: dict[Path, int] = {}  # of the trials that have these folders

    def compose(self, point: Point, number: int = 0) -> DictConfig:
        """Return the configuration of the trial of this number. Raises UserError if it cannot be composed."""
        config = self._composer.compose(self._space.overrides(point), number)
        OmegaConf.resolve(config.hydra.launcher)  # once, not at each look
        return config

    def check(self, point: Point, starts: bool = False) -> Request:
        """Return what a trial of these values asks for, before any trial `starts` by the app's further checks too.

        Raises:
            Infeasible: nothing is wrong with it, but it cannot run here.
            UserError: it makes no sense.
        """
        config = self.compose(point)
        found = self._request(config, starts)
        self._checked[canonical(point)] = found
        if isinstance(found, str):
            raise Infeasible(found)
        return found

    def _request(self, config: DictConfig, starts: bool = False) -> Request | str:
        try:
            check(config, starts)
        except Infeasible as error:  # which would keep the configuration
            return str(error)
        return self._launcher.request(config)

    def job(self, row: TrialRecord, study: str, folder: Path, app: bytes, objective: Objective) -> Job:
        """Return the job of a trial. Raises UserError, or Infeasible if it has not begun."""
        config = self.compose(row.params, row.number)
        found = self._checked.get(canonical(row.params)) or self._request(config)
        trial = TrialFolder(folder / str(config.hydra.sweep.subdir))
        if (other := self._numbers.setdefault(trial.path, row.number)) != row.number:
            raise UserError(f"hydra.sweep.subdir={trial.path.name} is the folder of trial {other} too")
        if isinstance(found, str):
            if not any(one.began() or not one.is_over for one in trial.attempts()):
                raise Infeasible(found)
            found = self._launcher.request(config)  # a trial that has begun goes on
        return Job(study, row.number, 0, config, found, trial, app, objective)
