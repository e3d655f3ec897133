"""A trial's run in MLflow, brought up to what the trial's folder says."""

import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from sweeps.files import Unreadable
from sweeps.results import ledger
from sweeps.results.summary import Row
from sweeps.tracking.study_run import MetricRow, StudyRun, first_line, key
from sweeps.trial.folder import METRICS, SYSTEM_METRICS, TrialFolder
from sweeps.trial.job import State

_STATUS = {
    State.COMPLETED: "FINISHED",
    State.PRUNED: "FINISHED",
    State.FAILED: "FAILED",
    State.DIVERGED: "FAILED",
    State.OUT_OF_MEMORY: "FAILED",
    State.TIMED_OUT: "FAILED",
    State.REFUSED: "FAILED",
}
"""MLflow's word for a state; the states that are not here were ended from outside: KILLED."""


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
        self._is_noted = True
        note = self._read_note()
        self.run_id: str | None = note.get("run_id")
        self.was_closed = note.get("closed") is True
        """Whether MLflow had all of it when this object was made."""
        self.is_open = False
        """Whether the run is there, and surely this trial's."""
        self.closed = False
        self.lacks = ""
        """What MLflow does not have of it, and why."""
        self.failures = 0
        """How often in a row MLflow gave no answer."""
        self._running = False
        self._described = False
        self._opening = threading.Lock()
        self._since = 0.0
        self._offsets = {METRICS: 0, SYSTEM_METRICS: 0}

    def open(self) -> str:
        """Take up the trial's run, or create it if it has none yet, and return its id."""
        with self._opening:
            if self.run_id is None or not self.is_open:
                self._since = time.monotonic()
                began, row = self._is_noted or self._folder.newest() is not None, self.row
                self.run_id = self._study.child(row.number, row.name, self._overrides, self.run_id, began)
                self.is_open = True
                self._write_note(closed=False)
        return self.run_id

    def sync(self) -> None:
        """Send what is new in the folder; for a trial that has ended, also how, and close its run.

        Raises:
            Unreadable, OSError: one of its files cannot be read or written now.
        """
        run_id = self.open()
        self._since = time.monotonic()
        ended = self.ended  # asked before the files are read, so that nothing is written after they were
        if not self._running and not ended:
            self._study.client.update_run(run_id, status="RUNNING")
            self._running = True
        metrics, offsets = self._new_metrics()
        curves = [name for name, *_ in metrics]
        params = {} if self._described else self._params()
        tags: dict[str, str] = {}
        if ended:
            metrics += self._outcome()
            tags = {"state": str(self.row.state)}
            if self.row.error or self.was_closed:  # a trial that is tried again had one
                tags["error"] = self.row.error
        self.lacks = self._study.send(run_id, metrics, params, tags) or self.lacks
        self._offsets = offsets
        self._described = True
        self._study.show([key(name) for name in self.row.params], curves)
        if ended:
            self._close(run_id)
        self._count()

    def _new_metrics(self) -> tuple[list[MetricRow], dict[str, int]]:
        rows, offsets = [], {}
        for name, offset in self._offsets.items():
            found = self._folder.read_metrics(offset, name)
            if found.damaged:
                self.lacks = f"{found.damaged} lines of {self._folder.path / name} are damaged"
            offsets[name] = found.offset
            for line in found.values:
                when_ms = int(line.time * 1000)
                rows += [(key(metric), value, when_ms, line.step) for metric, value in line.metrics.items()]
        return rows, offsets

    def _params(self) -> dict[str, str]:
        try:
            described = _describe(self._config or _written_config(self._folder.path / ".hydra"))
        except Exception as error:  # whatever a damaged file holds
            self.lacks = f"its config in {self._folder.path / '.hydra'} cannot be read: {first_line(error)}"
            described = {}
        return {key(name): str(value) for name, value in {**described, **self.row.params}.items()}

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
        when_ms = self._end_ms()
        return [(name, value, when_ms, 0) for name, value in named.items()]

    def _end_ms(self) -> int:
        """As the files tell it, the same each time: else sending again would make second metric rows."""
        ended = self.row.attempts[-1].ended if self.row.attempts else 0.0
        newest = None if ended else self._folder.newest()
        end = newest.end() if newest else None
        return int(1000 * (ended or (end.ended if end else self._folder.path.stat().st_mtime)))

    def _close(self, run_id: str) -> None:
        status = _STATUS.get(self.row.state, "KILLED")
        self._study.client.set_terminated(run_id, status, self._end_ms())
        newest = self._folder.newest()
        for file in (self._folder.path / ".hydra" / "config.yaml", *([newest.log] if newest else [])):
            if file.exists():
                self._study.client.log_artifact(run_id, str(file))
        self._write_note(closed=self.row.state not in (State.QUEUED, State.RUNNING))
        self.closed = True

    def _read_note(self) -> dict[str, Any]:
        """What an earlier driver noted; nothing if it is damaged, or of another trial, study or store."""
        try:
            note = self._folder.read_tracking()
        except (Unreadable, OSError):  # the run is looked for, and the note written anew
            return {}
        self._is_noted = bool(note)
        mine = (note.get("parent"), note.get("trial")) == (self._study.run_id, self.row.number)
        return note if mine else {}

    def _write_note(self, closed: bool) -> None:
        self._count()
        note = {"run_id": self.run_id, "parent": self._study.run_id, "trial": self.row.number}
        self._folder.path.mkdir(parents=True, exist_ok=True)  # a config that was refused left no folder
        self._folder.write_tracking({**note, "closed": closed, "seconds": self.row.tracking_s})

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


def _describe(config: DictConfig) -> dict[str, Any]:
    """What tells this configuration from another: the choice of each config group, and the values at its top."""
    choices = OmegaConf.select(config, "hydra.runtime.choices", default={})
    found = [(name, choice) for name, choice in choices.items() if not name.startswith("hydra/")]
    task = OmegaConf.masked_copy(config, [str(name) for name in config if name != "hydra"])
    written = OmegaConf.to_container(task, enum_to_str=True)
    assert isinstance(written, dict)
    found += [(str(name), _value(written, str(name))) for name in written]
    return {name: value for name, value in found if isinstance(value, bool | int | float | str)}


def _value(config: Mapping[Any, Any], name: str) -> Any:
    """The value as it is written, here or where it points to; None if a resolver makes it: oc.env's may be a secret."""
    value: Any = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, str) or "${" not in value:
        return None if value == "???" else value
    link = re.fullmatch(r"\$\{([\w.]+)\}", value)
    return _value(config, link[1]) if link else None
