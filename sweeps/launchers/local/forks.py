"""Client of the fork server: starts the server, sends trials, and receives outcomes. The caller
assigns slots."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

import psutil

from sweeps.base.errors import UserError
from sweeps.base.files import last_lines, quarantine
from sweeps.launchers.local.fork_server import Start
from sweeps.trial.job import Outcome, State, World
from sweeps.trial.machine.gpus import SHARE
from sweeps.trial.packing import pack
from sweeps.trial.run import copies
from sweeps.trial.run.program import interpreter_options
from sweeps.trial.run.sent_job import SentJob
from sweeps.trial.times import now

_SERVER = """
import json, sys
sys.path[:], folders, *arguments = json.loads(sys.argv[1])
from sweeps.trial.run import copies
copies.use(folders and copies.Copies(*folders))
# not -m, because messages are pickled by module
from sweeps.launchers.local.fork_server import main
main(*arguments)
"""
_MARK = "SWEEPYARD_FORKS"
# because a process with TensorFlow then forks and ends in half the time
_HUGE_PAGES = "glibc.malloc.hugetlb=1"
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class Forks:
    """Trials as forks of a process that has imported `preload` and prints to `log`."""

    def __init__(self, preload: Sequence[str], log: Path) -> None:
        self._preload = list(preload)
        self._log = log.absolute()
        self._running: set[int] = set()
        self._deaths = 0  # consecutive servers that were killed during their imports
        self.ready = False

    def open(self) -> None:
        """Start the fork server, which is `ready` some polls later, after the end of what an
        earlier one left."""
        if self._log.exists():
            # because programs that a trial started may outlive a killed driver and its server
            self._kill_marked()
        self._server, theirs = Pipe()
        tunables = [os.environ.get("GLIBC_TUNABLES"), _HUGE_PAGES]
        environment = {
            # because numpy must not start threads before the forks
            "OPENBLAS_NUM_THREADS": "1",
            **os.environ,
            _MARK: str(self._log),
            "GLIBC_TUNABLES": ":".join(filter(None, tunables)),
        }
        used = copies.in_use()
        arguments = [sys.path, used and [used.top, used.folder], theirs.fileno(), self._preload]
        if self._log.is_fifo():  # because opening a pipe waits for its reader
            quarantine(self._log)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *interpreter_options(), "-c", _SERVER, json.dumps(arguments)],
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
        job: SentJob,
        cores: list[int],
        gpus: list[str],
        threads: int,
        mem_gb: float | None = None,
        world: World | None = None,
    ) -> None:
        """Fork the trial on `cores` (none: all cores) and `gpus`, with `threads` for each process
        unless the user sets them.

        If its processes use more than `mem_gb`, the trial ends as out_of_memory. If `world`
        (without addresses) has several ranks, fork one process for each rank; the ranks divide the
        cores.
        """
        environment = {**job.environment, "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        if not {*os.environ, *job.env_set}.intersection(_THREADS):
            environment |= dict.fromkeys(_THREADS, str(threads))
        if 0 < job.request.gpus < 1:
            environment[SHARE] = str(job.request.gpus)
        self._running.add(job.number)
        payload = pack((job, now()))
        log = job.attempt_folder.log
        start = Start(job.number, payload, log, cores, environment, mem_gb, world or World())
        self._send_message(start)

    def poll(self, timeout_s: float) -> list[tuple[int, Outcome]]:
        """Return the trials that ended; wait for one if none did. Raises UserError if `preload`
        cannot be imported."""
        over: list[tuple[int, Outcome]] = []
        try:
            while self._server.poll(timeout_s):
                over += self._server.recv()
                self.ready = True
                timeout_s = 0.0
        except (EOFError, ConnectionResetError):  # because the server died, and its trials with it
            self._restart(self._wait_for_exit())
            reason = "its process was killed from outside, with the fork server of all trials"
            lost = Outcome(State.LOST, reason)
            over += [(number, lost) for number in self._running.difference(dict(over))]
        self._running.difference_update(dict(over))
        return over

    def _restart(self, code: int) -> None:
        """Start another server after one that ended with this exit code. Raises UserError if its
        imports failed."""
        self._deaths = 0 if self.ready else self._deaths + 1
        if self._deaths and (code >= 0 or self._deaths == 3):
            reason = f"it was killed by signal {-code}"
            if code >= 0:
                reason = f"it ended with exit code {code}"
            if code > 0:
                reason = "".join(last_lines(self._log, 1)).strip() or reason
            problem = f"hydra.launcher.preload={self._preload} cannot be imported: {reason}"
            raise UserError(f"{problem}\nSee {self._log}") from None
        self.ready = False
        self.open()

    def kill(self, number: int, end: Outcome) -> None:
        """End a trial; `poll` reports this outcome."""
        self._send_message((number, end))

    def close(self) -> None:
        """Close the pipe. The server then kills its trials and ends."""
        if not hasattr(self, "_process"):  # because open() was never called
            return
        self._server.close()
        if not self.ready:
            self._process.terminate()  # because the server reads the pipe only after its imports
        self._wait_for_exit()

    def _send_message(self, message: Start | tuple[int, Outcome]) -> None:
        # because poll() handles a dead server
        with suppress(BrokenPipeError, ConnectionResetError):
            self._server.send(message)

    def _wait_for_exit(self) -> int:
        """Return the exit code of the server. If it was killed, kill the processes of its
        trials."""
        code = self._process.wait()
        # because a process may start another just before its death
        for _ in range(3 if code < 0 else 0):
            self._kill_marked()
        return code

    def _kill_marked(self) -> None:
        """Kill the processes of the study's trials on this machine, by the mark in their
        environment."""
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get(_MARK) == str(self._log):
                with suppress(psutil.Error):
                    process.kill()
