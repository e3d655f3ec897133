"""Command lines without the time that their imports take: each is a fork of a process that has made these already, and
has a session, a folder, an environment and an end of its own, as `python ARGUMENTS` has.

    python -m tests.warm SOCKET     (a file descriptor, which listens; after its last connection this process ends)
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

_IMPORTED = ("numpy", "optuna", "rich.live", "rich.table", "typer", "yaml", "sweeps.app", "sweeps.study.run.driver")
_IMPORTED += ("mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store")
_IMPORTED += ("sklearn.ensemble",)  # the last second of a search
_start, _servers = Lock(), list[socket.socket]()
_started = list["subprocess.Popen[bytes]"]()
_codes = list[int]()


@atexit.register  # before any other, and so the last that is called
def _leave_at_once() -> None:
    """End a fork without taking its modules apart, which takes longer than many a command."""
    if _codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_codes[0])


@contextmanager
def _code_kept() -> Iterator[None]:
    """Note the exit code that Python gives to what happens within; of a KeyboardInterrupt it dies itself."""
    try:
        yield
        _codes.append(0)
    except SystemExit as exit_:
        _codes.append(exit_.code if isinstance(exit_.code, int) else bool(exit_.code))
        raise
    except Exception:
        _codes.append(1)
        raise


class Running:
    """A command line that was started, with what `subprocess.Popen` has."""

    def __init__(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self._said = os.memfd_create("out"), os.memfd_create("err")
        self._told, answers = os.pipe()
        request = json.dumps([list(arguments), str(folder), dict(environment)]).encode()
        socket.send_fds(_server(), [request], [*self._said, answers])
        os.close(answers)
        self.pid = self._number()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = self._number()
            os.close(self._told)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._told], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        out, err = (_all_of(file) for file in self._said)
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        digits = b""
        while not digits.endswith(b"\n"):
            digit = os.read(self._told, 1)
            assert digit, "the process that others are forks of is gone"
            digits += digit
        return int(digits)


def _all_of(file: int) -> str:
    with os.fdopen(file) as opened:
        opened.seek(0)
        return opened.read()


def _server() -> socket.socket:
    """Return a socket for requests: arguments, folder, environment, and files for the output and the exit code.

    The processes that share the tests share one server, which the first of them starts.
    """
    with _start:
        if not _servers:
            address = f"\0tests.warm {os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
            ours, listener = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
            with listener, suppress(OSError):  # because another process has the address
                listener.bind(address)
                listener.listen()
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.warm", str(listener.fileno())],
                    cwd=Path(__file__).parents[1],
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy must not start threads before the forks
                    pass_fds=[listener.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
                _started.append(process)
            deadline = time.monotonic() + 60
            while ours.connect_ex(address):  # until the other process listens
                assert time.monotonic() < deadline, "no warm server listens"
                time.sleep(0.01)
            _servers.append(ours)
        return _servers[0]


def main() -> None:
    for module in _IMPORTED:
        importlib.import_module(module)
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(Path(__file__).parent / "apps"), version_base="1.3"):
        compose(overrides=["+key=[1,2]", "hydra/sweeper=grid"])  # which imports the plugins, and makes parsers' tables
    # Without the libraries' own, because a trial gets its driver's filters, and would import the libraries for them.
    warnings.filters[:] = [entry for entry in warnings.filters if entry[2].__module__ == "builtins"]  # type: ignore[index]
    gc.freeze()
    sockets = [socket.socket(fileno=int(sys.argv[1]))]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the forks
    sockets.append(sockets[0].accept()[0])
    while len(sockets) > 1:
        for ready in select.select(sockets, [], [])[0]:
            if ready is sockets[0]:
                sockets.append(ready.accept()[0])
                continue
            request, files, *_ = socket.recv_fds(ready, 1 << 18, 3)
            if not request:
                sockets.remove(ready)
            elif os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in sockets:
                    each.close()
                _fork_and_tell(*files)
                with _code_kept():
                    _run(*json.loads(request))
                return
            for file in files:
                os.close(file)
    os._exit(0)  # at once, because nobody else must connect


def _fork_and_tell(out: int, err: int, answers: int) -> None:
    """Return in a new process; this one tells its id, waits for it, and tells how it ended."""
    if process := os.fork():
        os.close(out)
        os.close(err)
        os.write(answers, b"%d\n" % process)
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
        os._exit(0)
    for file, place in ((out, 1), (err, 2)):
        os.dup2(file, place)
        os.close(file)
    os.close(answers)


def _run(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Run `python ARGUMENTS` in this folder and environment."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.orig_argv = [sys.executable, *arguments]
    is_module = arguments[0] == "-m"
    first = folder if is_module else str(Path(arguments[0]).resolve().parent)
    sys.path[:1] = [first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = arguments[1:] if is_module else arguments
    if is_module:
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(Path(arguments[0]).absolute()), run_name="__main__")


if __name__ == "__main__":
    main()
