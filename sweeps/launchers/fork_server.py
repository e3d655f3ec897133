"""A warm process that imports the heavy libraries once and forks a fresh process for each trial.

Started by local.py with a pipe to the driver. Importing TensorFlow takes seconds, a fork takes
milliseconds. Only imports may happen here: a TensorFlow runtime that has started does not survive a fork.

The driver sends `Preload`, `Start` or `Kill` over the pipe; this process answers with `Ready` and `Ended`. When the
pipe closes, the driver is gone: every trial is killed and the server ends, so that no trial outlives its driver unseen.
"""

import ctypes
import gc
import importlib
import os
import selectors
import signal
import sys
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import cloudpickle
from hydra.core.plugins import Plugins

from sweeps.locks import hold

_PR_SET_PDEATHSIG = 1  # prctl(2): the signal that a process gets when its parent dies


@dataclass(frozen=True)
class Preload:
    """Import these modules, found along the driver's own sys.path."""

    modules: list[str]
    path: list[str]


@dataclass(frozen=True)
class Ready:
    """The modules are imported: trials may be started."""


@dataclass(frozen=True)
class Start:
    """Fork a trial. `job` is a cloudpickled TrialJob, which only the fork unpacks."""

    number: int
    job: bytes
    log: str
    cores: list[int]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kill:
    """Kill a trial and whatever it started."""

    number: int


@dataclass(frozen=True)
class Ended:
    """A trial's process ended: `code` is its exit code, or minus the signal that killed it."""

    number: int
    code: int


def serve(driver: Connection) -> None:
    """Fork trials until the driver closes the pipe."""
    running: dict[int, int] = {}  # process id -> trial number
    wakeup, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(driver, selectors.EVENT_READ)
    selector.register(wakeup, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj == wakeup:
                os.read(wakeup, 4096)
                _reap(running, driver)
            elif not _obey(driver, running):
                return


def _obey(driver: Connection, running: dict[int, int]) -> bool:
    """Carry out one message. False when the driver is gone."""
    try:
        message = driver.recv()
    except (EOFError, ConnectionResetError):
        for pid in running:
            _kill_group(pid)
        return False
    if isinstance(message, Preload):
        sys.path[:] = message.path
        gc.disable()  # imports leave next to no garbage, and looking for it takes a sixth of their time
        for module in message.modules:
            importlib.import_module(module)
        Plugins.instance()  # finds and imports Hydra's plugins, once for all forks
        gc.freeze()  # keeps the collector from touching, and so copying, the pages that forks share
        gc.enable()
        _die_with_parent(0)
        driver.send(Ready())
    elif isinstance(message, Start):
        running[_fork(message, driver)] = message.number
    elif isinstance(message, Kill):
        for pid, number in running.items():
            if number == message.number:
                _kill_group(pid)
    return True


def _reap(running: dict[int, int], driver: Connection) -> None:
    while running:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        number = running.pop(ended.si_pid, None)
        if number is not None:
            _kill_group(ended.si_pid)  # what the trial started; not later, when its number may be another's
        _, status = os.waitpid(ended.si_pid, 0)
        if number is None:
            continue
        try:
            driver.send(Ended(number, os.waitstatus_to_exitcode(status)))
        except (BrokenPipeError, ConnectionResetError):
            continue  # the driver is gone: the pipe's end, read next, kills what still runs


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _fork(start: Start, driver: Connection) -> int:
    pid = os.fork()
    if pid:
        os.setpgid(pid, pid)  # here too: a Kill may come before the fork has run its first line
        return pid
    code = 1
    try:
        _become_trial(start, driver)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the server's own clean-up is not the trial's


def _die_with_parent(how: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how)


def _become_trial(start: Start, driver: Connection) -> None:
    _die_with_parent(signal.SIGKILL)
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    driver.close()
    log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    hold(Path(start.log).with_name("alive"))
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(start.environment)
    if start.cores:
        os.sched_setaffinity(0, start.cores)
    from sweeps.trial_process import run_trial

    job, began = cloudpickle.loads(start.job)
    run_trial(job, began)


def main() -> None:
    # Ctrl-C reaches the whole terminal; the driver alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe, driver = int(sys.argv[1]), int(sys.argv[2])
    _die_with_parent(signal.SIGTERM)  # while it imports, for seconds, it does not look at the pipe
    if os.getppid() != driver:
        return  # the driver died before the line above could notice
    import sweeps.trial_process  # noqa: F401 - imported once here, not in every fork

    serve(Connection(pipe))
    os._exit(0)  # taking TensorFlow apart first would keep the driver waiting
