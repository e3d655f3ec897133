"""From the points of a study to the jobs of its trials: each is composed, checked, and asked what
it needs."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import Infeasible, UserError
from sweeps.base.wording import counted
from sweeps.choose.rungs import Halving
from sweeps.hydra.parts import hydra_config
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.study import TrialRecord
from sweeps.space.space import SearchSpace, canonical
from sweeps.study.folder.places import Places
from sweeps.study.plan.compose import Composer, check, explain_longer, last_step
from sweeps.trial.job import Objective, Point, Request
from sweeps.trial.run.app import PackedApp
from sweeps.trial.run.sent_job import Job

_QUIET_S = 1.0
_LISTED = 10  # points of a grid that a preview lists


def announce(points: Iterable[Point], count: int) -> Iterator[Point]:
    """Yield points that are checked one by one. Once that has taken a second, print how long
    `count` points take."""
    began_at = time.monotonic()
    is_announced = False
    for done, point in enumerate(points):
        if done == 1:
            # because the first check imports and reads what the others use again
            began_at = time.monotonic()
        elapsed_s = time.monotonic() - began_at
        if elapsed_s > _QUIET_S and done > 1 and not is_announced:
            rest_s = elapsed_s / (done - 1) * max(0, count - done)
            print(
                f"checking {counted(count, 'point')} before the first trial: about {rest_s:.0f} s"
                " more",
                flush=True,
            )
            is_announced = True
        yield point


class Points:
    """Composes the points of one study, and checks each point once."""

    def __init__(self, composer: Composer, space: SearchSpace, launcher: TrialLauncher) -> None:
        self._composer = composer
        self._space = space
        self._launcher = launcher
        # requests, or why a point is infeasible, by canonical text
        self._checked: dict[str, Request | str] = {}

    def compose(self, point: Point, number: int = 0, longer: Sequence[str] = ()) -> DictConfig:
        """Return the configuration of the trial of this number, with overrides that let it train
        longer. Raises UserError if it cannot be composed."""
        replaced = {word.partition("=")[0] for word in longer}
        typed = self._space.overrides(point)
        words = [word for word in typed if word.partition("=")[0] not in replaced]
        config = self._composer.compose([*words, *longer], number)
        launcher = config.hydra.launcher
        raw: Any = OmegaConf.to_container(launcher, resolve=False)
        # Resolved, because each look would resolve the settings again, but none of the environment:
        # Hydra writes them to the trial's folder, and the environment may contain a secret. Lists
        # and mappings stay as typed, because their texts, as the lines of setup, may refer to a key
        # with a secret.
        for key, value in [*raw.items()]:
            if not isinstance(value, list | dict) and "oc.env" not in str(value):
                del raw[key]
        with hydra_config(config.hydra):
            OmegaConf.resolve(launcher)
            launcher.update(raw)
        return config

    def check(self, point: Point, starts: bool = False, is_new: bool = False) -> Request:
        """Return what a trial of this point requests; if trials will start, after the app's own
        checks too.

        Of a new study, check what was typed, too, also if no trial will start.

        Raises Infeasible if the point is valid but cannot run here, and UserError if it is not
        valid.
        """
        answer = self._checked[canonical(point)] = self._request(
            self.compose(point), starts, is_new
        )
        if isinstance(answer, str):
            raise Infeasible(answer)
        return answer

    def check_longer(self, trial: TrialRecord, longer: Sequence[str], anew: str) -> None:
        """Check a trial with the overrides that let it train longer, which the command `anew`
        trains from the beginning. Raises UserError, and Infeasible if it cannot run here."""
        config = self.compose(trial.params, trial.number, longer)
        answer = self._request(config)
        if isinstance(answer, str):
            raise Infeasible(answer)
        end = last_step(config)
        if end is not None and end <= trial.step:
            raise UserError(
                f"{' '.join(longer)}: the training would end after step {end}, but trial"
                f" {trial.number} has reached step {trial.step}.\nType a larger budget"
            )
        if problem := explain_longer(config):
            raise UserError(f"trial {trial.number}: {problem}.\nTrain that one: {anew}")

    def refuse_late_rung(self, halving: Halving) -> None:
        """Raise UserError if each trial ends before, or at, the first rung, so that none would
        pause."""
        ends = [last_step(self.compose(corner)) for corner in self._space.corners()]
        certain = [end for end in ends if end is not None]
        if len(certain) < max(1, len(ends)) or max(certain) > halving.first:
            return
        choice = "hydra.sweeper.rungs.first=1" if max(certain) > 1 else "hydra/sweeper/rungs=none"
        raise UserError(
            f"hydra.sweeper.rungs.first={halving.first}: no trial would pause, because each ends"
            f" after step {max(certain)}.\nType {choice}, or a larger budget"
        )

    def _request(
        self, config: DictConfig, starts: bool = False, is_new: bool = False
    ) -> Request | str:
        try:
            check(config, starts, is_new)
        except Infeasible as error:
            # not the error, because its traceback would keep the configuration in memory
            return str(error)
        return self._launch_request(config)

    def _launch_request(self, config: DictConfig) -> Request:
        with hydra_config(config.hydra):
            return self._launcher.request(config)

    def listing(self, most: int | None) -> Iterator[str]:
        """Yield the first points of the grid as they are typed, and how many follow of at most
        `most`."""
        planned = islice(self._space.points(), most)
        for point in islice(planned, _LISTED):
            yield f"  {' '.join(self._space.overrides(point))}"
        if further := sum(1 for _ in planned):
            yield f"  and {counted(further, 'further point')}"

    def job(
        self, trial: TrialRecord, study: str, places: Places, app: PackedApp, objective: Objective
    ) -> Job:
        """Return the job of a trial. Raises UserError, or Infeasible if it cannot run here and
        never started."""
        config = self.compose(trial.params, trial.number, trial.longer)
        files = places.choose(trial, config)
        answer = self._checked.get(canonical(trial.params)) or self._request(config)
        if isinstance(answer, str):
            if not any(attempt.began() or not attempt.is_over for attempt in files.attempts()):
                raise Infeasible(answer)
            answer = self._launch_request(config)  # because a trial that has started resumes anyway
        return Job(study, trial.number, 0, config, answer, files, app, objective)
