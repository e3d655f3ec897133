"""A trial's run in MLflow, brought up to what the trial's folder says."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from sweeps.results import ledger
from sweeps.results.summary import Row
from sweeps.tracking.study_run import MetricRow, StudyRun, first_line, is_refusal, key
from sweeps.trial.folder import State, TrialFolder
from sweeps.trial.system_metrics import FILE as SYSTEM_METRICS

_STATUS = {
    State.COMPLETED: "FINISHED",
    State.PRUNED: "FINISHED",
    State.FAILED: "FAILED",
    State.DIVERGED: "FAILED",
    State.OUT_OF_MEMORY: "FAILED",
    State.TIMED_OUT: "FAILED",
}
"""MLflow's word for a state; the states that are not here were ended from outside: KILLED."""

_SCALARS = ("lr", "batch_size", "epochs", "gpus", "seed")
_CHOICES = ("optimizer", "model", "dataset")


class TrialRun:
    """One trial. `sync` may be called at any time, also after a failure; the driver sets `row`, `ended`."""

    def __init__(
        self, study: StudyRun, row: Row, overrides: Sequence[str] = (), config: DictConfig | None = None
    ) -> None:
        self.row = row
        self.ended = False
        self._study = study
        self._folder = TrialFolder(row.folder)
        self._overrides = overrides
        self._config = config
        record = self._folder.read_tracking()
        mine = (
            record.get("parent") == study.run_id
        )  # else it is in another store, or under a study that was deleted
        self.run_id: str | None = record.get("run_id") if mine else None
        self.was_closed = mine and bool(record.get("closed"))
        """Whether MLflow had all of it when this object was made."""
        self.closed = False
        self.refusal = ""
        """Which params MLflow did not take, and why."""
        self._running = False
        self._described = False
        self._creating = threading.Lock()
        self._since = 0.0
        self._offsets = {"metrics.jsonl": 0, SYSTEM_METRICS: 0}

    def create(self) -> str:
        """Give the trial its run, if it has none yet, and return its id."""
        with self._creating:
            if self.run_id is None:
                self._since = time.monotonic()
                self.run_id = self._study.create_child(self.row.number, self.row.name, self._overrides)
                self._running = True
                self._remember(closed=False)
        return self.run_id

    def sync(self) -> None:
        """Send what is new in the folder; for a trial that has ended, also how, and close its run."""
        run_id = self.run_id or self.create()
        self._since = time.monotonic()
        ended = self.ended  # asked before the files are read, so that nothing is written after they were
        if not self._running and not ended:
            self._study.client.update_run(run_id, status="RUNNING")
            self._remember(closed=False)
            self._running = True
        metrics, offsets = self._new_metrics()
        curves = [name for name, *_ in metrics]
        params = {} if self._described else self._params()
        tags: dict[str, str] = {}
        if ended:
            metrics += self._outcome()
            tags = {"state": str(self.row.state), **({"error": self.row.error} if self.row.error else {})}
        self._send(run_id, metrics, params, tags)
        self._offsets = offsets
        self._described = True
        self._study.show([key(name) for name in self.row.params], curves)
        if ended:
            self._close(run_id)
        self._count()

    def _send(
        self, run_id: str, metrics: list[MetricRow], params: dict[str, str], tags: dict[str, str]
    ) -> None:
        try:
            self._study.send(run_id, metrics, params, tags)
        except self._study.outages as error:
            if not params or not is_refusal(error):
                raise
            self._study.send(
                run_id, metrics, {}, tags
            )  # a trainer of its own may have logged another lr before us
            self.refusal = first_line(error)

    def _new_metrics(self) -> tuple[list[MetricRow], dict[str, int]]:
        rows, offsets = [], {}
        for file, offset in self._offsets.items():
            lines, offsets[file] = self._folder.read_metrics(offset, file)
            for line in lines:
                rows += [
                    (key(name), value, int(line.time * 1000), line.step)
                    for name, value in line.metrics.items()
                ]
        return rows, offsets

    def _params(self) -> dict[str, str]:
        usual = _usual_params(self._config or _written_config(self._folder.path / ".hydra"))
        return {key(name): str(value) for name, value in {**usual, **self.row.params}.items()}

    def _outcome(self) -> list[MetricRow]:
        """What stands for the whole trial: best/ what it returned, seconds/ of each phase, GPU-hours and energy."""
        returned = {**self.row.metrics, **dict(zip(self._study.objective, self.row.objective, strict=False))}
        named = {f"best/{key(name)}": value for name, value in returned.items()}
        cost = sum(map(ledger.of_attempt, self.row.attempts), ledger.Cost())
        named |= {f"seconds/{name}": value for name, value in cost.seconds.items()}
        if cost.gpu_hours:
            named["gpu_hours"] = cost.gpu_hours
        if cost.energy_kwh is not None:
            named["energy_kwh"] = cost.energy_kwh
        return [(name, value, self._end_ms(), 0) for name, value in named.items()]

    def _end_ms(self) -> int:
        """As the files tell it, the same each time: else sending again would make second metric rows."""
        files = (
            self._folder.path / "result.json",
            self._folder.log(),
            self._folder.path / ".hydra",
            self._folder.path,
        )
        return int(next(f for f in files if f is not None and f.exists()).stat().st_mtime * 1000)

    def _close(self, run_id: str) -> None:
        for file in (self._folder.path / ".hydra" / "config.yaml", self._folder.log()):
            if file is not None and file.exists():
                self._study.client.log_artifact(run_id, str(file))
        status = _STATUS.get(self.row.state, "KILLED")
        self._study.client.set_terminated(run_id, status, self._end_ms())
        self._remember(closed=self.row.state not in (State.QUEUED, State.RUNNING))
        self.closed = True

    def _remember(self, closed: bool) -> None:
        self._folder.path.mkdir(parents=True, exist_ok=True)  # a config that was refused left no folder
        self._count()
        record = {"run_id": self.run_id, "parent": self._study.run_id, "closed": closed}
        self._folder.write_tracking({**record, "seconds": self.row.tracking_s})

    def _count(self) -> None:
        """Add the time since the last call to what tracking cost."""
        now = time.monotonic()
        self.row.tracking_s += now - self._since
        self._since = now


def _written_config(folder: Path) -> DictConfig:
    """The config of a trial that this process did not compose, as Hydra wrote it; empty if it never began."""
    config: dict[str, Any] = {}
    for file in (folder / "config.yaml", folder / "hydra.yaml"):
        if file.exists():
            config |= yaml.load(file.read_text(), yaml.CSafeLoader) or {}
    return OmegaConf.create(config)


def _usual_params(config: DictConfig) -> dict[str, Any]:
    """Hyperparameters by their usual names, where this trial's config has them."""
    choices = OmegaConf.select(config, "hydra.runtime.choices", default={})
    found = {name: choices.get(name) for name in _CHOICES}
    for name in _SCALARS:
        found[name] = OmegaConf.select(config, name, throw_on_resolution_failure=False)
    return {name: value for name, value in found.items() if isinstance(value, int | float | str)}
