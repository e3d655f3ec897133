"""A warm process that imports the heavy libraries once and forks a fresh process for each trial.

Importing TensorFlow takes seconds, a fork takes milliseconds. Only imports may happen here: a
TensorFlow runtime that has started does not survive a fork.

The server sends lists of ended trials with their outcomes; the first list is empty and follows the
imports. The driver sends a `Start`, or the number of a trial to kill with its `Outcome`. If the
pipe closes, the driver is gone: the server kills every trial and ends.

The processes of a trial end with it, whatever their session: as a subreaper (prctl(2)) each trial
inherits its orphaned descendants, and the server inherits the descendants of an ended trial.
"""

import ctypes
import gc
import importlib
import math
import os
import signal
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

from sweeps.base.files import Lock, last_lines
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import Outcome, State, World
from sweeps.trial.machine.memory import used_gb
from sweeps.trial.ranks import first_failure
from sweeps.trial.run.children import kill_where_sigterm_is_ignored
from sweeps.trial.run.ending import drop_inherited, end_process
from sweeps.trial.run.process import outcome_of_error, run_trial

_PR_SET_PDEATHSIG = 1  # prctl(2): signal for a process whose parent dies
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2): inherit orphaned descendants
_prctl = ctypes.CDLL(None).prctl
_CHECK_S = 0.5
_MEMORY_WORDS = (
    "std::bad_alloc",
    "MemoryError",
    "ResourceExhausted",
    "OOM when allocating",
    "Out of memory",
)
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_KILL_WAIT_S = 10.0  # maximum wait for killed processes, because a process may hang in the kernel


@dataclass(frozen=True)
class Start:
    """A request to fork a trial. `job` is a pickled tuple (SentJob, start time), which only the
    fork unpickles."""

    number: int
    job: bytes
    log: Path
    cores: list[int]
    environment: dict[str, str]
    mem_gb: float | None  # maximum memory of all processes of the trial
    world: World  # world of rank 0, without addresses


@dataclass
class _Fork:
    """One process of a trial."""

    start: Start
    rank: int
    error_pipe: Connection
    end: Outcome | None = None  # outcome for which the server killed it
    leave_by: float = math.inf  # deadline to exit after the end of its trial


class Server:
    """Forks trials for the driver at the other end of a pipe."""

    def __init__(self, driver: Connection) -> None:
        self._driver = driver
        self._running: dict[int, _Fork] = {}  # by process id
        # by trial: outcome of its first rank that ended too early
        self._failures: dict[int, Outcome] = {}
        self._helpers = set(children(os.getpid()))  # processes that the preloaded modules started

    def serve(self) -> None:
        """Fork trials until the driver is gone; then raise EOFError or OSError."""
        wakeup, alarm = os.pipe()
        os.set_blocking(alarm, False)
        signal.set_wakeup_fd(alarm)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        check_at = 0.0
        try:
            self._driver.send([])
            while True:
                for ready in wait([self._driver, wakeup], _CHECK_S):
                    if ready == wakeup:
                        os.read(wakeup, 4096)
                        self._reap()
                    elif isinstance(message := self._driver.recv(), Start):
                        self._fork(message)
                    else:
                        self._kill(*message)
                if time.monotonic() > check_at:
                    self._check_memory()
                    self._kill_stragglers()
                    check_at = time.monotonic() + _CHECK_S
        finally:
            self._running.clear()
            self._kill_orphans()

    def _kill_stragglers(self) -> None:
        """Kill the ranks that are alive for long after the end of their trial."""
        for pid, fork in self._running.items():
            if time.monotonic() > fork.leave_by:
                kill_tree(pid)

    def _kill_orphans(self) -> None:
        deadline = time.monotonic() + _KILL_WAIT_S
        orphans = self._orphans()
        while orphans and time.monotonic() < deadline:
            for pid in orphans:
                kill_tree(pid)
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
            orphans = self._orphans()

    def _kill(self, number: int, end: Outcome) -> None:
        for pid, fork in self._ranks(number):
            fork.end = end
            kill_tree(pid)

    def _ranks(self, number: int) -> list[tuple[int, _Fork]]:
        """Return the live processes of a trial, with their ids."""
        return [(pid, fork) for pid, fork in self._running.items() if fork.start.number == number]

    def _fork(self, start: Start) -> None:
        for rank in range(start.world.size):
            try:
                receiver, sender = Pipe(duplex=False)
                pid = os.fork()
            except OSError as error:
                # too many processes or open files, or no memory, which may pass
                end = Outcome(State.LOST, f"its process could not be started: {error}")
                self._kill(start.number, end)
                if not rank:
                    self._driver.send([(start.number, end)])
                return
            if pid == 0:
                self._driver.close()
                _run(start, rank, sender)
            self._running[pid] = _Fork(start, rank, receiver)

    def _reap(self) -> None:
        """Report each ended trial, after its orphans are killed. Their deaths cause further
        calls."""
        with suppress(ChildProcessError):  # because no child is left
            pid, status = os.waitpid(-1, os.WNOHANG)
            while pid:
                for orphan in self._orphans():
                    kill_tree(orphan)
                fork = self._running.pop(pid, None)
                if fork:
                    self._settle(fork, _read_end(fork, os.waitstatus_to_exitcode(status)))
                pid, status = os.waitpid(-1, os.WNOHANG)

    def _settle(self, fork: _Fork, end: Outcome) -> None:
        """Kill the other ranks of a trial whose rank ended too early, and report the outcome after
        its last rank."""
        number = fork.start.number
        live_ranks = self._ranks(number)
        if fork.start.log.with_name("end.json").exists():
            for _, rank in live_ranks:
                rank.leave_by = min(rank.leave_by, time.monotonic() + _KILL_WAIT_S)
        elif number not in self._failures:
            self._failures[number] = end
            self._kill(number, end)
        if not live_ranks:
            self._driver.send([(number, self._failures.pop(number, end))])

    def _orphans(self) -> set[int]:
        return set(children(os.getpid())) - self._helpers - self._running.keys()

    def _check_memory(self) -> None:
        limits = {fork.start.number: fork.start.mem_gb for fork in self._running.values()}
        for number, limit in limits.items():
            pids = [pid for rank_pid, _ in self._ranks(number) for pid in tree(rank_pid)]
            if limit is None or used_gb(pids) <= limit:
                continue
            used = used_gb(pids, shared_once=True)
            if used > limit:
                error = f"it used {used:.3g} GB, more than hydra.launcher.mem_gb={limit:g}"
                self._kill(number, Outcome(State.OUT_OF_MEMORY, error))


def _run(start: Start, rank: int, server: Connection) -> NoReturn:
    """Run the trial in the fork, send an error that it could not write itself to the server, and
    exit."""
    try:
        _become_trial(start, rank)
        job, began = cloudpickle.loads(start.job)
        run_trial(job, began, replace(start.world, rank=rank, local_rank=rank))
    except BaseException as error:
        end = outcome_of_error(error)
        if not start.log.with_name("started").is_file():
            end = Outcome(State.REFUSED, f"it could not be started: {end.error}")
        elif isinstance(error, OSError):
            # of the disk, because run_trial catches errors of the task function
            end = Outcome(State.LOST, end.error)
        server.send(replace(end, error=end.error[:1000]))  # short, because the pipe is not read yet
        traceback.print_exc()
    finally:
        end_process()


def _read_end(fork: _Fork, code: int) -> Outcome:
    """Return the outcome of an ended fork. `code` is its exit code, or minus the signal that killed
    it."""
    with suppress(EOFError):  # because the fork sent nothing
        if fork.end is None and fork.error_pipe.poll():
            fork.end = fork.error_pipe.recv()
    if fork.end:
        return fork.end
    log = fork.start.log
    process = "its process"
    if fork.start.world.size > 1:
        failure = first_failure(TrialFolder(log.parents[2]).attempt(int(log.parent.name)))
        if failure:
            return failure
        process = f"rank {fork.rank}: its process"
    log_end = "\n".join(last_lines(log, 20)) if code else ""
    if any(word in log_end for word in _MEMORY_WORDS):
        return Outcome(State.OUT_OF_MEMORY, "it ran out of memory")
    if code >= 0:
        return Outcome(State.FAILED, f"{process} ended with exit code {code} and no result")
    if -code in _CRASHES:
        return Outcome(State.FAILED, f"{process} crashed: {signal.strsignal(-code)}")
    return Outcome(State.LOST, f"{process} was killed from outside: {signal.strsignal(-code)}")


def _become_trial(start: Start, rank: int) -> None:
    drop_inherited()  # because the server's clean-up must not run in the fork
    kill_where_sigterm_is_ignored()  # as in a SLURM worker
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    os.setpgid(0, 0)  # because a signal to the trial's process group must not reach the server
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    Lock(start.log.with_name(f"alive{rank or ''}"))
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(start.environment)
    rank_cores = len(start.cores) // start.world.size
    if start.cores:
        os.sched_setaffinity(0, start.cores[rank * rank_cores : (rank + 1) * rank_cores])


def children(pid: int) -> list[int]:
    """Return the processes that a process has started or inherited and not reaped; none if it is
    gone."""
    pids: list[int] = []
    with suppress(FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                pids += map(int, (thread / "children").read_text().split())
    return pids


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants, ancestors first."""
    pids = [pid]
    for parent in pids:  # which grows during the loop
        pids += children(parent)
    return pids


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants, ancestors first, because a parent must not report its
    child's death."""
    for member in tree(pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)


def main(pipe: int, preload: Sequence[str]) -> None:
    """Serve the driver at the other end of `pipe`, a file descriptor, after the imports of
    `preload`."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # because the pipe is not read during the imports
    gc.disable()  # because imports leave little garbage, and collection takes a sixth of their time
    for module in preload:
        importlib.import_module(module)
    Plugins.instance()  # because Hydra's plugins are then imported once for all forks
    gc.freeze()  # because the collector would copy the pages that forks share
    gc.enable()
    _prctl(_PR_SET_PDEATHSIG, 0)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        Server(Connection(pipe)).serve()
    os._exit(0)  # because TensorFlow's clean-up would delay the driver
