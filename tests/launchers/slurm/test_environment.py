"""Modules, containers and Pythons of jobs: their checks on the login node, and the commands that are submitted."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm import environment
from sweeps.launchers.slurm.environment import check, module_lines
from sweeps.launchers.slurm.script.request import parameters
from sweeps.launchers.slurm.script.submit import submit, write_call

HOSTILE = 'x\'; touch "$HOME/broken"; $(touch broken) `touch broken` #'
UNKNOWN = """Lmod has detected the following error: The following module(s) are unknown:
"nosuch"

Please check the spelling or version number.
"""
MODULE = """() {
  case $1-$2 in
    is-avail-nosuch) return 1;;
    load-nosuch) cat "$HOME/unknown" >&2; return 1;;
    load-*) LOADED="$LOADED$2,"; export LOADED;;
  esac
}"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a module command that has every module but `nosuch`, and a working folder with an image."""
    monkeypatch.setenv("BASH_FUNC_module%%", MODULE)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("unknown").write_text(UNKNOWN)
    Path("an image.sif").touch()
    Path("data").mkdir()
    environment._has_pyxis.cache_clear()
    environment._missing_module.cache_clear()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"modules": ["gcc", "nosuch"]}, ["'nosuch' does not exist", 'are unknown: "nosuch"\n', "module avail"]),
        ({"container": "none.sif"}, ["container=none.sif: no such file", "apptainer build none.sif docker://"]),
        ({"container": "/none"}, ["container=/none: no such file"]),
        ({"container": "none.sqsh"}, ["container=none.sqsh: no such file"]),
        ({"container": "docker://python:3.11"}, ["Pyxis", "apptainer build image.sif docker://python:3.11"]),
        ({"container": "python:3.11"}, ["Pyxis", "apptainer build image.sif docker://python:3.11"]),
        ({"container": "an image.sif", "stage": ["data", "a,b"]}, ["a,b", "does not exist"]),
        ({"stage": ["none"]}, ["stage: none does not exist", "Correct the path"]),
        ({"python": "/none/python"}, ["python=/none/python: no such program", "Type the path"]),
        ({"clusters": "other"}, ["clusters=other: all trials", "hydra.launcher.clusters=other"]),
    ],
)
def test_mistakes_are_answered_in_two_lines(
    scripted_slurm: ScriptedSlurm, settings: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UserError) as refused:
        check(SlurmLauncherConf(**settings))
    assert len(str(refused.value).splitlines()) == 2
    assert all(word in str(refused.value) for word in words), refused.value


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({"container_binds": ["/a"]}, "container_binds: it needs a container.\nAdd"),
        ({"clusters": "a,b"}, "clusters=a,b: a study has one cluster.\nType"),
        ({"account": "REQUIRED"}, "account: this site charges each job to one.\nAdd hydra.launcher.account=YOURS"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        SlurmLauncherConf(**settings)


def test_right_environment_is_accepted(scripted_slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    check(SlurmLauncherConf(modules=["gcc", HOSTILE], container="an image.sif", stage=["data"], python="any"))
    scripted_slurm.say("srun", "echo '      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH'")
    check(SlurmLauncherConf(container="nvcr.io#nvidia/pytorch:24.10"))
    monkeypatch.setenv("BASH_FUNC_module%%", "() { sleep 60; }")
    monkeypatch.setattr(environment, "_TIMEOUT_S", 0.2)
    check(SlurmLauncherConf(modules=["slow"]))  # because the job will tell
    assert not Path("broken").exists()


def run(lines: list[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["bash", "-c", "\n".join(["set -e", *lines])], capture_output=True, text=True)


def test_modules_are_loaded_in_order_and_the_message_of_a_missing_one_is_the_last_line(tmp_path: Path) -> None:
    done = run([*module_lines(SlurmLauncherConf(modules=["gcc", HOSTILE]), str(tmp_path)), 'echo "$LOADED"'])
    assert (done.stdout, done.returncode) == (f"gcc,{HOSTILE},\n", 0)
    done = run([*module_lines(SlurmLauncherConf(modules=["nosuch"]), str(tmp_path)), "echo more"])
    assert done.returncode == 1
    message = 'Lmod has detected the following error: The following module(s) are unknown: "nosuch"'
    assert done.stdout.splitlines()[-1].strip() == message
    assert not Path("broken").exists()


@pytest.fixture
def submitted(scripted_slurm: ScriptedSlurm, tmp_path: Path) -> Callable[..., str]:
    """Return a function that submits a job with settings, and returns the script's last line, as bash reads it."""
    (tmp_path / "study" / "study.json").parent.mkdir()
    (tmp_path / "study" / "study.json").touch()
    folder = tmp_path / "study" / "0" / "attempts" / "1"
    folder.mkdir(parents=True)

    def submit_one(**settings: Any) -> str:
        write_call(folder, SlurmLauncherConf(**settings), print)
        submit(folder, parameters(folder, SlurmLauncherConf(**settings)))
        command = (scripted_slurm.folder / "script").read_text().partition("SUBMITIT_EXECUTOR=slurm\n")[2]
        return run(["srun() { printf '%s\\n' \"$@\"; }", command]).stdout

    return submit_one


def test_container_of_apptainer_has_the_study_the_code_and_the_folders_of_the_user(
    submitted: Callable[..., str], tmp_path: Path
) -> None:
    words = submitted(
        container="an image.sif", container_binds=["/a b:/c"], stage=["data"], gpus_per_node=1, python=HOSTILE
    ).splitlines()
    assert words[(start := words.index("apptainer")) : start + 3] == ["apptainer", "exec", "--nv"]
    assert words[words.index("--pwd") + 1] == str(tmp_path)
    mounted = words[words.index("--bind") + 1].split(",")
    assert {str(tmp_path / "study"), str(tmp_path), str(Path(environment.__file__).parents[3])} <= {*mounted}
    assert mounted[-2:] == [str(tmp_path / "data"), "/a b:/c"]
    image = words.index(str(tmp_path / "an image.sif"))
    assert words[image + 1 : image + 3] == [HOSTILE, "-u"]
    assert "--nv" not in submitted(container="an image.sif")
    assert not Path("broken").exists()


def test_container_of_pyxis_is_an_option_of_srun(submitted: Callable[..., str], tmp_path: Path) -> None:
    words = submitted(container="nvcr.io#nvidia/pytorch:24.10", container_binds=["/a:/c"]).splitlines()
    assert words[: words.index("bash")][-3] == "--container-image=nvcr.io#nvidia/pytorch:24.10"
    assert words[: words.index("bash")][-1] == f"--container-workdir={tmp_path}"
    mounts = words[: words.index("bash")][-2]
    assert mounts.startswith(f"--container-mounts={tmp_path / 'study'}:{tmp_path / 'study'},")
    assert mounts.endswith(",/a:/c")
    assert words[words.index("-u") - 1] == "python"
    assert f"--container-image={tmp_path / 'image.sqsh'}" in submitted(container="image.sqsh").splitlines()


def test_python_of_another_version_is_named(submitted: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", (3, 9, 1))
    words = submitted(python="python3").partition("-c\nimport sys\n")[2].rpartition("\n/")[0]
    done = subprocess.run([sys.executable, "-c", f"import sys\n{words}"], capture_output=True, text=True)
    assert done.stderr.startswith("the driver has Python 3.9, this is 3.")
