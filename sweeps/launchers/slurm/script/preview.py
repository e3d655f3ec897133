"""The preview of requests: the batch scripts that would be sent, and what SLURM answers to them."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from submitit.slurm.slurm import _make_sbatch_string

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SlurmLauncherConf, read
from sweeps.launchers.slurm import shell
from sweeps.launchers.slurm.queue import SlurmError, answer, with_hint
from sweeps.launchers.slurm.script.limits import minutes_in
from sweeps.launchers.slurm.script.request import parameters
from sweeps.launchers.slurm.script.submit import may_pass, sbatch

_TIMEOUT_S = 30
_MOST = 10  # requests that are tested, because sites limit the rate of sbatch
_OWN = re.compile("#SBATCH --(job-name|open-mode|output|wckey)=")  # options that no user chooses
_START = re.compile(
    r"Job \d+ to start at (\S+) using \d+ processors on nodes (\S+) in partition (\S+)"
)


@dataclass(frozen=True)
class _Request:
    title: str
    options: Mapping[str, Any]  # parameters of submitit
    launcher: DictConfig


def _requests(
    study: Path, launchers: Sequence[DictConfig], driver: Mapping[str, Any] | None
) -> Iterator[_Request]:
    """Yield what is asked about: the driver's job, and the first of the trials' requests."""
    if driver and launchers:
        yield _Request("the driver's job", driver, launchers[0])
    for number, launcher in enumerate(launchers[:_MOST], start=1):
        settings = read(launcher, SlurmLauncherConf)
        requested = parameters(study / "0" / "attempts" / "1", settings, settings.slots)
        yield _Request(f"request {number}", requested, launcher)


def preview(
    study: Path, launchers: Sequence[DictConfig], driver: Mapping[str, Any] | None
) -> Iterator[str]:
    """Yield the script for each of the settings and when SLURM would start it; `driver` are those
    of the driver's job.

    Raises UserError after the last one if SLURM would refuse any.
    """
    if shutil.which("sbatch") is None:
        yield "this machine has no sbatch command, so that SLURM was not asked about the requests"
        return
    refusals: list[str] = []
    for request in _requests(study, launchers, driver):
        script = _make_sbatch_string("true", study, **request.options)
        lines = [*_options(script, request.launcher)]
        if request.options is not driver:
            lines += _environment(request.launcher)
        lines += shell.describe(script)
        verdict, is_refusal = _ask(script, request.options["time"])
        if is_refusal:
            refusals.append(f"{request.title}: {verdict}")
        yield f"{request.title}:"
        for line in [*lines, verdict]:
            yield f"    {line}"

    more = len(launchers[_MOST:])
    if more:
        yield f"and {more} more requests, about which SLURM was not asked"
    if refusals:
        raise UserError(
            f"SLURM would refuse {refusals[0].rstrip('.')}.\nCorrect the setting that it names, and"
            " preview again"
        )


def _options(script: str, launcher: DictConfig) -> Iterator[str]:
    """Yield the options of sbatch that the user chose; references to the environment as typed."""
    typed: Any = OmegaConf.to_container(launcher, resolve=False)
    references = dict(_from_environment(typed, OmegaConf.to_container(launcher, resolve=True)))
    for line in script.splitlines():
        if line.startswith("#SBATCH ") and not _OWN.match(line):
            option, equals, value = line.partition("=")
            note = "  (all memory of the node)" if (option, value) == ("#SBATCH --mem", "0") else ""
            yield f"{option}{equals}{references.get(value, value)}{note}"


def _environment(launcher: DictConfig) -> Iterator[str]:
    """Yield the modules, the lines of `setup` and the container of a trial; references to the
    environment as typed."""
    typed: Any = OmegaConf.to_container(launcher, resolve=False)
    yield from (f"module load {name}" for name in typed.get("modules") or ())
    yield from typed.get("setup") or ()
    yield from (
        f"{name}: {typed[name]}" for name in ("container", "python", "stage") if typed.get(name)
    )


def _from_environment(typed: Any, resolved: Any) -> Iterator[tuple[str, str]]:
    """Yield the text of each value from the environment, which may be a secret, and the reference
    to it."""
    if isinstance(typed, dict):
        for key, value in typed.items():
            yield from _from_environment(value, resolved[key])
    elif isinstance(typed, str) and "oc.env" in typed and str(resolved):
        yield shlex.quote(str(resolved)), typed


def _ask(script: str, timeout_min: int) -> tuple[str, bool]:
    """Return SLURM's answer about a script, and whether it is a refusal."""
    try:
        done = subprocess.run(
            sbatch("--test-only", script),
            input=script,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_S,
            env=shell.for_queries(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"SLURM cannot be asked: {error}", False
    text = done.stderr.replace("sbatch: error: ", "").replace("sbatch: ", "")
    message = "; ".join(text.strip().splitlines())
    start = _START.search(message)
    if start:
        return _describe_start(start, timeout_min)
    if done.returncode and may_pass(message):
        return with_hint(f"SLURM cannot be asked now: {message or 'sbatch did not answer'}"), False
    return message or "SLURM accepts it", bool(done.returncode)


def _describe_start(start: re.Match[str], timeout_min: int) -> tuple[str, bool]:
    """Return when and where SLURM would start a job, and whether its time limit is a refusal."""
    time, nodes, partition = start.groups()
    limit = _limit_of(partition)
    # because without EnforcePartLimits the job would wait for ever
    if timeout_min > minutes_in(limit):
        problem = f"PartitionTimeLimit: {timeout_min} min requested, and {partition} allows {limit}"
        return problem, True
    at = time.replace("T", " ")
    return f"SLURM would start it at {at} on {nodes}, partition {partition}", False


def _limit_of(partition: str) -> str:
    """Return a partition's time limit as sinfo prints it, such as 1-00:00:00; "" if sinfo does not
    answer."""
    with suppress(SlurmError):
        text = answer(["sinfo", "--noheader", "--format=%l", f"--partition={partition}"])
        return text.strip().rpartition("\n")[2]  # because a first line may name the cluster
    return ""
