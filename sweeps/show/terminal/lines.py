"""A study on stdout: a live view in a terminal, plain lines elsewhere, and the results at the
end."""

import math
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from itertools import chain, takewhile
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Group, JustifyMethod
from rich.live import Live
from rich.progress import BarColumn, Progress, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sweeps.analysis.no_result import explain_no_result
from sweeps.base.errors import Outage
from sweeps.base.files import last_lines
from sweeps.base.wording import counted, one_line, printable
from sweeps.record.study import StudySnapshot, TrialRecord, by_failure_signature, result_of
from sweeps.show import configurations
from sweeps.show.findings import Findings, count_states, findings_of
from sweeps.show.scaling import Scaling
from sweeps.show.tables import HTML, Paragraph, Part
from sweeps.show.terminal.console import SafeConsole
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Request, State
from sweeps.trial.nodes import find_bad_nodes

_NO_LIMIT = "Without a timeout the cost has no limit. Set a timeout: hydra.launcher.timeout_min=30"
_FEW = 6
_MANY = 10
_WIDE = 160  # characters in a line of a file or a pipe
_LINE = 500  # characters in a line of a log
_FRAME = '  File "'  # the first line of a frame in a traceback
_INSIDE_FRAME = "    "  # a line of source or of marks below it
_START_ORDER_S = 10.0  # because a trial that starts later than that waits in a queue of SLURM


def escape_unencodable() -> None:
    """Make stdout escape characters that its encoding lacks, as stderr does, instead of raising."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class _Terminal(SafeConsole):
    """A console whose reader may leave (`| head`, `| tee log` at Ctrl-C) without ending the
    study."""

    def on_broken_pipe(self) -> None:
        # because rich exits, and running trials would end with the process
        with suppress(SystemExit):
            super().on_broken_pipe()


class View:
    """The driver's view of its study on stdout, live while `live` is entered."""

    def __init__(self) -> None:
        self.console = _Terminal(highlight=False)
        if not self.console.is_terminal:
            self.console.width = _WIDE
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self._bar = Progress(
            BarColumn(60), TimeRemainingColumn(), console=self.console, speed_estimate_period=1e9
        )
        self._bar.add_task("")
        self._printed: set[str] = set()  # notes and reasons, without their numbers
        # number of the first trial with a failure signature
        self._first_failures: dict[tuple[str, str], int] = {}
        self._outages: dict[str, Outage] = {}
        # time and text of start lines not yet printed, by trial
        self._started: dict[int, tuple[float, str]] = {}

    def say(self, text: str) -> None:
        """Print a text, if it is not empty, without passwords and control characters."""
        try:
            if text:
                self.console.print(printable(text), markup=False, soft_wrap=True)
        except OSError:  # because the terminal was closed (SIGHUP)
            self.console.quiet = True

    def opening(self, study: StudySnapshot, dashboard: str) -> None:
        """Print the study's name, size and folder, its page and its dashboard."""
        self.say(
            f"study {study.name}: {counted(study.total or 0, 'trial')} in"
            f" {relative_path(study.folder)}"
        )
        self.say(f"page: {relative_path(study.folder)}/{HTML}")
        self.say(dashboard)

    def show(self, part: Part, first: JustifyMethod = "left") -> None:
        """Print a paragraph or a table; `first` justifies the table's first column."""
        if isinstance(part, Paragraph):
            self.say(part.plain)
        else:
            self.console.print(_build_table(part, self.console.width, first))

    def closing(self, study: StudySnapshot | Findings, dashboard: str = "") -> None:
        """Print the best trials, the errors, and the paths of the results."""
        findings = findings_of(study)
        study = findings.study
        self._show_best(findings)
        for trials in by_failure_signature(study.bad()):
            self.say(self._describe_failure(trials))
        attempts = chain.from_iterable(trial.attempts for trial in study.rows)
        for node, reason in find_bad_nodes(attempts).items():
            self.say(
                f"node {node} {reason}. To avoid it in other studies, type:"
                f" hydra.launcher.exclude={node}"
            )
        for advice in findings.efficiency[1]:
            self.say(str(advice))
        if any(map(_log_of, study.rows)):
            self.say(f"logs: {relative_path(study.folder)}/<trial>/attempts/<n>/log")
        if (study.folder / HTML).exists():
            self.say(f"page: {relative_path(study.folder)}/{HTML}")
        self.say(dashboard)

    def _show_best(self, findings: Findings) -> None:
        parts = configurations.build_parts(findings, most=10)
        for part in parts:
            self.show(part)
        if findings.top and not parts:
            completed = findings.study.count(State.COMPLETED)
            self.say(f"best of {counted(completed, 'completed trial')}")
            self.show(findings.table(findings.top[:10]), "right")
        reason, advice = explain_no_result(findings.study)
        if reason and not findings.study.bad():  # because an error is printed by itself
            self.say(f"no trial has a result: {reason}. {advice}")
        if findings.front:
            self.say(f"Pareto front: {counted(len(findings.front), 'trial')}")

    def _describe_failure(self, trials: Sequence[TrialRecord]) -> str:
        """Return the error that these trials share, and the log of the first one."""
        first = trials[0]
        log = _log_of(first)
        path = f"   log: {relative_path(log)}" if log else ""
        error = one_line(first.error)
        # Because SLURM's answer was printed when it came, and no log shows more of it.
        if first.state is State.REFUSED and first.failure_signature in self._first_failures:
            error = "for the reason above"
        numbers = join_numbers([trial.number for trial in trials])
        noun = "trials" if len(trials) > 1 else "trial"
        return f"{noun} {numbers} {first.state}: {error}{path}"

    def started(self, trial: TrialRecord, how: str, study: StudySnapshot) -> None:
        """Print a line for a trial that has started, or goes on, as `how` says, in the order of
        numbers: see `_print_started`."""
        if not self.console.is_terminal:
            line = f"trial {trial.number} {how}{_params(trial)}"
            self._started[trial.number] = time.monotonic(), line
            self._print_started(study)

    def _print_started(self, study: StudySnapshot) -> None:
        """Print lines for started trials. A line waits up to 10 s for the start of trials with
        lower numbers."""
        pending = [number for number in study.under_way if study.rows[number].state is State.QUEUED]
        first_pending = min(pending, default=math.inf)
        for number, (started, line) in sorted(self._started.items()):
            if number < first_pending or time.monotonic() - started > _START_ORDER_S:
                del self._started[number]
                self.say(line)

    def ended(self, trial: TrialRecord, study: StudySnapshot) -> None:
        """Print a line for a trial that has ended.

        If the trial is the first one with its failure signature, the end of its log follows. An
        infeasible trial has a line only if its reason, without numbers, is new.
        """
        if self._started:
            self._print_started(study)
            self._started.pop(trial.number, None)
        self.say(self._describe_end(trial, study))

    def _describe_end(self, trial: TrialRecord, study: StudySnapshot) -> str:
        signature = trial.failure_signature
        error = one_line(trial.error)
        if trial.infeasible:
            if signature[1] in self._printed:
                return ""
            self._printed.add(signature[1])
            return (
                f"trial {trial.number} ({trial.name}) is infeasible, and was not started: {error}"
            )
        if trial.state.is_bad:
            line = f"trial {trial.number} {trial.state}"
            first = self._first_failures.setdefault(signature, trial.number)
            if first != trial.number:
                return f"{line} for the same reason as trial {first}   ({trial.name})"
            log_end = "" if trial.attempts[-1].missing_objective else _log_end(trial)
            return f"{line}: {error}   ({trial.name}){log_end}"
        if self.console.is_terminal:
            return ""
        end = result_of(trial, study) or error
        return f"trial {trial.number} {trial.state}{_params(trial)}   {end}"

    def tick(self, study: StudySnapshot, notes: list[str]) -> None:
        """Update the live view, or print new notes. Notes that differ only in numbers are printed
        once."""
        self.outages(notes)
        if self.console.is_terminal:
            self.live.update(self._picture(study, notes), refresh=True)
            return
        if self._started:
            self._print_started(study)
        for note in notes:
            # because the number of pending jobs changes all the time
            kind = re.sub(r"\d+", "", note)
            if kind not in self._printed and not isinstance(note, Outage):
                self._printed.add(kind)
                self.say(note)

    def outages(self, notes: list[str]) -> None:
        """Print the outages that have begun, and the end of those outages that are over."""
        outages = {note.over: note for note in notes if isinstance(note, Outage)}
        for over in self._outages.keys() - outages.keys():
            self.say(over)
        for over in outages.keys() - self._outages.keys():
            self.say(outages[over])
        self._outages = outages

    def _picture(self, study: StudySnapshot, notes: list[str]) -> Group:
        ended = study.over()
        running = study.in_state(State.RUNNING)
        self._bar.update(self._bar.task_ids[0], total=study.total, completed=ended)
        lines = []
        best = study.best()
        if best:
            value = f"{study.objective[0]}={best.objective[0]:.6g}"
            lines.append(Text(f"best  {value}  {best.name}", "bold"))
        for trial in running[:12]:
            metrics = format_metrics(trial.metrics, study)
            lines.append(Text(f"  {trial.number}  {trial.name}  {metrics}", "dim"))
        if not running and not ended and not any(trial.attempts for trial in study.rows):
            lines.append(Text("  importing the preloaded modules once for all trials", "dim"))
        lines += [Text(note, "yellow") for note in notes]
        return Group(_count_line(study, len(running)), self._bar, *lines)


def _count_line(study: StudySnapshot, running: int) -> Text:
    pruned = study.count(State.PRUNED, State.INFEASIBLE)
    paused = study.count(State.PAUSED)
    bad = sum(trial.state.has_failed for trial in study.rows)
    return Text.assemble(
        (f"{study.name}  ", "bold"),
        (f"{study.count(State.COMPLETED)} completed", "green"),
        f"  {running} running  ",
        (f"{pruned} pruned  " if pruned else "", "cyan"),
        (f"{paused} paused  " if paused else "", "cyan"),
        (f"{bad} failed", "red" if bad else "dim"),
        f"  of {study.total}",
    )


def show_scaling(scaling: Scaling) -> None:
    """Print the scaling page without its figure."""
    # here, because importing numpy would delay the start of a driver
    from sweeps.show.page import scaling_page

    view = View()
    for part in scaling_page.build_parts(scaling):
        if isinstance(part, Paragraph) or len(part) > _FEW:
            view.show(part)
        else:  # because columns side by side need no line breaks in their names
            view.show([[*cells] for cells in zip(*part, strict=True)])


def _build_table(rows: Sequence[Sequence[str]], width: int, first: JustifyMethod = "left") -> Table:
    """Return a table of these rows, the first of them the header.

    A table that is wider than `width` characters has no frame and breaks between words, because
    half a number is misread as a number.
    """
    header, *lines = rows
    table = Table()
    for i, cell in enumerate(header):
        table.add_column(Text(cell), overflow="fold", justify="left" if i else first)
    for cells in lines:
        # as Text, because brackets would be markup: model.act=[relu]
        table.add_row(*map(Text, cells))
    columns = list(zip(*rows, strict=True))
    if sum(max(map(cell_len, column)) + 3 for column in columns) + 1 > width:
        table.box = SIMPLE_HEAD
        table.show_edge = False
        table.padding = (0, 1, 0, 0)
        widths = _widths(columns, width)
        for column, most in zip(table.columns, widths, strict=True):
            column.max_width = most
    return table


def _widths(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the width of each column: of its longest word, or if there is room, of its longest
    cell below the header."""
    widths = []
    for column in columns:
        words = " ".join(column).split(" ")
        widths.append(max(map(cell_len, words)))
    left = width - sum(widths) - 2 * len(widths)
    for i, (_, *cells) in enumerate(columns):
        more = max(0, *map(cell_len, cells)) - widths[i]
        if 0 < more <= left:
            widths[i] += more
            left -= more
    return widths


def tally(study: StudySnapshot) -> str:
    """Return the number of all trials, and the number by state."""
    counts = count_states(study)
    if not counts:
        return "no trials"
    return f"{counted(sum(counts.values()), 'trial')}: {format_counts(counts)}"


def format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def relative_path(path: Path) -> str:
    """Return the path relative to the current folder, if it is inside."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def format_metrics(metrics: Mapping[str, float], study: StudySnapshot) -> str:
    """Return at most three metrics, the objectives first."""
    names = sorted(metrics, key=lambda name: name not in study.objective)
    return "  ".join(f"{name}={metrics[name]:.4g}" for name in names[:3])


def _params(trial: TrialRecord) -> str:
    return f"   {trial.name}" if trial.params else ""


def join_numbers(numbers: Sequence[int]) -> str:
    """Return the first numbers, and how many more there are."""
    more = f" and {len(numbers) - _MANY} more" if len(numbers) > _MANY else ""
    return ", ".join(map(str, numbers[:_MANY])) + more


def _log_of(trial: TrialRecord) -> Path | None:
    """Return the log of the newest attempt, or None if there is no log."""
    attempt = TrialFolder(trial.folder).newest()
    return attempt.log if attempt and attempt.log.exists() else None


def _log_end(trial: TrialRecord) -> str:
    """Return the last lines of a trial's log, those of a traceback without half a frame."""
    log = _log_of(trial)
    if log is None:
        return ""
    lines = last_lines(log, 5)
    half = [*takewhile(lambda line: line.startswith(_INSIDE_FRAME), lines)]
    rest = lines[len(half) :]
    if half and rest and (rest[0].startswith(_FRAME) or not half[-1].strip(" ^~")):
        lines = rest
    shown = [*(line[:_LINE] for line in lines), f"whole log: {log}"]
    return "".join(f"\n    {line}" for line in shown)


def requests_table(requests: Sequence[Request]) -> Table:
    """Return a table of requests, equal requests in one row."""
    table = Table("trials", "GPUs each", "CPU cores each", "memory (GB) each", "timeout (min)")
    for request, count in Counter(requests).items():
        cells = (round(request.gpus, 3), request.cores, request.mem_gb, request.timeout_min)
        table.add_row(str(count), *("not set" if cell is None else f"{cell:g}" for cell in cells))
    return table


def cost(requests: Sequence[Request]) -> str:
    """Return the hours that all trials take together if each one runs into its timeout."""
    trial_hours = 0.0
    gpu_hours = 0.0
    for request in requests:
        if request.timeout_min is None:
            return _NO_LIMIT
        hours = request.timeout_min / 60
        trial_hours += hours
        gpu_hours += request.gpus * hours
    return (
        f"At most {trial_hours:.4g} trial-hours and {gpu_hours:.4g} GPU-hours, if every trial runs"
        " into its timeout"
    )
