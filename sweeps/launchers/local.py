"""Trials as forks of a warm process on this machine, each with GPUs, cores and memory of its own."""

import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path

import cloudpickle
import psutil
from omegaconf import DictConfig

from sweeps.errors import UserError
from sweeps.launchers.contract import Exit, TrialJob
from sweeps.launchers.fork_server import Ended, Kill, Preload, Ready, Start
from sweeps.launchers.gpus import visible_gpus
from sweeps.locks import wait_until_gone
from sweeps.settings import LocalLauncherConf, read
from sweeps.trial_folder import State

_SERVER = (
    "from sweeps.launchers.fork_server import main; main()"  # not -m: messages are pickled by module name
)
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_MEMORY_WORDS = ("std::bad_alloc", "MemoryError", "ResourceExhausted", "OOM when allocating", "Out of memory")


@dataclass
class _Slot:
    """What one running trial owns."""

    job: TrialJob
    cores: list[int]
    gpus: list[str]
    mem_gb: float
    deadline: float
    killed_for: State | None = None


class LocalTrials:
    """The local launcher, as our loop sees it (`sweeps.launchers.contract.TrialLauncher`)."""

    def __init__(self, preload: Sequence[str], log: Path) -> None:
        self._preload = list(preload)
        self._log = log
        self._cores = sorted(os.sched_getaffinity(0))
        self._gpus = visible_gpus()
        self._mem_gb = psutil.virtual_memory().total / 1e9
        self._all_cores, self._all_gpus = len(self._cores), len(self._gpus)
        self._least_cores = 1
        self._slots: dict[int, _Slot] = {}
        self._over: deque[Exit] = deque()
        self._ready = False

    def open(self) -> None:
        self._start_server()

    def check(self, config: DictConfig) -> None:
        wanted = read(config.hydra.launcher, LocalLauncherConf)
        check_machine(wanted, self._all_gpus)
        self._least_cores = min(self._least_cores, self._share(wanted))

    def has_room(self) -> bool:
        return self._ready and len(self._cores) >= self._least_cores

    def submit(self, job: TrialJob) -> bool:
        wanted = read(job.config.hydra.launcher, LocalLauncherConf)
        cores = self._share(wanted)
        if (
            not self._ready
            or cores > len(self._cores)
            or wanted.gpus_per_node > len(self._gpus)
            or wanted.mem_gb > self._mem_gb
        ):
            return False
        timeout_s = math.inf if wanted.timeout_min is None else wanted.timeout_min * 60
        slot = _Slot(
            job,
            [self._cores.pop(0) for _ in range(cores)],
            [self._gpus.pop(0) for _ in range(wanted.gpus_per_node)],
            wanted.mem_gb,
            time.monotonic() + timeout_s,
        )
        self._mem_gb -= wanted.mem_gb
        self._slots[job.number] = slot
        environment = {
            **job.environment,
            "CUDA_VISIBLE_DEVICES": ",".join(slot.gpus),
            "OMP_NUM_THREADS": str(cores or 1),
        }
        payload = cloudpickle.dumps((job, time.time()))
        self._tell(Start(job.number, payload, str(job.attempt / "log"), slot.cores, environment))
        return True

    def adopt(self, job: TrialJob) -> bool:
        """Local trials are killed when their driver goes; wait until the last one is."""
        wait_until_gone(job.folder.attempts()[-1] / "alive")
        return False

    def poll(self, timeout_s: float) -> list[Exit]:
        self._kill_overdue()
        wait = 0.0 if self._over else timeout_s
        try:
            while self._server.poll(wait):
                message = self._server.recv()
                if isinstance(message, Ended):
                    self._over.append(self._exit(message))
                self._ready = self._ready or isinstance(message, Ready)
                wait = 0.0
        except (EOFError, ConnectionResetError):
            self._server_died()
        over = list(self._over)
        self._over.clear()
        return over

    def notes(self) -> list[str]:
        return []

    def cancel(self, number: int) -> None:
        self._kill(self._slots[number], State.CANCELLED)

    def close(self) -> None:
        """Closing the pipe tells the server to kill what still runs and to end."""
        self._server.close()
        if not self._ready:
            self._process.terminate()  # it is still importing, and would not look at the pipe before it is done
        self._process.wait()

    def _start_server(self) -> None:
        self._server, theirs = Pipe()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        root = str(Path(__file__).parents[2])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "OPENBLAS_NUM_THREADS": "1",  # numpy must not start threads before the forks
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        theirs.close()
        self._tell(Preload(self._preload, sys.path))

    def _tell(self, message: Preload | Start | Kill) -> None:
        try:
            self._server.send(message)
        except (BrokenPipeError, ConnectionResetError):
            return  # the server died: poll() will see it, and end all that it had to do

    def _server_died(self) -> None:
        """Its trials died with it. A server that never became ready would die again, so that is the user's to mend."""
        if not self._ready:
            last = _tail(self._log, 1)
            raise UserError(
                f"hydra.launcher.preload={self._preload} cannot be imported: {last}\nSee {self._log}"
            )
        self._process.wait()
        for number in list(self._slots):
            self._over.append(self._exit(Ended(number, -signal.SIGKILL)))
        self._ready = False
        self._start_server()

    def _share(self, wanted: LocalLauncherConf) -> int:
        """How many cores a trial owns."""
        if wanted.cpus_per_task is not None:
            return wanted.cpus_per_task
        gpus = wanted.gpus_per_node
        return max(1, self._all_cores * gpus // self._all_gpus) if gpus else 1

    def _kill_overdue(self) -> None:
        for slot in self._slots.values():
            if time.monotonic() > slot.deadline and slot.killed_for is None:
                self._kill(slot, State.TIMED_OUT)

    def _kill(self, slot: _Slot, reason: State) -> None:
        slot.killed_for = reason
        self._tell(Kill(slot.job.number))

    def _exit(self, ended: Ended) -> Exit:
        slot = self._slots.pop(ended.number)
        self._cores += slot.cores
        self._gpus += slot.gpus
        self._mem_gb += slot.mem_gb
        state, error = _what_happened(ended.code, slot)
        return Exit(ended.number, state, error)


def check_machine(wanted: LocalLauncherConf, gpus: int) -> None:
    """Raises UserError if a trial wants more than this machine has, which has `gpus`."""
    cores, memory_gb = len(os.sched_getaffinity(0)), math.floor(psutil.virtual_memory().total / 1e9)
    for name, need, has, unit in (
        ("gpus", wanted.gpus_per_node, gpus, "GPUs"),
        ("cpus_per_task", wanted.cpus_per_task or 1, cores, "CPU cores"),
        ("mem_gb", wanted.mem_gb, memory_gb, "GB of memory"),
    ):
        if need > has:
            raise UserError(
                f"{name}={need}: this machine has {has or 'no'} {unit}. "
                f"Ask for {has} at most, or send trials to a cluster: hydra/launcher=slurm"
            )


def _what_happened(code: int, slot: _Slot) -> tuple[State, str]:
    if slot.killed_for is State.TIMED_OUT:
        return State.TIMED_OUT, f"it ran longer than timeout_min={slot.job.config.hydra.launcher.timeout_min}"
    if slot.killed_for is not None:
        return slot.killed_for, "it was cancelled"
    last = _tail(slot.job.attempt / "log", 20)
    if any(word in last for word in _MEMORY_WORDS):
        return State.OUT_OF_MEMORY, "it ran out of memory"
    if code >= 0:
        return State.FAILED, f"its process ended with exit code {code} and no result"
    name = signal.strsignal(-code) or f"signal {-code}"
    if -code in _CRASHES:
        return State.FAILED, f"its process crashed: {name}"
    return State.LOST, f"its process was killed from outside: {name}"


def _tail(path: Path, lines: int) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
