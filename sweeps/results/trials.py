"""What a study's page tells of one trial: its values and end, its curves, the end of its log and its configuration."""

import html
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeps.files import last_lines
from sweeps.results import ledger
from sweeps.results.summary import Row, Summary, result_of, text
from sweeps.secrets import without_password
from sweeps.trial.folder import TrialFolder

Curves = dict[str, tuple[list[int], list[float | None]]]
"""Steps and values by metric; what is no finite number is None."""

_LOG_LINES, _LINE, _LOG = 20, 300, 4000  # of a log its last lines, cut to so many characters, and of all together
_LOGS = 600_000  # characters, of all trials together
_POINTS = 150  # of a curve
_NUMBERS = 60_000  # of all curves together
_CONFIG = 20_000  # characters
_CONFIGS = 300  # trials: of more than that only the best and newest bring theirs
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Trials:
    """The trials of a study. What one that has ended left is read once."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self._known: dict[int, tuple[tuple[str, int], Curves, list[str], list[str]]] = {}

    def curves(self) -> dict[int, Curves]:
        """What each trial reported by step, by its number."""
        return {row.number: self._read(row)[0] for row in self.summary.rows}

    def hover(self, number: int) -> str:
        """What is shown of a trial under the pointer, in plotly's HTML."""
        return self._hovers()[number]

    def as_data(self) -> dict[str, Any]:
        """Everything, for the page's script. Lines of configurations stand once, in `lines`."""
        rows = sorted(self.summary.rows, key=lambda row: row.number)
        hovers, lines = self._hovers(), dict[str, int]()
        most = max(300, min(_LOG, _LOGS // max(1, len(rows))))
        points = sum(len(values) for row in rows for _, values in self._read(row)[0].values())
        every = math.ceil(points / _NUMBERS)
        told = {row.number for row in [*self.summary.top(_CONFIGS // 2), *rows[-_CONFIGS // 2 :]]}
        found = {}
        for row in rows:
            curves, log, config = self._read(row)
            kept = [lines.setdefault(line, len(lines)) for line in config] if row.number in told else []
            found[row.number] = {
                "state": str(row.state).replace("_", " "),
                "facts": self._facts(row),
                "params": {name: _masked(text(value), _LINE) for name, value in row.params.items()},
                "metrics": {name: text(value) for name, value in row.metrics.items()},
                "curves": {name: _every(*curve, every) for name, curve in curves.items()},
                "error": _masked(row.error, _LOG),
                "log": "\n".join(log)[-most:],
                "config": kept,
                "hover": hovers[row.number],
            }
        return {"trials": found, "lines": [*lines]}

    def log_end(self, row: Row) -> list[str]:
        return self._read(row)[1]

    def _hovers(self) -> dict[int, str]:
        return {row.number: _hover(row, self.summary) for row in self.summary.rows}

    def _facts(self, row: Row) -> dict[str, str]:
        cost = ledger.of_trial(row)
        facts = {"result": result_of(row, self.summary), "attempts": str(len(row.attempts) or "")}
        facts |= {"training": f"{cost['seconds/training']:.1f} s"} if "seconds/training" in cost else {}
        facts |= {"GPU-hours": f"{cost['gpu_hours']:.3g}"} if "gpu_hours" in cost else {}
        facts |= {"repeats": f"trial {row.of}"} if row.of is not None else {}
        facts |= {"added": "by hand"} if row.by_hand else {}
        return {name: fact for name, fact in {**facts, "folder": str(row.folder)}.items() if fact}

    def _read(self, row: Row) -> tuple[Curves, list[str], list[str]]:
        stands, known = (str(row.state), len(row.attempts)), self._known.get(row.number)
        if known is None or known[0] != stands or not row.state.is_over:
            known = self._known[row.number] = (stands, _curves(row), _log(row), _config(row.folder))
        if not row.metrics and known[1]:  # of a trial that runs under another driver
            row.metrics = {name: value for name, (_, values) in known[1].items() if (value := values[-1]) is not None}
        return known[1:]


def _curves(row: Row) -> Curves:
    """Thinned to the first and last and evenly some between."""
    found: Curves = {}
    try:
        lines = TrialFolder(row.folder).read_metrics().values
    except OSError:  # of this trial alone
        return {}
    for line in lines:
        for name, value in line.metrics.items():
            steps, values = found.setdefault(name, ([], []))
            steps.append(line.step)
            values.append(float(f"{value:.6g}") if math.isfinite(value) else None)
    return {name: _every(*curve, math.ceil(len(curve[0]) / _POINTS)) for name, curve in found.items()}


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
    return [_masked(_ESCAPES.sub("", line), _LINE) for line in lines]


def _config(folder: Path) -> list[str]:
    """As Hydra wrote it, where nothing is resolved."""
    try:
        with (folder / ".hydra" / "config.yaml").open(errors="replace") as file:
            return [_masked(line, _LINE) for line in file.read(_CONFIG).splitlines()]
    except OSError:
        return []


def _hover(row: Row, summary: Summary) -> str:
    state = str(row.state).replace("_", " ")
    values: Mapping[str, float] = dict(zip(summary.objective, row.objective, strict=False)) or {
        name: row.metrics[name] for name in summary.objective if name in row.metrics
    }
    said = [f"{name} {value:.6g}" + ("" if row.objective else ", its last") for name, value in values.items()]
    reason = row.error.strip().partition("\n")[0]
    parts = [*said, *(f"{name.lstrip('+')} = {text(value)}" for name, value in row.params.items())][:14]
    parts += [_masked(reason, 160)] if reason else []
    whole = [f"<b>trial {row.number}</b> {state}"] + [_wrapped(_masked(part, 200)) for part in parts]
    return "<br>".join(whole)


def _wrapped(words: str, most: int = 56) -> str:
    pieces = [words[i : i + most] for i in range(0, len(words), most)]
    return "<br>  ".join(html.escape(piece, quote=False) for piece in pieces)


def _masked(words: str, most: int) -> str:
    """As it may be shown."""
    return without_password(words[: 2 * most])[:most]
