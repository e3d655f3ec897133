"""What a study's page tells of one trial: its values and end, its curves, the end of its log and its configuration."""

import html
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.files import last_lines
from sweeps.results import ledger
from sweeps.results.summary import Row, Summary, printable, result_of, text
from sweeps.secrets import without_password
from sweeps.trial.folder import TrialFolder

Curves = dict[str, tuple[list[int], list[float | None]]]
"""Steps and values by metric; what is no finite number is None."""

_LOG_LINES, _LINE, _LOG = 20, 300, 4000  # of a log its last lines, cut to so many characters, and of all together
_LOGS = 600_000  # characters, of all trials together
_POINTS = 150  # of a curve
_NAMES = 200  # of metrics, of each trial; the objectives come first
_NUMBERS = 60_000  # of all curves together
_CONFIG = 20_000  # characters
_TOLD = 1000  # trials of each kind: the best, and the newest of the others
_CONFIGS = 300  # trials: of more than that only the best and newest bring theirs


@dataclass
class _Known:
    """What a trial's files held."""

    stands: tuple[str, int]  # its state and its attempts when they were read
    raw: Curves = field(default_factory=dict)  # of one that goes on, whole
    read_to: int = 0  # bytes of its metrics
    curves: Curves = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    config: list[str] = field(default_factory=list)


class Trials:
    """The trials of a study. What one that has ended left is read once, of others what is new.

    With `patience_s` reading ends after so long: what is left is read when `look` is called again.
    """

    def __init__(self, summary: Summary, patience_s: float = math.inf) -> None:
        self.summary, self._patience_s = summary, patience_s
        self._known: dict[int, _Known] = {}

    def look(self) -> None:
        """Read what is new, the newest trials first."""
        until = time.monotonic() + self._patience_s
        for row in self.told()[::-1]:
            if time.monotonic() > until:
                return
            self._read(row)

    def told(self) -> list[Row]:
        """By their numbers the trials that are told of one by one: all, or of very many the best and the newest."""
        rows = sorted(self.summary.rows, key=lambda row: row.number)
        if len(rows) <= 2 * _TOLD:
            return rows
        kept = {row.number for row in self.summary.top(_TOLD)}
        kept |= {row.number for row in [row for row in rows if row.number not in kept][-_TOLD:]}
        return [row for row in rows if row.number in kept]

    def curves(self) -> dict[int, Curves]:
        """What each trial reported by step, by its number."""
        return {number: known.curves for number, known in self._known.items()}

    def hover(self, row: Row) -> str:
        """What is shown of a trial under the pointer, in plotly's HTML."""
        summary, known = self.summary, self._known.get(row.number)
        curves = known.curves if known else {}
        told = dict(zip(summary.objective, row.objective, strict=False))
        said = [f"{name} {value:.6g}" for name, value in told.items()]
        for name in summary.objective:
            if name not in told and name in row.metrics:
                at = f" at step {curves[name][0][-1]}" if name in curves else ""
                said.append(f"{name} {row.metrics[name]:.6g}, its last{at}")
        reason = _masked(row.error.strip().partition("\n")[0], 160)
        values = [f"{name.lstrip('+')} = {text(value)}" for name, value in row.params.items()]
        parts = [*said, *([reason] if reason else []), *values][:14]
        state = str(row.state).replace("_", " ")
        return "<br>".join([f"<b>trial {row.number}</b> {state}", *(_wrapped(_masked(part, 200)) for part in parts)])

    def as_data(self) -> dict[str, Any]:
        """Everything, for the page's script. Lines of configurations stand once, in `lines`."""
        rows, lines = self.told(), dict[str, int]()
        most = max(300, min(_LOG, _LOGS // max(1, len(rows))))
        points = sum(len(values) for known in self._known.values() for _, values in known.curves.values())
        every = math.ceil(points / _NUMBERS)
        configured = {row.number for row in [*self.summary.top(_CONFIGS // 2), *rows[-_CONFIGS // 2 :]]}
        found = {}
        for row in rows:
            known = self._known.get(row.number) or _Known(("", 0))
            config = [lines.setdefault(line, len(lines)) for line in known.config] if row.number in configured else []
            found[row.number] = {
                "state": str(row.state).replace("_", " "),
                "facts": self._facts(row),
                "params": {name: _masked(text(value), _LINE) for name, value in row.params.items()},
                "metrics": {name: text(row.metrics[name]) for name in _few(row.metrics, self.summary.objective)},
                "curves": {name: _every(*curve, every) for name, curve in known.curves.items()},
                "error": _masked(row.error, _LOG),
                "log": "\n".join(known.log)[-most:],
                "config": config,
                "hover": self.hover(row),
            }
        return {"trials": found, "lines": [*lines]}

    def log_end(self, row: Row) -> list[str]:
        return self._read(row).log

    def _facts(self, row: Row) -> dict[str, str]:
        cost = ledger.of_trial(row)
        facts = {"result": result_of(row, self.summary), "attempts": str(len(row.attempts) or "")}
        facts |= {"training": f"{cost['seconds/training']:.1f} s"} if "seconds/training" in cost else {}
        facts |= {"GPU-hours": f"{cost['gpu_hours']:.3g}"} if "gpu_hours" in cost else {}
        facts |= {"repeats": f"trial {row.of}"} if row.of is not None else {}
        facts |= {"added": "by hand"} if row.by_hand else {}
        facts |= {"metrics": f"{len(row.metrics)}, of which {_NAMES} are here"} if len(row.metrics) > _NAMES else {}
        return {name: fact for name, fact in {**facts, "folder": str(row.folder)}.items() if fact}

    def _read(self, row: Row) -> _Known:
        stands, known = (str(row.state), len(row.attempts)), self._known.get(row.number)
        if known and known.stands == stands and row.state.is_over:
            return known
        known = self._known.setdefault(row.number, _Known(stands))
        known.stands, known.log = stands, _log(row)
        known.config = known.config or _config(row.folder)
        known.read_to = _add_new(known.raw, row, known.read_to, self.summary.objective)
        thin = {name: math.ceil(len(steps) / _POINTS) for name, (steps, _) in known.raw.items()}
        known.curves = {name: _every(*curve, thin[name]) for name, curve in known.raw.items()}
        if row.state.is_over:
            known.raw, known.read_to = {}, 0  # kept thin; one that is retried is read anew
        if not row.metrics:  # of a trial that runs under another driver
            last = {name: values[-1] for name, (_, values) in known.curves.items()}
            row.metrics = {name: value for name, value in last.items() if value is not None}
        return known


def _add_new(found: Curves, row: Row, offset: int, first: Sequence[str]) -> int:
    """Add what the trial reported after these bytes of its file, and return how many they are by now."""
    try:
        lines = TrialFolder(row.folder).read_metrics(offset)
    except OSError:  # of this trial alone
        return offset
    if lines.offset < offset:
        found.clear()  # it was cut, and all of it is read again
    for line in lines.values:
        for name in _few(line.metrics, first):
            value = line.metrics[name]
            steps, values = found.setdefault(name, ([], []))
            steps.append(line.step)
            values.append(float(f"{value:.6g}") if math.isfinite(value) else None)
    return lines.offset


def _few(metrics: Mapping[str, float], first: Sequence[str]) -> list[str]:
    """The names of those that the page has."""
    names = [*metrics] if len(metrics) <= _NAMES else [*dict.fromkeys([n for n in first if n in metrics] + [*metrics])]
    return names[:_NAMES]


def _every(steps: list[int], values: list[float | None], count: int) -> tuple[list[int], list[float | None]]:
    if count < 2:
        return steps, values
    last = [] if (len(steps) - 1) % count == 0 else [len(steps) - 1]
    kept = [*range(0, len(steps), count), *last]
    return [steps[i] for i in kept], [values[i] for i in kept]


def _log(row: Row) -> list[str]:
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
