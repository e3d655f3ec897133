"""The environment of a job's processes: modules, Python or a container, and their checks on the
login node."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SlurmLauncherConf

_ROOT = Path(__file__).parents[3]  # of the package `sweeps`
_TIMEOUT_S = 20
# A batch script is no login shell. Without the rest of /etc/profile's PATH in front, because some
# profiles reset it.
_PROFILE = "p=$PATH; . /etc/profile; PATH=$p:$PATH"
# because Lmod wraps its first sentence, and advice follows
_FIRST_PARAGRAPH = "sed '/^$/q' | tr '\\n' ' '"
_CHECK_MODULES = f"""
command -v module >/dev/null || {{ {_PROFILE}; }} >/dev/null 2>&1
command -v module >/dev/null || exit 0
module purge >/dev/null 2>&1
for name; do
  if module is-avail "$name" >/dev/null 2>&1; then
    module load "$name" >/dev/null 2>&1 || exit 0
  else
    printf '%s\\n' "$name"
    module load "$name" 2>&1 | {_FIRST_PARAGRAPH}
    exit 3
  fi
done
"""
_APPTAINER = 'exec "$(command -v apptainer || echo singularity)" "$@"'


def is_own_python(settings: SlurmLauncherConf) -> bool:
    """Return whether the driver's Python runs the jobs."""
    return not (settings.python or settings.container)


def module_lines(settings: SlurmLauncherConf, private: str) -> list[str]:
    """Return the shell lines that load the modules; a failing line ends with the module's own
    message.

    `private` is the job's private folder, as a shell's word.
    """
    if not settings.modules:
        return []
    log = f"{private}/modules"
    failed = f"{{ cat {log} | {_FIRST_PARAGRAPH}; echo; exit 1; }}"
    return [
        f"command -v module >/dev/null || {{ set +e; {_PROFILE}; set -e; }}",
        'sweepyard_at="module purge"',
        "module purge",
        (
            f'load() {{ sweepyard_at="module load $1"; module load "$1" 2>{log} || {failed}; cat'
            f" {log}; }}"
        ),
        *(f"load {shlex.quote(name)}" for name in settings.modules),
        "sweepyard_at=",
    ]


def path_lines(settings: SlurmLauncherConf) -> list[str]:
    """Return the shell lines by which the job's Python finds sweepyard, unless that Python must
    have its own."""
    if not is_own_python(settings) and str(_ROOT) not in app_path():
        return []  # because the packages beside sweepyard are those of the driver's Python
    return [f"export PYTHONPATH={shlex.quote(str(_ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}"]


def container_lines(settings: SlurmLauncherConf) -> list[str]:
    """Return the shell lines that prepare a container, which has no scontrol and no disk of the
    node."""
    if not settings.container:
        return []
    return [
        'export SWEEPYARD_NODES="$(scontrol show hostnames)"',
        'for disk in "$SLURM_TMPDIR" "$TMPDIR"; do if [ -d "$disk" ]; then',
        (
            '  export APPTAINER_BIND="$disk${APPTAINER_BIND:+,$APPTAINER_BIND}"'
            ' SINGULARITY_BIND="$disk"'
        ),
        "fi; done",
    ]


def app_path() -> list[str]:
    """Return the entries of sys.path, and the folder of sweepyard, that do not belong to the
    driver's Python."""
    library = sysconfig.get_path("stdlib")
    entries = [str(Path(entry).absolute()) for entry in [*sys.path, str(_ROOT)]]
    return [
        entry
        for entry in dict.fromkeys(entries)
        if Path(entry).is_dir()
        and not entry.startswith(library)
        and not {"site-packages", "dist-packages"} & {*Path(entry).parts}
    ]


def python_command(
    settings: SlurmLauncherConf, folder: Path, has_gpus: bool, ignore_signals: str
) -> list[str]:
    """Return the command that starts Python for a job with its files in `folder`, in its container
    if there is any."""
    python = settings.python or ("python" if settings.container else sys.executable)
    if not settings.container or not _is_image(settings.container):
        return ["bash", "-c", f'{ignore_signals}; exec "$0" "$@"', python]
    binds = ",".join([*_folders(settings, folder), *settings.container_binds])
    options = [*(["--nv"] * has_gpus), "--pwd", str(Path.cwd()), "--bind", binds]
    image = str(Path(settings.container).expanduser().absolute())
    start = ["bash", "-c", f"{ignore_signals}; {_APPTAINER}", "apptainer", "exec"]
    return [*start, *options, image, python]


def pyxis_options(settings: SlurmLauncherConf, folder: Path) -> list[str]:
    """Return the options of srun for a container of Pyxis: https://github.com/NVIDIA/pyxis."""
    if not (container := settings.container) or _is_image(container):
        return []
    mounts = [f"{path}:{path}" for path in _folders(settings, folder)] + settings.container_binds
    image = container
    if container.endswith(".sqsh"):
        image = str(Path(container).expanduser().absolute())
    return [
        f"--container-image={image}",
        f"--container-mounts={','.join(mounts)}",
        f"--container-workdir={Path.cwd()}",
    ]


def _folders(settings: SlurmLauncherConf, folder: Path) -> list[str]:
    """Return the folders that a container needs: those of the study, of the code, of the data, and
    the working one."""
    parents = folder.absolute().parents
    study = next((parent for parent in parents if (parent / "study.json").exists()), parents[2])
    named = [Path(path).expanduser().absolute() for path in (*app_path(), *(settings.stage or []))]
    return list(dict.fromkeys(map(str, (study, study.resolve(), Path.cwd(), *named))))


def _is_image(container: str) -> bool:
    """Return whether Apptainer runs the container, because it is a file or a folder, and none of
    Pyxis."""
    if "://" in container or container.endswith(".sqsh"):
        return False
    return (
        container.endswith((".sif", ".simg"))
        or container.startswith(("/", ".", "~"))
        or Path(container).exists()
    )


def check(settings: SlurmLauncherConf) -> None:
    """Raise UserError if the modules, the Python, the container or the data to stage cannot be
    found."""
    # because of a swept file
    if settings.clusters and settings.clusters != os.environ.get("SLURM_CLUSTERS"):
        problem = (
            f"hydra.launcher.clusters={settings.clusters}: all trials of a study run on the same"
            " cluster"
        )
        raise UserError(f"{problem}.\nType it for all: hydra.launcher.clusters={settings.clusters}")
    for problem in (*_path_problems(settings), *_container_problems(settings)):
        raise UserError(problem)
    if settings.modules and (message := _missing_module(tuple(settings.modules))):
        name, own = (*message.split("\n", 1), "")[:2]
        problem = f"hydra.launcher.modules: '{name}' does not exist on this machine: {own.strip()}"
        line = shlex.quote(f'hydra.launcher.setup=["module load {name}"]')
        raise UserError(
            f"{problem}\nType module avail to list all. If only the nodes have it, type {line}"
        )


def _path_problems(settings: SlurmLauncherConf) -> Iterator[str]:
    python = settings.python
    if python and not settings.container and "/" in python and shutil.which(python) is None:
        advice = "Type the path of a Python, or a name on the jobs' PATH"
        yield f"hydra.launcher.python={python}: no such program.\n{advice}"
    for path in settings.stage or []:
        if not Path(path).expanduser().exists():
            yield (
                f"hydra.launcher.stage: {path} does not exist (working directory:"
                f" {Path.cwd()}).\nCorrect the path"
            )


def _container_problems(settings: SlurmLauncherConf) -> Iterator[str]:
    container = settings.container
    if not container:
        return
    typed = f"hydra.launcher.container={container}"
    yield from _mount_problems(settings, typed)
    if _is_image(container) or container.endswith(".sqsh"):
        if not Path(container).expanduser().exists():
            build = f"apptainer build {shlex.quote(container)} docker://python:3.11"
            yield (
                f"{typed}: no such file (working directory: {Path.cwd()}).\nCorrect the path, or"
                f" build it: {build}"
            )
    elif _has_pyxis() is False:
        name = container if "://" in container else f"docker://{container}"
        build = f"apptainer build image.sif {shlex.quote(name)}"
        yield (
            f"{typed}: srun here has no --container-image (Pyxis is not installed).\nType"
            f" hydra.launcher.container=image.sif, made by: {build}"
        )
    if not _is_image(container) and settings.stage:
        yield (
            "hydra.launcher.stage: a container of Pyxis has no disk of the node.\nRemove stage, or"
            " use an image.sif"
        )


def _mount_problems(settings: SlurmLauncherConf, typed: str) -> Iterator[str]:
    for path in (str(Path.cwd()), *app_path(), *(settings.stage or [])):
        if {*",:"} & {*path}:
            problem = f"a container cannot mount {path}, because of its comma or colon"
            yield f"{typed}: {problem}.\nRename the folder"


@cache
def _has_pyxis() -> bool | None:
    """Return whether srun has the options of Pyxis; None if srun does not answer."""
    try:
        text = subprocess.run(
            ["srun", "--help"], check=True, capture_output=True, timeout=_TIMEOUT_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return b"--container-image" in text


@cache
def _missing_module(names: tuple[str, ...]) -> str:
    """Return the first module that cannot be found here, and the message of `module load`; empty if
    nobody knows."""
    try:
        command = ["bash", "-c", _CHECK_MODULES, "bash", *names]
        done = subprocess.run(command, check=False, capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):  # because the job will tell
        return ""
    message = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode(errors="replace"))
    return message.strip() if done.returncode == 3 else ""
