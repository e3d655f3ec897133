"""The data of a study's trials on its page: params, outcome, curves, the end of the log, and the
configuration."""

import html
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from sweeps.analysis import costs
from sweeps.base.files import last_lines, open_regular
from sweeps.base.secrets import mask_lines, without_password
from sweeps.base.wording import printable, text
from sweeps.record.inside import is_inside
from sweeps.record.study import StudySnapshot, TrialRecord, result_of
from sweeps.show.findings import Findings
from sweeps.show.scales import scale_of
from sweeps.trial.folder import TrialFolder
from sweeps.trial.machine import facts
from sweeps.trial.metrics import METRICS, SYSTEM_METRICS
from sweeps.trial.metrics_reader import MetricsReader

Curve = tuple[list[float], list[float | None]]
"""Steps, or seconds, and values; None for a value that is not finite."""
Curves = dict[str, Curve]
"""Curves by metric."""

_LOG_LINES = 20  # last lines of a log
_LINE = 300  # characters in a line of a log
_LOG = 4000  # characters in all lines of a log
_LOGS = 600_000  # characters in the logs of all trials
_POINTS = 150  # points in a curve
_SAMPLES = 50  # points in a curve of a system metric
_NAMES = 200  # metrics of a trial, the objectives first
_NUMBERS = 60_000  # points in the curves of all trials
_CONFIG = 20_000  # characters in a configuration
_SHOWN = 1000  # best trials, and newest trials of the rest
_PROCESS_LABELS = {"host": "host", "cpu_model": "CPU", "gpu_model": "GPU", "versions": "versions"}
_CONFIGS = 300  # best and newest trials with a configuration


@dataclass
class _MetricsFile:
    """The curves of one of a trial's metrics files, of which new lines are read."""

    reader: MetricsReader
    by_time: bool = False  # whether curves are over seconds since the first line, not over steps
    first_time: float = 0.0  # of the first line, seconds since 1970
    curves: Curves = field(default_factory=dict)
    # of all attempts since the first line, by step
    seconds: Curve = field(default_factory=lambda: ([], []))

    def read(self, objective: Sequence[str], pauses: Sequence[tuple[float, float]]) -> None:
        """Read new lines. The seconds of `pauses` between attempts, each with its end, do not
        count."""
        try:
            lines = self.reader.unread()
        except OSError:  # because one trial must not hide the others
            return
        if not self.reader.mark_read(lines):
            self.clear()
        for line in lines.values:
            self.first_time = self.first_time or line.time
            elapsed_s = round(costs.seconds_between(self.first_time, line.time, pauses), 3)
            _append(self.seconds, line.step, elapsed_s)
            for name in _few(line.metrics, objective):
                curve = self.curves.setdefault(name, ([], []))
                _append(curve, elapsed_s if self.by_time else line.step, line.metrics[name])

    def clear(self) -> None:
        self.first_time = 0.0
        self.curves = {}
        self.seconds = ([], [])

    def close(self) -> None:
        """Save memory. The metrics of a retry are read from the start."""
        self.clear()
        self.reader.offset = 0


def _append(curve: Curve, x: float, y: float) -> None:
    curve[0].append(x)
    curve[1].append(float(f"{y:.6g}") if math.isfinite(y) else None)


def _thin(curve: Curve, most: int) -> Curve:
    return _every(curve, math.ceil(len(curve[0]) / most))


@dataclass
class _Files:
    """The content of a trial's files."""

    metrics: _MetricsFile
    system: _MetricsFile
    # state and number of attempts of the trial when its files were read
    version: tuple[str, int] = ("", 0)
    curves: Curves = field(default_factory=dict)
    usage: Curves = field(default_factory=dict)  # of the system metrics
    seconds: Curve = field(default_factory=lambda: ([], []))
    log: list[str] = field(default_factory=list)
    config: list[str] = field(default_factory=list)
    # machine and versions of the newest attempt, by labels
    process: dict[str, str] = field(default_factory=dict)

    def read(self, trial: TrialRecord, objective: Sequence[str], study: Path) -> None:
        """Read new lines of the files in the study's folder. A trial that has ended has no new
        lines."""
        version = str(trial.state), len(trial.attempts)
        if self.version == version and trial.state.is_over:
            return
        self.version = version
        self.log = _read_log(trial, study)
        self.config = self.config or _read_config(trial.folder, study)
        process = facts.read(TrialFolder(trial.folder)).process
        self.process = {_PROCESS_LABELS[name]: fact for name, fact in process.items()}
        both = (self.metrics, self.system)
        for file in both:
            if is_inside(trial.folder / file.reader.name, study):
                file.read(objective, costs.pauses(trial))
        self.curves = {name: _thin(c, _POINTS) for name, c in self.metrics.curves.items()}
        self.usage = {name: _thin(c, _SAMPLES) for name, c in self.system.curves.items()}
        self.seconds = _thin(self.metrics.seconds, _POINTS)
        if trial.state.is_over:
            for file in both:
                file.close()


class TrialFiles:
    """The files of a study's trials. Files of ended trials are read once; of running trials, new
    lines are read."""

    def __init__(self, objective: Sequence[str], shows_logs: bool = True) -> None:
        self._objective = objective
        self._shows_logs = shows_logs
        self._study: Path | None = None  # the folder beyond which no link is followed
        self._files: dict[int, _Files] = {}

    def look(self, findings: Findings, patience_s: float = math.inf) -> None:
        """Read new lines, the newest trials first, for at most `patience_s`. The next call reads
        the rest."""
        until = time.monotonic() + patience_s
        self._study = findings.study.folder
        for trial in shown_of(findings)[::-1]:
            if time.monotonic() > until:
                return
            self._read(trial)

    def filled(self, study: StudySnapshot) -> StudySnapshot:
        """Return the study with the newest metrics of trials that another driver runs."""
        rows = []
        for trial in study.rows:
            last = {} if trial.metrics else self._last(trial.number)
            rows.append(replace(trial, metrics=last) if last else trial)
        return replace(study, rows=rows) if rows != study.rows else study

    def curves(self) -> dict[int, Curves]:
        """Return the curves of each trial by its number."""
        return {number: files.curves for number, files in self._files.items()}

    def usage(self) -> dict[int, Curves]:
        """Return the curves of each trial's system metrics by its number, over seconds since its
        first sample."""
        return {number: files.usage for number, files in self._files.items()}

    def seconds(self) -> dict[int, Curve]:
        """Return the seconds since the first report of each trial by its number, by step."""
        return {number: files.seconds for number, files in self._files.items()}

    def hover(self, trial: TrialRecord) -> str:
        """Return the hover text of a trial in plotly's HTML."""
        parts = self._results(trial)
        if trial.error:
            parts.append(_masked(trial.error.strip().partition("\n")[0], 160))
        parts += [f"{name.lstrip('+')} = {text(value)}" for name, value in trial.params.items()]
        lines = (_wrapped(_masked(part, 200)) for part in parts[:14])
        return "<br>".join([f"<b>trial {trial.number}</b> {_state(trial)}", *lines])

    def _results(self, trial: TrialRecord) -> list[str]:
        """Return the objectives that the trial returned, and the last values of the others."""
        returned = dict(zip(self._objective, trial.objective, strict=False))
        results = [f"{name} {value:.6g}" for name, value in returned.items()]
        curves = self._curves(trial.number)
        for name in self._objective:
            if name not in returned and name in trial.metrics:
                at = f" at step {curves[name][0][-1]}" if name in curves else ""
                results.append(f"{name} {trial.metrics[name]:.6g}, last value{at}")
        return results

    def as_data(self, findings: Findings) -> dict[str, Any]:
        """Return the data for the page's script. Configurations share `lines`, which has each line
        once."""
        rows = shown_of(findings)
        configured = _configured(findings, rows)
        log_size = max(300, min(_LOG, _LOGS // max(1, len(rows))))
        every = self._thinning()
        lines = dict[str, int]()
        trials = {}
        for trial in rows:
            files = self._files.get(trial.number) or _files_of(trial)
            data = self._trial_as_data(trial, files, findings.study, every)
            data["log"] = "\n".join(files.log)[-log_size:] if self._shows_logs else ""
            data["config"] = []
            if trial.number in configured:
                data["config"] = [lines.setdefault(line, len(lines)) for line in files.config]
                data["curves"] |= files.usage
            trials[trial.number] = data
        return {"trials": trials, "lines": [*lines], "scales": self._scales(every)}

    def _thinning(self) -> int:
        """Return how many points of a curve to replace by one."""
        curves = chain.from_iterable(files.curves.values() for files in self._files.values())
        return math.ceil(sum(len(steps) for steps, _ in curves) / _NUMBERS)

    def _trial_as_data(
        self, trial: TrialRecord, files: _Files, study: StudySnapshot, every: int
    ) -> dict[str, Any]:
        shown = _few(trial.metrics, self._objective)
        return {
            "state": _state(trial),
            "facts": _facts(trial, study) | files.process,
            "params": {name: _masked(text(value), _LINE) for name, value in trial.params.items()},
            "metrics": {name: text(trial.metrics[name]) for name in shown},
            "curves": {name: _every(curve, every) for name, curve in files.curves.items()},
            "seconds": _every(files.seconds, every),
            "error": _masked(trial.error, _LOG),
            "hover": self.hover(trial),
        }

    def _scales(self, every: int) -> dict[str, Any]:
        """Return the scale of each metric, and of each `accuracy, val_accuracy`, over every
        `every`-th value."""
        values = dict[str, list[float]]()
        for files in self._files.values():
            for name, curve in files.curves.items():
                finite = [value for value in _every(curve, every)[1] if value is not None]
                values.setdefault(name, []).extend(finite)
        choices = {name: [name] for name in values}
        for name in values:
            if f"val_{name}" in values:
                choices[f"{name}, val_{name}"] = [name, f"val_{name}"]
        scales = {}
        for choice, metrics in choices.items():
            scale = scale_of(chain(*(values[name] for name in metrics)))
            scales[choice] = {"metrics": metrics, **scale.data}
        return scales

    def log_end(self, trial: TrialRecord) -> list[str]:
        return self._read(trial).log if self._shows_logs else []

    def curves_of(self, trial: TrialRecord) -> Curves:
        return self._read(trial).curves

    def _read(self, trial: TrialRecord) -> _Files:
        files = self._files.setdefault(trial.number, _files_of(trial))
        files.read(trial, self._objective, self._study or trial.folder.parent)
        return files

    def _curves(self, number: int) -> Curves:
        return self._files[number].curves if number in self._files else {}

    def _last(self, number: int) -> dict[str, float]:
        last = {name: values[-1] for name, (_, values) in self._curves(number).items()}
        return {name: value for name, value in last.items() if value is not None}


def shown_of(findings: Findings) -> list[TrialRecord]:
    """Return the shown trials by number: all, or if there are more than 2000, the best and the
    newest."""
    rows = [*findings.study.rows]
    if len(rows) <= 2 * _SHOWN:
        return rows
    best = {trial.number for trial in findings.top[:_SHOWN]}
    newest = [trial.number for trial in rows if trial.number not in best][-_SHOWN:]
    return [trial for trial in rows if trial.number in best.union(newest)]


def _configured(findings: Findings, rows: Sequence[TrialRecord]) -> set[int]:
    """Return the numbers of the best and the newest trials."""
    best = findings.top[: _CONFIGS // 2]
    return {trial.number for trial in [*best, *rows[-_CONFIGS // 2 :]]}


def _files_of(trial: TrialRecord) -> _Files:
    metrics, system = (
        MetricsReader(TrialFolder(trial.folder), name) for name in (METRICS, SYSTEM_METRICS)
    )
    return _Files(_MetricsFile(metrics), _MetricsFile(system, by_time=True))


def _state(trial: TrialRecord) -> str:
    return str(trial.state).replace("_", " ")


def _facts(trial: TrialRecord, study: StudySnapshot) -> dict[str, str]:
    cost = costs.of_trial(trial)
    many = len(trial.metrics) > _NAMES
    facts = {
        "result": result_of(trial, study),
        "attempts": str(len(trial.attempts) or ""),
        "training": f"{cost['seconds/training']:.1f} s" if "seconds/training" in cost else "",
        "GPU-hours": f"{cost['gpu_hours']:.3g}" if "gpu_hours" in cost else "",
        "repeats": f"trial {trial.of}" if trial.of is not None else "",
        "added": "by hand" if trial.by_hand else "",
        "metrics": f"{len(trial.metrics)}; {_NAMES} are shown" if many else "",
        "folder": str(trial.folder),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _few(metrics: Mapping[str, float], first: Sequence[str]) -> list[str]:
    """Return the names of the metrics that the page shows."""
    firsts = [name for name in first if name in metrics and len(metrics) > _NAMES]
    return [*dict.fromkeys([*firsts, *metrics])][:_NAMES]


def _every(curve: Curve, count: int) -> Curve:
    """Return each `count`-th point of the curve, and the last point."""
    if count < 2:
        return curve
    steps, values = curve
    points = sorted({*range(0, len(steps), count), len(steps) - 1})
    return [steps[i] for i in points], [values[i] for i in points]


def _read_log(trial: TrialRecord, study: Path) -> list[str]:
    try:
        newest = TrialFolder(trial.folder).newest()
    except OSError:
        return []
    lines = last_lines(newest.log, _LOG_LINES) if newest and is_inside(newest.log, study) else []
    return [printable(line)[:_LINE] for line in lines]


def _read_config(folder: Path, study: Path) -> list[str]:
    """Return the lines of the configuration that Hydra wrote, with interpolations."""
    file = folder / ".hydra" / "config.yaml"
    if not is_inside(file, study):
        return []
    try:
        with open_regular(file) as stream:
            text = stream.read(_CONFIG).decode(errors="replace")
    except OSError:
        return []
    return [line[:_LINE] for line in mask_lines(text).splitlines()]


def _wrapped(words: str, most: int = 56) -> str:
    starts = range(0, len(words), most)
    return "<br>  ".join(html.escape(words[start : start + most], quote=False) for start in starts)


def _masked(words: str, most: int) -> str:
    """Return the words without passwords, cut afterwards because half a password would not be
    recognized."""
    return without_password(words)[:most]
