"""A study of Lightning trials with two processes each: one is pruned, one is killed and resumed."""

import json
from pathlib import Path

import pytest

from sweeps.trial.job import State
from tests.command_lines import end, run

APP = """
import os, signal

import hydra, torch
import lightning as L
from sweeps.integrations.lightning import ReportToTrial, TrialEnvironment
from sweeps.trial import current_trial


class Line(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, self.layer = cfg, torch.nn.Linear(3, 1)

    def loss(self, batch):
        x, y = batch
        return ((self.layer(x) - y) ** 2).mean()

    def training_step(self, batch, _):
        self.log("train_loss", loss := self.loss(batch), on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def on_validation_start(self):
        resumed = self.trainer.ckpt_path is not None
        if self.cfg.case == "killed" and self.current_epoch == 3 and self.global_rank == 1 and not resumed:
            os.kill(os.getpid(), signal.SIGKILL)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.0 if self.cfg.case == "hopeless" else 0.1)


@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    ours = signal.getsignal(signal.SIGTERM)
    torch.set_num_threads(1)
    L.seed_everything(0)
    x = torch.randn(32, 3)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
    report = ReportToTrial(checkpoint_interval_s=0)
    trainer = L.Trainer(
        max_epochs=600 if cfg.case == "hopeless" else 6,
        accelerator="cpu", devices=current_trial().world.size, strategy="ddp",
        plugins=[TrialEnvironment()], callbacks=[report], enable_progress_bar=False,
        logger=False, enable_checkpointing=False, enable_model_summary=False,
    )
    module = Line(cfg)
    module.on_train_epoch_start = lambda: (signal.getsignal(signal.SIGTERM) is ours) or os._exit(5)
    trainer.fit(module, loader, loader, ckpt_path=report.checkpoint, weights_only=True)
    return {"val_loss": float(trainer.callback_metrics["val_loss"])}


main()
"""


def losses(trial: Path) -> dict[int, dict[str, float]]:
    lines = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["metrics"] for line in lines}


@pytest.mark.long
def test_trials_of_two_lightning_processes_are_pruned_and_resumed(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="Lightning is not installed; .ci/run does so in a later step")
    (tmp_path / "app.py").write_text(APP)
    study = ["hydra/sweeper=grid", "hydra/launcher=local", "hydra.sweeper.objective=val_loss", "hydra.sweeper.n_jobs=1"]
    study += ["hydra.sweeper.study_name=s", "hydra.sweeper.tracking=false", "hydra.launcher.tasks_per_node=2"]
    study += ["hydra/sweeper/pruner=median", "hydra.sweeper.pruner.n_startup_trials=1"]
    study += ["hydra.launcher.preload=[sweeps.integrations.lightning]", "hydra.launcher.cpus_per_task=1"]
    done = run(["app.py", "-m", *study, "+case=straight,killed,hopeless"], tmp_path)
    assert done.code == 0, done.said
    straight, killed, hopeless = (tmp_path / "multirun" / "s" / str(number) for number in range(3))
    assert list(losses(straight)) == [1, 2, 3, 4, 5, 6]
    assert losses(straight)[1].keys() == {"val_loss"}
    assert end(killed, 1).state is State.LOST
    assert end(killed).state is State.COMPLETED
    assert losses(killed) == losses(straight)
    assert end(hopeless).state is State.PRUNED
    assert len(losses(hopeless)) < 600
