"""Forks of one warm process: starts it, has it fork trials, and hears how they end. Knows of no slots."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

import cloudpickle
import psutil

from sweeps.errors import UserError
from sweeps.files import last_lines
from sweeps.launchers.fork_server import Start
from sweeps.trial import copies
from sweeps.trial.job import Job, Outcome, State, World

_SERVER = """
import json, sys
sys.path[:], kept, *told = json.loads(sys.argv[1])
from sweeps.trial import copies
copies.use(kept and copies.Copies(*kept))
from sweeps.launchers.fork_server import main  # not -m: messages are pickled by module
main(*told)
"""
_MARK = "SWEEPYARD_FORKS"
_HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""For malloc(3), where the kernel lets it: a process with TensorFlow forks, and ends, in half the time."""
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class Forks:
    """Trials as forks of a process that has imported `preload`; what that process prints goes to `log`."""

    def __init__(self, preload: Sequence[str], log: Path) -> None:
        self._preload = list(preload)
        self._log = log.absolute()
        self._running: set[int] = set()
        self._deaths = 0  # of servers that were killed while they imported, in a row
        self.ready = False

    def open(self) -> None:
        """Start the warm process. It is `ready` some polls later."""
        self._server, theirs = Pipe()
        environment = os.environ | {
            _MARK: str(self._log),
            "OPENBLAS_NUM_THREADS": "1",  # numpy must not start threads before the forks
            "GLIBC_TUNABLES": f"{os.environ.get('GLIBC_TUNABLES', '')}:{_HUGE_PAGES}".lstrip(":"),
        }
        kept = copies.in_use()
        told = json.dumps([sys.path, kept and [kept.top, kept.kept], theirs.fileno(), self._preload])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER, told],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        theirs.close()

    def start(
        self,
        job: Job,
        cores: list[int],
        gpus: list[str],
        threads: int,
        mem_gb: float | None = None,
        world: World | None = None,
    ) -> None:
        """Fork the trial, confined to `cores` (none: not at all), seeing `gpus` alone, with `threads` a process. It
        ends as out_of_memory if it and what it starts use more than `mem_gb`. A `world` of several ranks, without
        addresses, makes it so many processes, which share the cores out among them.
        """
        owned = dict.fromkeys(_THREADS, str(threads)) | {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        payload = cloudpickle.dumps((job, time.time()))
        self._running.add(job.number)
        environment = {**job.environment, **owned}
        self._tell(Start(job.number, payload, job.attempt_folder.log, cores, environment, mem_gb, world or World()))

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        """The trials that ended; waits up to `timeout_s` for one. Raises UserError if `preload` cannot be imported."""
        over: list[tuple[int, Outcome]] = []
        try:
            while self._server.poll(timeout_s):
                over += self._server.recv()
                self.ready, timeout_s = True, 0.0
        except (EOFError, ConnectionResetError):  # the server died, and its trials with it
            code = self._bury()
            self._deaths = 0 if self.ready else self._deaths + 1
            if not self.ready and (code >= 0 or self._deaths == 3):
                why = f"it was killed by signal {-code}" if code < 0 else "".join(last_lines(self._log, 1))
                said = f"hydra.launcher.preload={self._preload} cannot be imported: {why}\nSee {self._log}"
                raise UserError(said) from None
            self.ready = False
            self.open()
            lost = Outcome(State.LOST, "its process was killed from outside, with the one that all trials are forks of")
            over += [(number, lost) for number in self._running.difference(dict(over))]
        self._running.difference_update(dict(over))
        return over

    def kill(self, number: int, state: State, why: str) -> None:
        """End a trial, which `poll` then reports so."""
        self._tell((number, Outcome(state, why)))

    def close(self) -> None:
        """Closing the pipe tells the server to kill what still runs and to end."""
        if not hasattr(self, "_process"):  # it was never opened
            return
        self._server.close()
        if not self.ready:
            self._process.terminate()  # it is still importing, and would not look at the pipe before it is done
        self._bury()

    def _tell(self, message: Start | tuple[int, Outcome]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the server died, as poll() will see
            self._server.send(message)

    def _bury(self) -> int:
        """The exit code of the server. Should it have been killed, what its trials have left behind is killed too."""
        code = self._process.wait()
        for _ in range(3 if code < 0 else 0):  # what is killed may just have started another
            for process in psutil.process_iter(["environ"]):
                if (process.info["environ"] or {}).get(_MARK) == str(self._log):
                    with suppress(psutil.Error):
                        process.kill()
        return code
