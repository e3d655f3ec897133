"""Standard error without TensorFlow's start-up remarks, and Keras on TensorFlow. Import this module
before tensorflow and keras.

The remarks are filtered because TF_CPP_MIN_LOG_LEVEL has no effect before absl::InitializeLog().
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

# because a keras.json in the home folder may name another backend
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

_START_UP_LINES = (
    "WARNING: All log messages before absl::InitializeLog|I0000 |To enable the following"
    " instructions: |.*(Unable to register cu[A-Za-z]+ factory|TF-TRT Warning: Could not find"
    " TensorRT)"
)
_NO_GPU_LINES = "[EW]0000 .*failed call to cuInit"


@contextmanager
def drop_lines(pattern: str) -> Iterator[None]:
    """Drop lines of standard error, of C libraries too, that begin with `pattern` (grep -E).

    Another process filters the lines, because lines written just before a crash must not be lost.
    """
    read_end, write_end = os.pipe()
    original_stderr = os.dup(2)
    command = ["grep", "--text", "--line-buffered", "-vE", f"^({pattern})"]
    try:
        grep = subprocess.Popen(
            command, stdin=read_end, stdout=original_stderr, start_new_session=True
        )
    except OSError:  # no grep, or no room for a process: nothing is dropped
        grep = None
    else:
        os.dup2(write_end, 2)
    os.close(read_end)
    os.close(write_end)
    try:
        yield
    finally:
        os.dup2(original_stderr, 2)
        os.close(original_stderr)
        if grep:
            grep.wait()


def drop_no_gpu_lines(gpus: int) -> AbstractContextManager[None]:
    """Drop the errors about a missing GPU driver if the trial uses no GPU."""
    return nullcontext() if gpus else drop_lines(_NO_GPU_LINES)


if "tensorflow" not in sys.modules:
    with drop_lines(_START_UP_LINES):
        import keras  # noqa: F401
        import tensorflow  # noqa: F401
