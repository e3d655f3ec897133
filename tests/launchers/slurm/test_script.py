"""The lines of the batch script before srun, run by a shell: which line failed, and the variables that srun gets."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.follow.ends import failed_line
from sweeps.launchers.slurm.script.script import SETUP, lines_before_srun, setup_text

OF_THE_JOB = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2", "SLURM_MEM_PER_NODE": "5"}
SOURCED = {"rc": "true\n[ -f nope ] && . nope\n", "typo": "true\n\nmodul load x\n", "ends": "true\nexit 4\n"}


def run(folder: Path, setup: list[str], **settings: Any) -> tuple[int, dict[str, str], str]:
    """Return the status of the script, the environment of srun, and the message of the driver."""
    private = folder / "a private folder"
    private.mkdir()
    for name, text in SOURCED.items():
        (folder / name).write_text(text)
    (private / SETUP).write_text(setup_text(setup))
    conf = SlurmLauncherConf(setup=setup, **settings)
    lines = lines_before_srun(conf, f"'{private}'", {"mem": "1MB"})
    environment = {"PATH": "/usr/bin:/bin", **OF_THE_JOB}
    script = "\n".join([*lines, "env > srun"])
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    srun = (folder / "srun").read_text() if (folder / "srun").exists() else ""
    variables = dict(line.split("=", 1) for line in srun.splitlines() if "=" in line)
    launcher = DictConfig({"setup": setup})
    return done.returncode, variables, "" if (private / "set_up").exists() else failed_line(private, launcher)


@pytest.mark.parametrize(
    ("setup", "status", "words"),
    [
        (["source ./rc"], 1, "line 1 of hydra.launcher.setup, with status 1: source ./rc"),
        (["true", "source ./typo"], 127, "line 2 of hydra.launcher.setup, with status 127, at ./typo:3: source ./typo"),
        (["true", ". ./ends"], 4, "line 2 of hydra.launcher.setup, with status 4: . ./ends"),
        (["true\ntrue", "[ -d nope ] || exit 3"], 3, "line 2 of hydra.launcher.setup, with status 3: [ -d nope ]"),
        (["f() { false; }", "f"], 1, "line 2 of hydra.launcher.setup, with status 1: f"),
        (["if true; then", "false", "fi"], 1, "line 2 of hydra.launcher.setup, with status 1: false"),
        (["for i in 1; do\nls nope\ndone"], 2, "line 1 of hydra.launcher.setup, with status 2: for i"),
        (["set -u", "echo $nope"], 1, "line 2 of hydra.launcher.setup, with status 1: echo $nope"),
        (["x=$(false)"], 1, "line 1 of hydra.launcher.setup, with status 1: x=$(false)"),
        (["if true; then"], 2, "a setup line failed (status 2)"),
    ],
)
def test_failed_setup_line_is_named(tmp_path: Path, setup: list[str], status: int, words: str) -> None:
    code, srun, message = run(tmp_path, setup)
    assert (code, srun) == (status, {})
    assert message.startswith("a setup line failed") and words in message


@pytest.mark.parametrize("setup", [[], ["set +e", "false"], ["false || true"], ["trap 'true' EXIT"], ["trap - DEBUG"]])
def test_other_setup_lines_pass(tmp_path: Path, setup: list[str]) -> None:
    code, srun, message = run(tmp_path, setup)
    assert (code, message) == (0, "")
    assert OF_THE_JOB.items() <= srun.items()


def test_failed_module_is_named(tmp_path: Path) -> None:
    modules = tmp_path / "bin"
    modules.mkdir()
    (modules / "module").write_text('#!/bin/sh\n[ "$2" != nope ]\n')
    (modules / "module").chmod(0o755)
    lines = lines_before_srun(SlurmLauncherConf(modules=["gcc", "nope"]), str(tmp_path), {"mem": 1})
    environment = {"PATH": f"{modules}:/usr/bin:/bin", **OF_THE_JOB}
    subprocess.run(["bash", "-c", "\n".join(lines)], env=environment, capture_output=True)
    assert failed_line(tmp_path, None) == "module load nope failed (status 1)"


@pytest.mark.parametrize(
    ("line", "others"),
    [
        ("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK", {}),
        ("export SLURM_NTASKS=9 SLURM_MEM_PER_CPU=3 SLURM_MEM_PER_GPU=3", {}),
        ("export SLURM_EXPORT_ENV=NONE SLURM_CPU_BIND=map_cpu:9 SLURM_HINT=x", {}),
        ("export SLURM_MPI_TYPE=x SLURM_DISTRIBUTION=x", {}),
        ("unset SLURM_NTASKS", {}),
        ("export SLURM_TMPDIR=/x SLURM_CONF=/y MINE=z", {"SLURM_TMPDIR": "/x", "SLURM_CONF": "/y", "MINE": "z"}),
    ],
)
def test_srun_has_the_variables_of_the_job(tmp_path: Path, line: str, others: dict[str, str]) -> None:
    _, srun, _ = run(tmp_path, [line])
    of_slurm = {name: value for name, value in srun.items() if name.startswith(("SLURM_", "SRUN_")) or name in others}
    assert of_slurm == OF_THE_JOB | others


def test_message_hides_the_secret_of_a_setup_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECIOUS", "open sesame")
    (tmp_path / "set_up_failed").write_text("1\n2\n")
    message = failed_line(tmp_path, DictConfig({"setup": ["use ${oc.env:PRECIOUS}"]}))
    assert message.endswith("with status 1: use ${oc.env:PRECIOUS}")
