"""What a study's page tells of one trial: its values and end, its curves, the end of its log and its configuration."""

import html
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sweeps.files import last_lines
from sweeps.record import costs
from sweeps.record.study import StudySnapshot, TrialRecord, result_of
from sweeps.results.findings import Findings
from sweeps.secrets import without_password
from sweeps.trial.folder import MetricsReader, TrialFolder
from sweeps.wording import printable, text

Curve = tuple[list[int], list[float | None]]
"""Steps and values; what is no finite number is None."""
Curves = dict[str, Curve]
"""By metric."""

_LOG_LINES, _LINE, _LOG = 20, 300, 4000  # of a log its last lines, cut to so many characters, and of all together
_LOGS = 600_000  # characters, of all trials together
_POINTS = 150  # of a curve
_NAMES = 200  # of metrics, of each trial; the objectives come first
_NUMBERS = 60_000  # of all curves together
_CONFIG = 20_000  # characters
_TOLD = 1000  # trials of each kind: the best, and the newest of the others
_CONFIGS = 300  # trials: of more than that only the best and newest bring theirs


@dataclass
class _Files:
    """What a trial's files held."""

    reader: MetricsReader
    stands: tuple[str, int] = ("", 0)  # the trial's state and its attempts when they were read
    raw: Curves = field(default_factory=dict)  # of one that goes on, whole
    curves: Curves = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    config: list[str] = field(default_factory=list)

    def read(self, row: TrialRecord, objective: Sequence[str]) -> None:
        """Read what is new; of a trial that has ended nothing is."""
        stands = str(row.state), len(row.attempts)
        if self.stands == stands and row.state.is_over:
            return
        self.stands, self.log = stands, _log(row)
        self.config = self.config or _config(row.folder)
        self._add_news(objective)
        self.curves = {name: _every(curve, math.ceil(len(curve[0]) / _POINTS)) for name, curve in self.raw.items()}
        if row.state.is_over:
            self.raw, self.reader.offset = {}, 0  # kept thin; one that is retried is read anew

    def _add_news(self, objective: Sequence[str]) -> None:
        try:
            news = self.reader.unread()
        except OSError:  # of this trial alone
            return
        if not self.reader.mark_read(news):
            self.raw.clear()
        for line in news.values:
            for name in _few(line.metrics, objective):
                steps, values = self.raw.setdefault(name, ([], []))
                value = line.metrics[name]
                steps.append(line.step)
                values.append(float(f"{value:.6g}") if math.isfinite(value) else None)


class Trials:
    """What the trials of a study left. Of one that has ended it is read once, of others what is new."""

    def __init__(self, objective: Sequence[str]) -> None:
        self._objective = objective
        self._files: dict[int, _Files] = {}

    def look(self, findings: Findings, patience_s: float = math.inf) -> None:
        """Read what is new, the newest trials first. What is left after `patience_s` is read the next time."""
        until = time.monotonic() + patience_s
        for row in shown_of(findings)[::-1]:
            if time.monotonic() > until:
                return
            self._read(row)

    def filled(self, study: StudySnapshot) -> StudySnapshot:
        """Return the study with what trials reported last, where no driver of this process heard it."""
        last = {row.number: self._last(row.number) for row in study.rows if not row.metrics}
        if not any(last.values()):
            return study
        rows = [replace(row, metrics=last[row.number]) if last.get(row.number) else row for row in study.rows]
        return replace(study, rows=rows)

    def curves(self) -> dict[int, Curves]:
        """What each trial reported by step, by its number."""
        return {number: files.curves for number, files in self._files.items()}

    def hover(self, row: TrialRecord) -> str:
        """What is shown of a trial under the pointer, in plotly's HTML."""
        curves = self._files[row.number].curves if row.number in self._files else {}
        returned = dict(zip(self._objective, row.objective, strict=False))
        parts = [f"{name} {value:.6g}" for name, value in returned.items()]
        for name in self._objective:
            if name not in returned and name in row.metrics:
                at = f" at step {curves[name][0][-1]}" if name in curves else ""
                parts.append(f"{name} {row.metrics[name]:.6g}, its last{at}")
        if row.error:
            parts.append(_masked(row.error.strip().partition("\n")[0], 160))
        parts += [f"{name.lstrip('+')} = {text(value)}" for name, value in row.params.items()]
        state = str(row.state).replace("_", " ")
        lines = (_wrapped(_masked(part, 200)) for part in parts[:14])
        return "<br>".join([f"<b>trial {row.number}</b> {state}", *lines])

    def as_data(self, findings: Findings) -> dict[str, Any]:
        """Everything, for the page's script. Lines of configurations stand once, in `lines`."""
        rows, lines = shown_of(findings), dict[str, int]()
        log_size = max(300, min(_LOG, _LOGS // max(1, len(rows))))
        points = sum(len(steps) for files in self._files.values() for steps, _ in files.curves.values())
        every = math.ceil(points / _NUMBERS)
        configured = {row.number for row in [*findings.top[: _CONFIGS // 2], *rows[-_CONFIGS // 2 :]]}
        trials = {}
        for row in rows:
            files = self._files.get(row.number) or _files_of(row)
            config = files.config if row.number in configured else []
            trials[row.number] = {
                "state": str(row.state).replace("_", " "),
                "facts": _facts(row, findings.study),
                "params": {name: _masked(text(value), _LINE) for name, value in row.params.items()},
                "metrics": {name: text(row.metrics[name]) for name in _few(row.metrics, self._objective)},
                "curves": {name: _every(curve, every) for name, curve in files.curves.items()},
                "error": _masked(row.error, _LOG),
                "log": "\n".join(files.log)[-log_size:],
                "config": [lines.setdefault(line, len(lines)) for line in config],
                "hover": self.hover(row),
            }
        return {"trials": trials, "lines": [*lines]}

    def log_end(self, row: TrialRecord) -> list[str]:
        return self._read(row).log

    def _read(self, row: TrialRecord) -> _Files:
        files = self._files.setdefault(row.number, _files_of(row))
        files.read(row, self._objective)
        return files

    def _last(self, number: int) -> dict[str, float]:
        """The last value of each metric."""
        curves = self._files[number].curves if number in self._files else {}
        last = {name: values[-1] for name, (_, values) in curves.items()}
        return {name: value for name, value in last.items() if value is not None}


def shown_of(findings: Findings) -> list[TrialRecord]:
    """By their numbers the trials that are shown one by one: all, or of very many the best and the newest."""
    rows = sorted(findings.study.rows, key=lambda row: row.number)
    if len(rows) <= 2 * _TOLD:
        return rows
    best = {row.number for row in findings.top[:_TOLD]}
    newest = [row.number for row in rows if row.number not in best][-_TOLD:]
    return [row for row in rows if row.number in best.union(newest)]


def _files_of(row: TrialRecord) -> _Files:
    return _Files(MetricsReader(TrialFolder(row.folder)))


def _facts(row: TrialRecord, study: StudySnapshot) -> dict[str, str]:
    cost, many = costs.of_trial(row), len(row.metrics) > _NAMES
    facts = {
        "result": result_of(row, study),
        "attempts": str(len(row.attempts) or ""),
        "training": f"{cost['seconds/training']:.1f} s" if "seconds/training" in cost else "",
        "GPU-hours": f"{cost['gpu_hours']:.3g}" if "gpu_hours" in cost else "",
        "repeats": f"trial {row.of}" if row.of is not None else "",
        "added": "by hand" if row.by_hand else "",
        "metrics": f"{len(row.metrics)}, of which {_NAMES} are here" if many else "",
        "folder": str(row.folder),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _few(metrics: Mapping[str, float], first: Sequence[str]) -> list[str]:
    """The names of those that the page has."""
    names = [*metrics] if len(metrics) <= _NAMES else [*dict.fromkeys([n for n in first if n in metrics] + [*metrics])]
    return names[:_NAMES]


def _every(curve: Curve, count: int) -> Curve:
    """Each `count`-th point, and the last."""
    if count < 2:
        return curve
    steps, values = curve
    kept = sorted({*range(0, len(steps), count), len(steps) - 1})
    return [steps[i] for i in kept], [values[i] for i in kept]


def _log(row: TrialRecord) -> list[str]:
    try:
        newest = TrialFolder(row.folder).newest()
    except OSError:
        return []
    lines = last_lines(newest.log, _LOG_LINES) if newest else []
    return [printable(line)[:_LINE] for line in lines]


def _config(folder: Path) -> list[str]:
    """As Hydra wrote it, where nothing is resolved."""
    try:
        with (folder / ".hydra" / "config.yaml").open(errors="replace") as file:
            return [_masked(line, _LINE) for line in file.read(_CONFIG).splitlines()]
    except OSError:
        return []


def _wrapped(words: str, most: int = 56) -> str:
    pieces = [words[i : i + most] for i in range(0, len(words), most)]
    return "<br>  ".join(html.escape(piece, quote=False) for piece in pieces)


def _masked(words: str, most: int) -> str:
    """As it may be shown. A password that was cut would no longer look like one."""
    return without_password(words)[:most]
