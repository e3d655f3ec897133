"""NVIDIA's Multi-Process Service: processes that share a GPU compute at the same time instead of in
turns.

https://docs.nvidia.com/deploy/mps/
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pynvml

from sweeps.trial.machine.gpus import uuid

_CONTROL = "nvidia-cuda-mps-control"
_TIMEOUT_S = 20


@contextmanager
def serving(gpus: Iterable[str]) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """Serve each of this job's shared GPUs until the end; yield the variables of its trials, by the
    GPU's name.

    If a GPU cannot be served, a line is printed, and its trials compute in turns.
    """
    with ExitStack() as stack:
        served: dict[str, Mapping[str, str]] = {}
        for gpu in gpus if shutil.which(_CONTROL) else ():
            try:
                served[gpu] = stack.enter_context(_daemon(gpu))
            except (OSError, pynvml.NVMLError, subprocess.SubprocessError) as error:
                print(
                    f"MPS does not serve GPU {gpu}, so its trials compute in turns: {error}",
                    flush=True,
                )
        yield served


@contextmanager
def _daemon(gpu: str) -> Iterator[Mapping[str, str]]:
    """Run a control daemon for one GPU, and yield the variables of its trials.

    Each GPU has its own daemon, because a MIG slice needs one. The GPU has its UUID, because a
    daemon and its clients count GPUs differently. Raises OSError, NVMLError or SubprocessError if
    the daemon does not start.
    """
    # of mode 0700
    with tempfile.TemporaryDirectory(prefix="mps", ignore_cleanup_errors=True) as folder:
        pipe = Path(folder, "pipe")
        log = Path(folder, "log")
        pipe.mkdir()
        log.mkdir()
        names = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}
        variables = {"CUDA_VISIBLE_DEVICES": uuid(gpu), **names}
        _control(variables, "-d")
        try:
            yield variables
        finally:
            # because SLURM ends the daemon with the job anyway
            with suppress(OSError, subprocess.SubprocessError):
                _control(variables, request="quit\n")


def _control(variables: Mapping[str, str], *options: str, request: str = "") -> None:
    """Run the control command. Raises OSError or SubprocessError if it fails."""
    subprocess.run(
        [_CONTROL, *options],
        input=request,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # not a pipe, because the daemon would keep it open
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
