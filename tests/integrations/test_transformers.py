from pathlib import Path
from typing import Any

import pytest

from tests.trainers.recorder import Recorder

EPOCHS = 5


def train(trial: Recorder) -> Any:
    """Train a model of three weights, as a task function does."""
    import torch
    from transformers import Trainer, TrainingArguments, set_seed

    from sweeps.integrations.transformers import ReportToTrial

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x: Any, labels: Any) -> Any:
            y = self.layer(x).squeeze(-1)
            return {"loss": ((y - labels) ** 2).mean(), "logits": y}

    set_seed(0)
    x = torch.randn(32, 3)
    data = [{"x": row, "labels": row.sum()} for row in x]
    report = ReportToTrial(trial)  # type: ignore[arg-type]
    options = {"eval_strategy": "epoch", "save_strategy": "epoch", "report_to": [], "use_cpu": True}
    options |= {"learning_rate": 0.1, "disable_tqdm": True}
    arguments = TrainingArguments(output_dir=str(trial.checkpoint_folder), num_train_epochs=EPOCHS, **options)
    model = Line()
    trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data, callbacks=[report])
    trainer.train(resume_from_checkpoint=report.checkpoint)
    return model.layer.weight.detach().numpy()


def losses(trial: Recorder) -> list[float]:
    return [metrics["eval_loss"] for metrics in trial.reported]


@pytest.mark.long
def test_transformers_training_stops_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed; .ci/run does so in a later step")
    straight = Recorder(tmp_path / "straight")
    expected = train(straight)
    assert straight.steps == [1, 2, 3, 4, 5]
    stopped = Recorder(tmp_path / "stopped", stop_after=3)
    train(stopped)
    assert stopped.steps == [1, 2, 3]
    # As if the process had been killed while the Trainer wrote its newest checkpoint.
    newest = max(stopped.checkpoint_folder.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    (newest / "trainer_state.json").write_text("{")
    (stopped.checkpoint_folder / "checkpoint-best-1").mkdir()  # as the user's own code may
    resumed = Recorder(tmp_path / "stopped")
    weights = train(resumed)
    assert resumed.steps == [3, 4, 5]
    assert losses(stopped)[:2] + losses(resumed) == losses(straight)
    assert (weights == expected).all()
