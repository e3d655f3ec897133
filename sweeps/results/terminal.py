"""What a person sees of a study: a live view on a terminal, plain lines elsewhere, and the table at the end."""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod
from rich.live import Live
from rich.progress import BarColumn, Progress, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from sweeps.errors import Outage
from sweeps.files import last_lines
from sweeps.record.study import StudySnapshot, TrialRecord, by_way, result_of
from sweeps.results import configurations
from sweeps.results.findings import Findings, findings_of
from sweeps.results.scaling import Scaling
from sweeps.results.tables import Paragraph, Part
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Request, State
from sweeps.wording import counted, printable

_FEW = 6
_MANY = 10
_WIDE = 160  # letters in a line of a file, or a pipe
_LINE = 500  # characters of a log


def take_any_words() -> None:
    """Let stdout write what its encoding lacks as an escape, as stderr does, where it would raise."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class _Terminal(Console):
    """One whose reader may leave (`| head`, `| tee log` at Ctrl-C), and the study goes on: rich would end the process,
    with the trials that run, without a word.
    """

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):  # where it has made stdout lead nowhere
            super().on_broken_pipe()


class View:
    """The driver's view of its study, on stdout, while `live` is entered."""

    def __init__(self) -> None:
        self.console = _Terminal(highlight=False)
        if not self.console.is_terminal:
            self.console.width = _WIDE
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self._bar = Progress(BarColumn(60), TimeRemainingColumn(), console=self.console, speed_estimate_period=1e9)
        self._bar.add_task("")
        self._said: set[str] = set()
        self._first: dict[tuple[str, str], int] = {}  # the first trial that ended badly in a way
        self._lasting: dict[str, Outage] = {}

    def say(self, text: str) -> None:
        try:
            if text:
                self.console.print(printable(text), markup=False, soft_wrap=True)
        except OSError:  # the terminal is gone (SIGHUP): nobody is left to be told
            self.console.quiet = True

    def opening(self, summary: StudySnapshot, how_to_look: str) -> None:
        self.say(f"study {summary.name}: {counted(summary.total or 0, 'trial')} in {near(summary.folder)}")
        self.say(how_to_look)

    def show(self, part: Part, first: JustifyMethod = "left") -> None:
        """Say a paragraph, or print a table; `first` is how its first column is justified."""
        if isinstance(part, Paragraph):
            self.say(part.plain)
        else:
            self.console.print(_of_cells(part, self.console.width, first))

    def closing(self, study: StudySnapshot | Findings, how_to_look: str = "") -> None:
        """The best trials, what went wrong, and where everything is."""
        findings = findings_of(study)
        study, grouped = findings.study, configurations.parts(findings, most=10)
        for part in grouped:
            self.show(part)
        if findings.top and not grouped:
            self.say(f"best of {counted(study.count(State.COMPLETED), 'completed trial')}")
            self.show(findings.table(findings.top[:10]), "right")
        if front := findings.front:
            trials = counted(len(front), "trial")
            self.say(f"the answer: {trials} on the front, than which none is better in all objectives")
        for row, *others in by_way(study.bad()):
            log = f"   log: {near(log)}" if (log := _log(row)) else ""
            alike = f" (and {_few([other.number for other in others])} alike)" if others else ""
            self.say(f"trial {row.number}{alike} {row.state}: {row.error}{log}")
        if any(map(_log, study.rows)):
            self.say(f"logs: {near(study.folder)}/<trial>/attempts/<n>/log")
        self.say(how_to_look)

    def started(self, row: TrialRecord) -> None:
        if not self.console.is_terminal:
            self.say(f"trial {row.number} started{_values(row)}")

    def ended(self, row: TrialRecord, summary: StudySnapshot) -> None:
        """A line for a trial that ended; with the end of its log if it is the first one that went wrong in its way. One
        for each reason, numbers aside, why trials cannot run here.
        """
        if row.infeasible:
            if row.failure_signature[1] not in self._said:
                self._said.add(row.failure_signature[1])
                self.say(f"trial {row.number} ({row.name}) is infeasible, and was not started: {row.error}")
            return
        if row.state.is_bad and (first := self._first.setdefault(row.failure_signature, row.number)) != row.number:
            self.say(f"trial {row.number} {row.state} as trial {first} did   ({row.name})")
        elif row.state.is_bad:
            log_end = "" if row.attempts[-1].misfit else _log_end(row)
            self.say(f"trial {row.number} {row.state}: {row.error}   ({row.name}){log_end}")
        elif not self.console.is_terminal:
            self.say(f"trial {row.number} {row.state}{_values(row)}   {result_of(row, summary) or row.error}")

    def tick(self, summary: StudySnapshot, notes: list[str]) -> None:
        """Show how the study stands; `notes` are said once each, numbers aside, where there is no live view, outages
        everywhere.
        """
        self.outages(notes)
        if self.console.is_terminal:
            self.live.update(self._picture(summary, notes), refresh=True)
            return
        for note in notes:
            kind = re.sub(r"\d+", "", note)  # how many are pending changes all the time
            if kind not in self._said and not isinstance(note, Outage):
                self._said.add(kind)
                self.say(note)

    def outages(self, notes: list[str]) -> None:
        """Say which of those began, and which have ended."""
        lasting = {note.over: note for note in notes if isinstance(note, Outage)}
        for over in self._lasting.keys() - lasting.keys():
            self.say(over)
        for over in lasting.keys() - self._lasting.keys():
            self.say(lasting[over])
        self._lasting = lasting

    def _picture(self, summary: StudySnapshot, notes: list[str]) -> Group:
        ended, bad, pruned = summary.over(), len(summary.bad()), summary.count(State.PRUNED, State.INFEASIBLE)
        running = [row for row in summary.rows if row.state is State.RUNNING]
        counts = Text.assemble(
            (f"{summary.name}  ", "bold"),
            (f"{summary.count(State.COMPLETED)} done", "green"),
            f"  {len(running)} running  ",
            (f"{pruned} pruned  " if pruned else "", "cyan"),
            (f"{bad} failed", "red" if bad else "dim"),
            f"  of {summary.total}",
        )
        self._bar.update(self._bar.task_ids[0], total=summary.total, completed=ended)
        shown = [f"  {row.number}  {row.name}  {newest(row.metrics, summary)}" for row in running[:12]]
        lines = [Text(line, "dim") for line in shown]
        if best := summary.best():
            lines.insert(0, Text(f"best  {summary.objective[0]}={best.objective[0]:.6g}  {best.name}", "bold"))
        if not running and not ended:
            lines.append(Text("  warming up: importing the preloaded modules once, for all trials", "dim"))
        return Group(counts, self._bar, *lines, *(Text(note, "yellow") for note in notes))


def show_scaling(scaling: Scaling) -> None:
    """The scaling page without its figure."""
    from sweeps.results import scaling_page  # plotly, which a driver's start should not wait for

    view = View()
    for part in scaling_page.build_parts(scaling):
        if isinstance(part, Paragraph) or len(part) > _FEW:
            view.show(part)
        else:  # side by side, where names of columns need no breaking
            view.show([[*cells] for cells in zip(*part, strict=True)])


def _of_cells(rows: Sequence[Sequence[str]], width: int, first: JustifyMethod = "left") -> Table:
    """A table of these rows, the first of them its header. Where it would not fit into `width` letters it has no frame,
    and breaks between words: a number that is cut in two is read as two.
    """
    header, *lines = rows
    shown = Table(
        *(Column(Text(cell), overflow="fold", justify="left" if i else first) for i, cell in enumerate(header))
    )
    for cells in lines:
        shown.add_row(*map(Text, cells))  # no markup: model.act=[relu]
    columns = list(zip(*rows, strict=True))
    if sum(max(map(cell_len, column)) + 3 for column in columns) + 1 > width:
        shown.box, shown.show_edge, shown.padding = SIMPLE_HEAD, False, (0, 1, 0, 0)
        widths = [max(cell_len(word) for cell in column for word in cell.split(" ")) for column in columns]
        left = width - sum(widths) - 2 * len(widths)
        for column, least, (_, *cells) in zip(shown.columns, widths, columns, strict=True):
            more = max(0, *map(cell_len, cells)) - least  # for what stands below the header to keep to one line
            column.max_width = least + (more if 0 < more <= left else 0)
            left -= column.max_width - least
    return shown


def tally(summary: StudySnapshot) -> str:
    """How many trials ended how, or did not; the counts add up."""
    trials = max(summary.total or 0, len(summary.rows))
    return f"{counted(trials, 'trial')}: {counts_of(summary)}" if trials else "no trials"


def counts_of(summary: StudySnapshot) -> str:
    counts = Counter(row.state.value for row in summary.rows)
    counts["not begun"] = max(0, (summary.total or 0) - len(summary.rows))
    return ", ".join(f"{counts[name]} {name}" for name in (*State, "not begun") if counts[name])


def near(path: Path) -> str:
    """The path as one would type it here."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def newest(metrics: Mapping[str, float], summary: StudySnapshot) -> str:
    """What a trial reported last, its objectives first."""
    names = sorted(metrics, key=lambda name: name not in summary.objective)
    return "  ".join(f"{name}={metrics[name]:.4g}" for name in names[:3])


def _values(row: TrialRecord) -> str:
    return f"   {row.name}" if row.params else ""  # the only trial of its study


def _few(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - _MANY} more" if len(numbers) > _MANY else ""
    return ", ".join(map(str, numbers[:_MANY])) + more


def _log(row: TrialRecord) -> Path | None:
    """The log of the newest attempt, if there is one."""
    attempt = TrialFolder(row.folder).newest()
    return attempt.log if attempt and attempt.log.exists() else None


def _log_end(row: TrialRecord) -> str:
    log = _log(row)
    lines = [*(line[:_LINE] for line in last_lines(log, 5)), f"whole log: {log}"] if log else []
    return "".join(f"\n    {line}" for line in lines)


def requests_table(requests: Sequence[Request]) -> Table:
    """One line for the trials that ask for the same."""
    shown = Table("trials", "GPUs each", "CPU cores each", "memory (GB) each", "timeout (min)")
    for wanted, count in Counter(requests).items():
        cells = (wanted.cores, wanted.mem_gb, wanted.timeout_min)
        shown.add_row(str(count), str(wanted.gpus), *("not set" if cell is None else f"{cell:g}" for cell in cells))
    return shown


def cost(requests: Sequence[Request]) -> str:
    """At most how many hours, if every trial ran into its timeout."""
    hours = [(one.gpus, one.timeout_min / 60) for one in requests if one.timeout_min is not None]
    if len(hours) < len(requests):
        return "Without a timeout there is no bound on the cost; set one with hydra.launcher.timeout_min=30"
    trial_hours, gpu_hours = sum(h for _, h in hours), sum(gpus * h for gpus, h in hours)
    return f"At most {trial_hours:.4g} trial-hours and {gpu_hours:.4g} GPU-hours, if every trial ran into its timeout"
