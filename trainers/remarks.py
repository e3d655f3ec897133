"""Standard error without what TensorFlow remarks while it starts. Import this before tensorflow.

It has no setting for these lines: TF_CPP_MIN_LOG_LEVEL comes too late for what is said before absl::InitializeLog().
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

_STARTING = (
    "WARNING: All log messages before absl::InitializeLog|I0000 |To enable the following instructions: |"
    ".*(Unable to register cu[A-Za-z]+ factory|TF-TRT Warning: Could not find TensorRT)"
)
_NO_GPU = "[EW]0000 .*failed call to cuInit"


@contextmanager
def left_out(said: str) -> Iterator[None]:
    """Drop the lines on standard error, of C libraries too, that begin so (a pattern of grep -E). Another process reads
    them, so that what is said just before a crash is not lost.
    """
    theirs, ours = os.pipe()
    kept = os.dup(2)
    command = ["grep", "--text", "--line-buffered", "-vE", f"^({said})"]
    try:
        reader = subprocess.Popen(command, stdin=theirs, stdout=kept, start_new_session=True)
    except OSError:  # there is no grep, or no room for a process: all is said
        reader = None
    else:
        os.dup2(ours, 2)
    os.close(theirs)
    os.close(ours)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        if reader:
            reader.wait()


def without_gpus(gpus: int) -> AbstractContextManager[None]:
    """Where devices are looked for: that there is no driver is no news to a trial that is to have no GPU."""
    return nullcontext() if gpus else left_out(_NO_GPU)


if "tensorflow" not in sys.modules:
    with left_out(_STARTING):
        import keras  # noqa: F401
        import tensorflow  # noqa: F401
