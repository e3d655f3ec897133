"""Forks of one warm process: starts it, has it fork trials, and hears how they end. Knows of no slots."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

import cloudpickle

from sweeps.errors import UserError
from sweeps.files import last_lines
from sweeps.launchers.fork_server import READY, Ended, Start, become_reaper, children, end_all
from sweeps.trial.job import End, Job, State

_SERVER = "from sweeps.launchers.fork_server import main; main()"  # not -m: messages are pickled by module
_MARK = "SWEEPYARD_FORKS"
_HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""For malloc(3), where the kernel lets it: a process with TensorFlow forks, and ends, in half the time."""
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
_DEATHS = 3
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_MEMORY_WORDS = ("std::bad_alloc", "MemoryError", "ResourceExhausted", "OOM when allocating", "Out of memory")


class Forks:
    """Trials as forks of a process that has imported `preload`; what that process prints goes to `log`."""

    def __init__(self, preload: Sequence[str], log: Path) -> None:
        self._preload = list(preload)
        self._log = log.absolute()
        self._running: dict[int, Job] = {}
        self._killed_for: dict[int, End] = {}
        self._deaths = 0
        """Of servers in a row that never became ready."""
        self.ready = False

    def open(self) -> None:
        """Start the warm process. It is `ready` some polls later."""
        become_reaper()  # should the server be killed, what its trials started is inherited here, and ended
        self._server, theirs = Pipe()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        root = str(Path(__file__).parents[2])
        environment = {
            **os.environ,
            _MARK: str(self._log),
            "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "OPENBLAS_NUM_THREADS": "1",  # numpy must not start threads before the forks
            "GLIBC_TUNABLES": f"{os.environ.get('GLIBC_TUNABLES', '')}:{_HUGE_PAGES}".lstrip(":"),
        }
        arguments = [theirs.fileno(), os.getpid(), self._preload, sys.path]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER, json.dumps(arguments)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        theirs.close()

    def start(
        self, job: Job, cores: Sequence[int], gpus: Sequence[str], threads: int, mem_gb: float | None = None
    ) -> None:
        """Fork the trial, confined to `cores` (none: to no fewer than this process has), seeing `gpus` alone. It ends
        as out_of_memory if it and what it starts use more than `mem_gb`.
        """
        environment = {
            **job.environment,
            "CUDA_VISIBLE_DEVICES": ",".join(gpus),
            **dict.fromkeys(_THREADS, str(threads)),
        }
        payload = cloudpickle.dumps((job, time.time()))
        self._running[job.number] = job
        log = str(job.attempt_folder.log)
        self._tell(Start(job.number, payload, log, list(cores), mem_gb, environment))

    def poll(self, timeout_s: float) -> list[tuple[int, End]]:
        """The trials that ended; waits up to `timeout_s` for one.

        Raises:
            UserError: the modules to preload cannot be imported.
        """
        over: list[tuple[int, End]] = []
        try:
            while self._server.poll(0.0 if over else timeout_s):
                message = self._server.recv()
                if isinstance(message, Ended):
                    over.append(self._end(message))
                elif message == READY:
                    self.ready, timeout_s = True, 0.0
        except (EOFError, ConnectionResetError):
            over += self._restart()
        return over

    def kill(self, number: int, state: State, why: str) -> None:
        """End a trial, which `poll` then reports so."""
        self._killed_for[number] = End(state, why)
        self._tell(number)

    def close(self) -> None:
        """Closing the pipe tells the server to kill what still runs and to end."""
        if not hasattr(self, "_process"):  # it was never opened
            return
        self._server.close()
        if not self.ready:
            self._process.terminate()  # it is still importing, and would not look at the pipe before it is done
        self._process.wait()
        self._end_orphans()

    def _tell(self, message: Start | int) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the server died, as poll() will see
            self._server.send(message)

    def _restart(self) -> list[tuple[int, End]]:
        """The server died, and its trials with it. A new one takes its place, unless that would die as well."""
        killed = self._process.wait() in {-signal.SIGKILL, -signal.SIGTERM}
        self._end_orphans()
        self._deaths = 0 if self.ready else self._deaths + 1
        if not self.ready and (not killed or self._deaths == _DEATHS):
            said = "".join(last_lines(self._log, 1))
            why = f"it was killed {_DEATHS} times, perhaps for its memory" if killed else said
            raise UserError(f"hydra.launcher.preload={self._preload} cannot be imported: {why}\nSee {self._log}")
        self.ready = False
        over = [self._end(Ended(number, -signal.SIGKILL)) for number in list(self._running)]
        self.open()
        return over

    def _end_orphans(self) -> None:
        """End what the trials of a server that was killed have left behind."""
        end_all(lambda: [pid for pid in children(os.getpid()) if self._is_orphan(pid)])

    def _is_orphan(self, pid: int) -> bool:
        """Whether this child is not one of somebody else's: by its session, or what it had from the server."""
        try:
            if os.getsid(pid) == self._process.pid:
                return True
            return f"{_MARK}={self._log}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # it is gone, or another user's
            return False

    def _end(self, ended: Ended) -> tuple[int, End]:
        job = self._running.pop(ended.number)
        killed_for = self._killed_for.pop(ended.number, None)
        return ended.number, killed_for or ended.end or _what_happened(ended.code, job.attempt_folder.log)


def _what_happened(code: int, log: Path) -> End:
    """From a process's exit code, or minus the signal that killed it."""
    last = "\n".join(last_lines(log, 20)) if code else ""
    if any(word in last for word in _MEMORY_WORDS):
        return End(State.OUT_OF_MEMORY, "it ran out of memory")
    if code >= 0:
        return End(State.FAILED, f"its process ended with exit code {code} and no result")
    name = signal.strsignal(-code) or f"signal {-code}"
    if -code in _CRASHES:
        return End(State.FAILED, f"its process crashed: {name}")
    return End(State.LOST, f"its process was killed from outside: {name}")
