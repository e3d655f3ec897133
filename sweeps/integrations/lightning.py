"""A Lightning callback, and the environment in which the processes of a trial find each other."""

import signal
import time
from typing import Any

from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer

from sweeps.trial import RankLost, Trial, current_trial, newest_checkpoint, put_checkpoint


class ReportToTrial(Callback):
    """Reports at each validation's end, stops the training if the trial should stop, and saves
    checkpoints.

    A step is the number of the validation, from 1 on. With several processes, log metrics with
    `sync_dist=True`. To resume: `trainer.fit(model, ckpt_path=report.checkpoint)`. A checkpoint is
    written at the end of an epoch, and when the trial is stopped. Lightning requeues no SLURM job.

    Args:
        trial: The trial that this process runs, by default.
        checkpoint_interval_s: The least time between two checkpoints (s).
    """

    def __init__(self, trial: Trial | None = None, checkpoint_interval_s: float = 10.0) -> None:
        self._trial = trial or current_trial()
        self._trial.limit_gpu_memory()
        self._interval_s = checkpoint_interval_s
        self._saved_at = time.monotonic()
        self._validations = 0
        self._earlier = dict[str, Any]()
        # Lightning's callback_metrics when the checkpoint was written
        self._saved_metrics = dict[str, Any]()
        # None in a first attempt
        self.checkpoint = newest_checkpoint(self._trial.checkpoint_folder, ".ckpt")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._handlers = {
            n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
        }

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the signal handlers that Lightning has replaced."""
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._earlier = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        self._validations += 1
        # Without the metrics of training, because these are the previous epoch's.
        new = {
            n: float(v)
            for n, v in trainer.callback_metrics.items()
            if v is not self._earlier.get(n)
        }
        self._trial.report(new, step=self._validations)
        trainer.should_stop |= self._trial.should_stop()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        due = trainer.should_stop or time.monotonic() - self._saved_at >= self._interval_s
        if trainer.strategy.broadcast(due):  # because all ranks save together
            aside = self._trial.checkpoint_folder / "writing.ckpt"
            self._saved_metrics = {
                name: value.cpu() for name, value in trainer.callback_metrics.items()
            }
            trainer.save_checkpoint(aside)
            if self._trial.world.is_chief:
                put_checkpoint(aside)
            self._saved_at = time.monotonic()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the metrics of the checkpoint where nothing was left to train, because the task
        returns them."""
        for name, value in self._saved_metrics.items():
            trainer.callback_metrics.setdefault(name, value)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Raise RankLost if the connection to another process broke, because that process knows the
        cause."""
        if any(text in str(exception) for text in ("by peer", "remote process exited")):
            raise RankLost(str(exception)) from exception

    def state_dict(self) -> dict[str, Any]:
        return {"validations": self._validations, "metrics": self._saved_metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._validations = state_dict["validations"]
        # none in a checkpoint of an earlier version
        self._saved_metrics = state_dict.get("metrics", {})


class TrialEnvironment(LightningEnvironment):
    """The processes of a trial, which the launcher starts: `Trainer(plugins=[TrialEnvironment()],
    ...)`."""

    creates_processes_externally = True
    main_address = ""
    main_port = 0

    def __init__(self, trial: Trial | None = None) -> None:
        super().__init__()
        self._world = (trial or current_trial()).world
        self.main_address, _, port = self._world.addresses[0].partition(":")
        self.main_port = int(port or 0)  # 0, which nobody reads, in a trial of one process

    def local_rank(self) -> int:
        return self._world.local_rank

    def node_rank(self) -> int:
        return self._world.rank * self._world.nodes // self._world.size
