"""Facts about an attempt: its machine, the versions of its libraries, and settings that the
training computed.

The chief appends them to attempts/<n>/facts.jsonl, because a killed process records nothing at its
end:

    {"process": {"host": "node7", "cpu_model": "...", "gpu_model": "NVIDIA A100-SXM4-40GB"}}
    {"settings": {"batch_size": 256, "steps": 1170}}    of `Trial.record_settings`
    {"process": {"versions": "python 3.11.2, tensorflow 2.19.0"}}
"""

import platform
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.base.files import append_lines, read_lines
from sweeps.base.secrets import mask_value
from sweeps.trial.folder import AttemptFolder, TrialFolder

PROCESS = ("host", "cpu_model", "gpu_model", "versions")
_FILE = "facts.jsonl"
_LIBRARIES = (
    "tensorflow",
    "keras",
    "torch",
    "jax",
    "lightning",
    "transformers",
    "xgboost",
    "lightgbm",
    "numpy",
)


@dataclass(frozen=True)
class Facts:
    """What an attempt recorded. A fact that is not known is absent."""

    process: Mapping[str, str] = field(default_factory=dict)  # by the names in PROCESS
    # settings as the training used them, by name
    settings: Mapping[str, Any] = field(default_factory=dict)


def record(attempt: AttemptFolder, **facts: Mapping[str, Any]) -> None:
    """Append facts of a kind: `process` or `settings`. A failure is printed, because no trial fails
    for its facts."""
    try:
        append_lines(attempt.path / _FILE, [mask_value("", facts)])
    except OSError as error:
        print(f"These facts are not recorded: {facts} ({error})", file=sys.stderr)


@contextmanager
def recording(attempt: AttemptFolder) -> Iterator[None]:
    """Record the machine at the start, and the versions of the libraries that were imported until
    the end."""
    process = {"host": socket.gethostname(), "cpu_model": _read_cpu_model()}
    record(attempt, process={name: value for name, value in process.items() if value})
    try:
        yield
    finally:
        record(attempt, process={"versions": _imported_versions()})


def read(trial: TrialFolder) -> Facts:
    """Return the facts of the trial's newest attempt. Damaged lines are omitted; an unreadable file
    has no facts."""
    recorded: dict[str, dict[str, Any]] = {"process": {}, "settings": {}}
    with suppress(OSError):
        attempt = trial.newest()
        for line in read_lines(attempt.path / _FILE).values if attempt else []:
            for kind in recorded.keys() & (line if isinstance(line, dict) else ()):
                recorded[kind] |= line[kind] if isinstance(line[kind], dict) else {}
    process = recorded["process"]
    return Facts(
        {name: str(process[name]) for name in PROCESS if name in process}, recorded["settings"]
    )


def _read_cpu_model() -> str:
    """Return the model of the CPU; "" where the kernel does not tell."""
    with suppress(OSError), Path("/proc/cpuinfo").open(errors="replace") as lines:
        # one by one, because the kernel makes the text of hundreds of cores slowly
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
            if not name.strip():
                break
    return platform.processor()


def _imported_versions() -> str:
    """Return the versions of Python and of the imported libraries for training: `python 3.11.2,
    keras 3.9.0`."""
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        versions |= {name: version} if isinstance(version, str) else {}
    return ", ".join(f"{name} {version}" for name, version in versions.items())
