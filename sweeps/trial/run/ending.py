"""The end of a trial's process: what Python does when a program ends, before the process leaves the
rest undone."""

import atexit
import ctypes
import gc
import io
import logging
import multiprocessing.util
import os
import sys
import threading
import weakref
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any, NoReturn

_LIMIT_S = 60.0
_FILE: Any = io.IOBase.__mro__[1]  # not io.IOBase, whose check of a class takes ten times longer
# what is used below has no public name
_stdlib: Any = threading, weakref.finalize, multiprocessing.util, atexit
_threading, _finalize, _processes, _handlers = _stdlib


def drop_inherited() -> None:
    """Drop what is to be done at the end of the process that this process is a fork of."""
    _handlers._clear()
    atexit.register(logging.shutdown)
    for finalizer in list(_finalize._registry):
        finalizer.atexit = False
    _finalize._registered_with_atexit = False  # so that the next finalizer registers itself
    _processes._finalizer_registry.clear()
    atexit.register(_processes._exit_function)


def end_process(exit_code: int = 0) -> NoReturn:
    """End this process as a program ends: join threads, run the handlers of atexit, and write what
    is buffered.

    Whatever takes longer than the limit is left undone, and named in the log. The modules stay as
    they are, except `__main__`, because taking heavy libraries apart takes seconds.
    """
    threading.Thread(target=_end_late, args=[exit_code], daemon=True).start()
    for step in (
        _threading._shutdown,
        _handlers._run_exitfuncs,
        _drop_globals,
        _flush_files,
        _flush_streams,
    ):
        try:
            step()
        except BaseException:  # which must not keep the process from ending
            with suppress(BaseException):
                sys.excepthook(*sys.exc_info())
    os._exit(exit_code)


def _end_late(exit_code: int) -> None:
    """End the process after the limit, and print what was still running."""
    own = {threading.current_thread(), threading.main_thread()}
    threading.Event().wait(_LIMIT_S)
    running = [
        thread.name for thread in threading.enumerate() if not thread.daemon and thread not in own
    ]
    unfinished = f"threads ({', '.join(running)})" if running else "exit handlers"
    problem = (
        f"{_LIMIT_S:.0f} s after its trial, this process still runs {unfinished}; it is ended\n"
    )
    with suppress(OSError):
        os.write(2, problem.encode(errors="backslashreplace"))
    os._exit(exit_code)


def _drop_globals() -> None:
    """Delete the global objects of the program, because objects such as event files are written by
    their deletion.

    Functions, classes and modules stay, because the deletion may use them.
    """
    names = vars(sys.modules["__main__"])
    for name, value in [*names.items()]:
        if not (name.startswith("__") or isinstance(value, FunctionType | type | ModuleType)):
            del names[name]
    gc.collect()


def _flush_files() -> None:
    """Write what the open files of this process have buffered. Files from before a fork are frozen,
    and left out."""
    files = [content for content in gc.get_objects() if isinstance(content, _FILE)]
    # which write to the buffers of other files
    files.sort(key=lambda file: not isinstance(file, io.TextIOBase))
    for file in files:
        # because a reader may have closed a pipe, as when Python deletes a file
        with suppress(Exception):
            if not file.closed and file.writable():
                file.flush()


def _flush_streams() -> None:
    # from a full disk, or from a stdout that the task function replaced
    with suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # the streams of native code
