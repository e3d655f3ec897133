"""A warm process that imports the heavy libraries once and forks a fresh process for each trial.

Importing TensorFlow takes seconds, a fork takes milliseconds. Only imports may happen here: a TensorFlow runtime that
has started does not survive a fork.

Once the modules are imported the driver hears which trials have ended, and how: none at first. It sends a `Start`, or
the number of a trial to kill and the `Outcome` that this makes. When the pipe closes, the driver is gone: every trial
is killed and the server ends, so that no trial outlives its driver unseen.

What a trial starts ends with it, in whatever session it is: as subreapers (prctl(2)) each trial inherits the processes
whose parents died within it, and this process inherits those that a trial leaves.
"""

import ctypes
import gc
import importlib
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

import cloudpickle
from hydra.core.plugins import Plugins

from sweeps.files import Lock, last_lines
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State, World
from sweeps.trial.memory import used_gb
from sweeps.trial.process import end_of_error, run_trial
from sweeps.trial.ranks import said

_PR_SET_PDEATHSIG = 1  # prctl(2): the signal that a process gets when its parent dies
_PR_SET_CHILD_SUBREAPER = 36  # it inherits the processes whose parents die somewhere below it
_prctl = ctypes.CDLL(None).prctl
_MEMORY_LOOK_S = 0.5
_MEMORY_WORDS = ("std::bad_alloc", "MemoryError", "ResourceExhausted", "OOM when allocating", "Out of memory")
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_PATIENCE_S = 10.0  # how long killed processes are waited for: one that hangs in its kernel must not hang us


@dataclass(frozen=True)
class Start:
    """Fork a trial. `job` is a cloudpickled Job and when it had its slot, which only the fork unpacks."""

    number: int
    job: bytes
    log: Path
    cores: list[int]
    environment: dict[str, str]
    mem_gb: float | None  # the most that the trial may have in memory, what it starts included
    world: World  # of its first process, without addresses; it has as many as `world.size` says


@dataclass
class _Fork:
    """One process of a trial."""

    start: Start
    rank: int
    last_words: Connection
    end: Outcome | None = None  # what it was killed for
    leave_by: float = math.inf  # when it is killed for staying although its trial is over


class Server:
    """Forks trials for the driver at the other end of a pipe."""

    def __init__(self, driver: Connection) -> None:
        self._driver = driver
        self._running: dict[int, _Fork] = {}  # by process id
        self._broken: dict[int, Outcome] = {}  # by trial: why the first of its ranks ended before its time
        self._helpers = set(children(os.getpid()))  # processes that the preloaded modules have started

    def serve(self) -> None:
        """Fork trials until the driver is gone, which raises an EOFError or an OSError."""
        wakeup, alarm = os.pipe()
        os.set_blocking(alarm, False)
        signal.set_wakeup_fd(alarm)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        look_at = 0.0
        try:
            self._driver.send([])
            while True:
                for ready in wait([self._driver, wakeup], _MEMORY_LOOK_S):
                    if ready == wakeup:
                        os.read(wakeup, 4096)
                        self._reap()
                    elif isinstance(message := self._driver.recv(), Start):
                        self._fork(message)
                    else:
                        self._kill(*message)
                if time.monotonic() > look_at:
                    self._look_at_memory()
                    self._end_late_ranks()
                    look_at = time.monotonic() + _MEMORY_LOOK_S
        finally:
            self._running.clear()
            deadline = time.monotonic() + _PATIENCE_S
            while (left := self._orphans()) and time.monotonic() < deadline:
                for pid in left:
                    kill_tree(pid)
                    os.waitpid(pid, os.WNOHANG)
                time.sleep(0.001)

    def _kill(self, number: int, end: Outcome) -> None:
        for pid, fork in self._ranks(number):
            fork.end = end
            kill_tree(pid)

    def _ranks(self, number: int) -> list[tuple[int, _Fork]]:
        """The processes of a trial that live, with their ids."""
        return [(pid, fork) for pid, fork in self._running.items() if fork.start.number == number]

    def _fork(self, start: Start) -> None:
        for rank in range(start.world.size):
            try:
                theirs, own = Pipe(duplex=False)
                pid = os.fork()
            except OSError as error:  # too many processes or open files, no memory: later there may be room
                end = Outcome(State.LOST, f"its process could not be started: {error}")
                self._kill(start.number, end)
                if not rank:
                    self._driver.send([(start.number, end)])
                return
            if pid == 0:
                self._driver.close()
                _run(start, rank, own)
            self._running[pid] = _Fork(start, rank, theirs)

    def _reap(self) -> None:
        """Tell of the trials that ended, once what they left is killed: its own death brings us here again."""
        with suppress(ChildProcessError):  # there is no further one
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for pid in self._orphans():
                    kill_tree(pid)
                if fork := self._running.pop(ended[0], None):
                    self._settle(fork, _end_of(fork, os.waitstatus_to_exitcode(ended[1])))

    def _settle(self, fork: _Fork, end: Outcome) -> None:
        """One of a trial's processes has ended. The first that does so before its trial is over ends all."""
        number, left = fork.start.number, self._ranks(fork.start.number)
        if fork.start.log.with_name("end.json").exists():
            for _, other in left:
                other.leave_by = min(other.leave_by, time.monotonic() + _PATIENCE_S)
        elif number not in self._broken:
            self._broken[number] = end
            self._kill(number, end)
        if not left:
            self._driver.send([(number, self._broken.pop(number, end))])

    def _end_late_ranks(self) -> None:
        for pid, fork in self._running.items():
            if time.monotonic() > fork.leave_by:
                kill_tree(pid)

    def _orphans(self) -> set[int]:
        return set(children(os.getpid())) - self._helpers - self._running.keys()

    def _look_at_memory(self) -> None:
        for number, limit in {fork.start.number: fork.start.mem_gb for fork in self._running.values()}.items():
            pids = [one for pid, _ in self._ranks(number) for one in tree(pid)]
            if limit and used_gb(pids) > limit and (used := used_gb(pids, shared_once=True)) > limit:
                why = f"it used {used:.3g} GB, more than hydra.launcher.mem_gb={limit:g}"
                self._kill(number, Outcome(State.OUT_OF_MEMORY, why))


def _run(start: Start, rank: int, server: Connection) -> NoReturn:
    """The life of a fork. What it cannot write down itself it says to the server before it dies."""
    try:
        _become_trial(start, rank)
        job, began = cloudpickle.loads(start.job)
        run_trial(job, began, replace(start.world, rank=rank, local_rank=rank))
    except BaseException as error:
        end = end_of_error(error)
        if not start.log.with_name("began").is_file():
            end = Outcome(State.REFUSED, f"it could not be started: {end.error}")
        elif isinstance(error, OSError):  # not the task function's, which run_trial keeps
            end = Outcome(State.LOST, end.error)
        server.send(replace(end, error=end.error[:1000]))  # fits in the pipe: nobody reads it yet
        traceback.print_exc()
    finally:
        with suppress(BaseException):  # what a full disk, or a stdout of the task function's own, raises
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)  # the server's own clean-up is not the trial's


def _end_of(fork: _Fork, code: int) -> Outcome:
    """What it was killed for, or said before it died; or else by its exit code, or minus the signal that killed it."""
    with suppress(EOFError):  # it had nothing to say
        if fork.end is None and fork.last_words.poll():
            fork.end = fork.last_words.recv()
    if fork.end:
        return fork.end
    log, several = fork.start.log, fork.start.world.size > 1
    if several and (told := said(TrialFolder(log.parents[2]).attempt(int(log.parent.name)))):
        return told
    whose = f"rank {fork.rank}: its process" if several else "its process"
    last = "\n".join(last_lines(log, 20)) if code else ""
    if any(word in last for word in _MEMORY_WORDS):
        return Outcome(State.OUT_OF_MEMORY, "it ran out of memory")
    if code >= 0:
        return Outcome(State.FAILED, f"{whose} ended with exit code {code} and no result")
    if -code in _CRASHES:
        return Outcome(State.FAILED, f"{whose} crashed: {signal.strsignal(-code)}")
    return Outcome(State.LOST, f"{whose} was killed from outside: {signal.strsignal(-code)}")


def _become_trial(start: Start, rank: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    os.setpgid(0, 0)  # what it sends to its whole group must not reach the server
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    Lock(start.log.with_name(f"alive{rank or ''}"))
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(start.environment)
    each = len(start.cores) // start.world.size
    if start.cores:
        os.sched_setaffinity(0, start.cores[rank * each : (rank + 1) * each])


def children(pid: int) -> list[int]:
    """The processes that a process has started or inherited, until they are reaped. None if it is gone."""
    found: list[int] = []
    with suppress(FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (thread / "children").read_text().split())
    return found


def tree(pid: int) -> list[int]:
    """A process and all below it, itself first."""
    found = [pid]
    for one in found:  # it grows meanwhile
        found += children(one)
    return found


def kill_tree(pid: int) -> None:
    """Kill a process and all below it; it goes first, for it must not see its children die, and say so."""
    for one in tree(pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)


def main(pipe: int, preload: Sequence[str]) -> None:
    """The life of the server, whose end of the pipe is the file descriptor `pipe`."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # while it imports it does not look at the pipe
    gc.disable()  # imports leave next to no garbage, and looking for it takes a sixth of their time
    for module in preload:
        importlib.import_module(module)
    Plugins.instance()  # finds and imports Hydra's plugins, once for all forks
    gc.freeze()  # keeps the collector from touching, and so copying, the pages that forks share
    gc.enable()
    _prctl(_PR_SET_PDEATHSIG, 0)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        Server(Connection(pipe)).serve()
    os._exit(0)  # taking TensorFlow apart first would keep the driver waiting
