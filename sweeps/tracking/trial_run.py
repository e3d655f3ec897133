"""A trial's run in MLflow, brought up to what the trial's folder says."""

import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from sweeps.files import CorruptFile, Lines, last_lines
from sweeps.record import costs
from sweeps.record.study import TrialRecord, result_of
from sweeps.results import notes
from sweeps.tracking.saved_model import log_saved_model
from sweeps.tracking.store import first_line
from sweeps.tracking.study_run import MetricRow, StudyRun, key
from sweeps.trial.folder import METRICS, SYSTEM_METRICS, MetricsReader, TrialFolder
from sweeps.trial.job import State
from sweeps.wording import counted, printable

_LOG_LINES, _LOG_WIDTH = 20, 80
_LOG_CHARACTERS = 4000  # MLflow cuts a tag after 8000, and stars for a password may be longer


class TrialRun:
    """One trial. `sync` may be called at any time, also after a failure; the driver sets `row`, `ended`."""

    def __init__(
        self, study: StudyRun, row: TrialRecord, overrides: Sequence[str] = (), config: DictConfig | None = None
    ) -> None:
        self.row = row
        self.run_id: str | None = None  # once it is surely there
        self.ended = self.closed = False
        self.lacks = ""  # what MLflow does not have of it, and why
        self.failures = 0  # how often in a row MLflow gave no answer
        self._study, self._folder = study, TrialFolder(row.folder)
        self._overrides, self._config = overrides, config
        self._described = self._may_exist = False
        self._opening = threading.Lock()
        self._readers = [MetricsReader(self._folder, name) for name in (METRICS, SYSTEM_METRICS)]
        self._reported: set[str] = set()

    def was_closed(self) -> bool:
        """Whether this study's run has all of it already, as the trial's folder notes."""
        note: dict[str, Any] = {}
        with suppress(CorruptFile, OSError):
            note = self._folder.read_tracking()
        noted = note.get("parent"), note.get("trial"), note.get("closed")
        return noted == (self._study.run_id, self.row.number, True)

    def open(self) -> str:
        """Take up the trial's run, or create it if it has none yet, and return its id."""
        with self._opening:
            if self.run_id is None:
                self._may_exist = (self._folder.path / "tracking.json").exists()
                with suppress(OSError):  # what is wrong with the disk is told below
                    self._write_note(closed=False)  # a driver that dies now leaves a run to look for
                self.run_id = self._study.open_child(self.row, self._overrides, self._may_exist)
                self._write_note(closed=False)
        return self.run_id

    def sync(self) -> None:
        """Send what is new in the folder; for a trial that has ended, also how, and close its run.

        Raises CorruptFile or OSError if one of its files cannot be read or written now.
        """
        run_id = self.open()
        ended = self.ended  # asked before the files are read, so that nothing is written after they were
        metrics, news = self._new_metrics()
        self._reported |= {name for name, *_ in metrics}
        params = {} if self._described else self._params()
        outcome, tags = self._outcome() if ended else ([], {})
        self.lacks = self._study.send(run_id, metrics + outcome, params, tags) or self.lacks
        for reader, lines in zip(self._readers, news, strict=True):
            reader.done(lines)
        self._described = True
        self._study.show([key(name) for name in self.row.params], [name for name, *_ in metrics])
        if ended:
            self._close(run_id)

    def _new_metrics(self) -> tuple[list[MetricRow], list[Lines]]:
        """What was reported since the last time that all was sent, and the lines that it came from."""
        rows, news = [], [reader.news() for reader in self._readers]
        for reader, lines in zip(self._readers, news, strict=True):
            if lines.damaged:
                self.lacks = f"{counted(lines.damaged, 'damaged line')} in {self._folder.path / reader.name}"
            for line in lines.values:
                rows += [(key(name), value, int(line.time * 1000), line.step) for name, value in line.metrics.items()]
        return rows, news

    def _params(self) -> dict[str, str]:
        try:
            described = _describe(self._config or _written_config(self._folder.path / ".hydra"))
        except Exception as error:  # whatever a damaged file holds
            self.lacks = f"its config in {self._folder.path / '.hydra'} cannot be read: {first_line(error)}"
            described = {}
        swept = {key(name): str(value) for name, value in self.row.params.items()}
        # Named apart: what a trainer logs itself, as autolog does, may have the same name and another value.
        rest = {f"config/{key(name)}": str(value) for name, value in described.items() if key(name) not in swept}
        return swept | rest

    def _outcome(self) -> tuple[list[MetricRow], dict[str, str]]:
        """What stands for the whole trial. Metrics: best/ its objectives, what else it returned and had not reported,
        and what it cost. Tags: how it ended.
        """
        objective = dict(zip(self._study.summary.objective, self.row.objective, strict=False))
        named = {f"best/{key(name)}": value for name, value in objective.items()}
        others = {key(name): value for name, value in self.row.metrics.items() if name not in objective}
        named |= {name: value for name, value in others.items() if name not in self._reported}
        named |= costs.of_attempts(self.row.attempts)
        tags = {"state": str(self.row.state), "mlflow.note.content": self._description()}
        if self.row.error or self._may_exist or len(self.row.attempts) > 1:  # an earlier end may have left an error
            tags["error"] = self.row.error
        tags |= {f"note.{key(subject)}": notes.text_of(note) for subject, note in self._folder.notes().items()}
        return [(name, value, self._end_ms(), 0) for name, value in named.items()], tags

    def _description(self) -> str:
        """How it ended, and the end of its log, in Markdown."""
        count = len(self.row.attempts)
        lines = [f"**{self.row.state.replace('_', ' ')}**" + f" in attempt {count}" * (count > 1)]
        lines[0] += f": {self.row.error}" if self.row.error else ""
        if result := result_of(self.row, self._study.summary):
            lines.append(result)
        attempt = self._folder.newest()
        lines_of_log = last_lines(attempt.log, _LOG_LINES) if attempt else []
        # One long line would make all of MLflow's page as wide as it is, and push what stands beside it out of sight.
        if log := "\n".join(_folded(printable(line)) for line in lines_of_log)[-_LOG_CHARACTERS:]:
            fence = "`" * (1 + max(map(len, re.findall("`+", log)), default=2))
            lines.append(f"The end of its log, which is whole among the artifacts:\n\n{fence}text\n{log}\n{fence}")
        return "\n\n".join(lines)

    def _end_ms(self) -> int:
        """The same each time: else sending again would make second metric rows."""
        ended = self.row.attempts[-1].ended if self.row.attempts else 0.0
        return int(1000 * (ended or self._folder.path.stat().st_mtime))  # one that was refused has no time of its own

    def _close(self, run_id: str) -> None:
        self._study.client.set_terminated(run_id, _status(self.row.state), self._end_ms())
        logs = [attempt.log for attempt in self._folder.attempts()[-1:]]
        self._study.send_files(run_id, self._folder.path / ".hydra" / "config.yaml", *logs)
        if kept := self._folder.model:
            log_saved_model(self._study.client, self._study.experiment_id, run_id, kept)
        self._write_note(closed=self.row.state not in (State.QUEUED, State.RUNNING))
        self.closed = True

    def _write_note(self, closed: bool) -> None:
        note = {"run_id": self.run_id, "parent": self._study.run_id, "trial": self.row.number, "closed": closed}
        self._folder.path.mkdir(parents=True, exist_ok=True)  # a config that was refused left no folder
        self._folder.write_tracking(note)


def _folded(line: str) -> str:
    """The line in pieces. What would be masked is to be masked before, while it is whole."""
    return "\n".join(line[at : at + _LOG_WIDTH] for at in range(0, len(line), _LOG_WIDTH))


def _status(state: State) -> str:
    """MLflow's word for it; KILLED is what was ended from outside, or is not over."""
    if state in (State.COMPLETED, State.PRUNED, State.INFEASIBLE):
        return "FINISHED"
    return "FAILED" if state.is_bad and state is not State.LOST else "KILLED"


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
    written: Any = OmegaConf.to_container(config, enum_to_str=True)
    written.pop("hydra", None)
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
