"""The folder of each trial: below the study's folder, as hydra.sweep.subdir says, and of one trial
only."""

import os
from collections.abc import Callable
from pathlib import Path

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, read_json
from sweeps.hydra.mistakes import explain
from sweeps.hydra.parts import hydra_config, pin_subdir
from sweeps.record.study import TrialRecord
from sweeps.record.writer import Record
from sweeps.trial.folder import TrialFolder


class Places:
    """The folders of a study's trials."""

    def __init__(self, study: Path, record: Record, print_line: Callable[[str], None]) -> None:
        self._study = study
        self._record = record
        self._print_line = print_line
        # numbers of the trials that this driver placed, by folder
        self._numbers: dict[Path, int] = {}
        self._has_said = False

    def choose(self, trial: TrialRecord, config: DictConfig) -> TrialFolder:
        """Return the trial's folder, and set it in the trial's config.

        A recorded trial keeps its folder, because hydra.sweep.subdir may contain a time. Raises
        UserError if hydra.sweep.subdir cannot be resolved.
        """
        try:
            with hydra_config(config.hydra):
                subdir = str(config.hydra.sweep.subdir)
        except OmegaConfBaseException as error:
            raise UserError(explain(error, config)) from error
        named = Path(os.path.normpath(self._study / subdir))
        is_recorded = trial.number < len(self._record.trials)
        path = trial.folder if is_recorded else self._find_free(named, trial.number)
        self._numbers[path] = trial.number
        if path != named:
            pin_subdir(config, os.path.relpath(path, self._study))
            if not is_recorded and not self._has_said:
                self._has_said = True
                problem = f"hydra.sweep.subdir={subdir}: another trial has this folder"
                self._print_line(f"{problem}. Trial {trial.number} runs in {path}")
        return TrialFolder(path)

    def _find_free(self, named: Path, number: int) -> Path:
        """Return the folder if it is of no other trial; else one beside it, with the trial's
        number."""
        if self._study.is_relative_to(named):  # because the study's own files are in it
            named = self._study / str(number)
        while self._is_of_other(named, number):
            named = named.with_name(f"{named.name}_{number}")
        return named

    def _is_of_other(self, path: Path, number: int) -> bool:
        if self._numbers.get(path, number) != number:
            return True
        try:
            return bool((read_json(path / "trial.json") or {}).get("number", number) != number)
        except CorruptFile:
            return True
        except OSError:  # because this trial cannot have the folder either, and then says why
            return False
