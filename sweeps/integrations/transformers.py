"""A callback for the Trainer of Hugging Face: `Trainer(..., callbacks=[ReportToTrial()])`."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from sweeps.trial import Trial, current_trial


class ReportToTrial(TrainerCallback):
    """Reports each evaluation, and stops the training, with a checkpoint, if the trial should stop.

    A step is the number of the evaluation, from 1 on. To resume, let the Trainer save into
    `trial.checkpoint_folder` (its `output_dir`), and start with
    `trainer.train(resume_from_checkpoint=report.checkpoint)`.

    Args:
        trial: The trial that this process runs, by default.
    """

    def __init__(self, trial: Trial | None = None) -> None:
        self._trial = trial or current_trial()
        self._trial.limit_gpu_memory()
        self.checkpoint = _newest(self._trial.checkpoint_folder)  # None in a first attempt

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any
    ) -> None:
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        step = sum("eval_runtime" in entry for entry in state.log_history)
        self._trial.report(numbers, step)
        if self._trial.should_stop():
            control.should_training_stop = control.should_save = True


def _newest(folder: Path) -> str | None:
    """Return the newest complete checkpoint of the Trainer; None if there is none."""
    names = [path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*")]
    numbers = [int(name) for name in names if name.isdecimal()]
    for number in sorted(numbers, reverse=True):
        path = folder / f"checkpoint-{number}"
        with suppress(OSError, ValueError):
            # because the Trainer writes this file last
            if json.loads((path / "trainer_state.json").read_text()):
                return str(path)
    return None
