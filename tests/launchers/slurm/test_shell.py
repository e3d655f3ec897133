"""SLURM's variables in the shell: which of them reach a job, the preview and the commands that ask SLURM."""

from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm import shell
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.launchers.slurm.queue import squeue
from sweeps.launchers.slurm.script.request import parameters
from sweeps.launchers.slurm.script.submit import RefusedError, submit, write_call

_NOT_SENT = (
    "JOB_NAME ARRAY_INX OUTPUT ERROR INPUT OPEN_MODE REQUEUE NO_REQUEUE EXPORT GET_USER_ENV SIGNAL WAIT "
    "IGNORE_PBS TIMELIMIT MEM_PER_NODE MEM_PER_CPU MEM_PER_GPU GRES GPUS GPUS_PER_NODE GPUS_PER_TASK "
    "CPUS_PER_GPU CLUSTERS CONTAINER DEBUG OVERCOMMIT NO_KILL SOMETHING_NEW"
)
_OF_JOBS = (
    "SLURM_EXPORT_ENV SLURM_MEM_PER_CPU SLURM_CPU_BIND SLURM_HINT SLURM_NTASKS SLURM_MPI_TYPE "
    "SLURM_NODELIST SLURM_TIME_FORMAT SRUN_CPUS_PER_TASK SRUN_EXPORT_ENV SALLOC_PARTITION SQUEUE_STATES "
    "SCANCEL_STATE"
)


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    folder = tmp_path / "study" / "0" / "attempts" / "1"
    folder.mkdir(parents=True)
    return folder


def sent(slurm: ScriptedSlurm, attempt: Path, **settings: Any) -> dict[str, str]:
    """Return the environment of sbatch for a job with these settings."""
    conf = SlurmLauncherConf(**settings)
    write_call(attempt, conf, print)
    submit(attempt, parameters(attempt, conf))
    return dict(line.split("=", 1) for line in slurm.lines("environment") if "=" in line)


@pytest.mark.parametrize(
    ("variable", "settings", "is_sent"),
    [
        ("SBATCH_ACCOUNT", {}, True),
        ("SBATCH_ACCOUNT", {"account": "typed"}, False),
        ("SBATCH_PARTITION", {"partition": "typed"}, False),
        ("SBATCH_QOS", {"partition": "typed"}, True),
        ("SBATCH_CONSTRAINT", {"constraint": "typed"}, False),
        ("SBATCH_RESERVATION", {}, True),
        ("SBATCH_RESERVATION", {"additional_parameters": {"reservation": "typed"}}, False),
        ("SBATCH_RESERVATION", {"additional_parameters": {"reservation": False}}, True),
        ("SBATCH_EXCLUSIVE", {"additional_parameters": {"exclusive": True}}, False),
        ("SBATCH_WAIT4SWITCH", {"additional_parameters": {"switches": 1}}, False),
        ("SBATCH_THREAD_SPEC", {"additional_parameters": {"thread_spec": 1}}, False),
        ("SBATCH_HINT", {"additional_parameters": {"threads-per-core": 1}}, False),
        ("SBATCH_WCKEY", {}, True),
        ("SBATCH_WCKEY", {"additional_parameters": {"wckey": "typed"}}, False),
        *[(f"SBATCH_{name}", {}, False) for name in _NOT_SENT.split()],
        *[(name, {}, False) for name in _OF_JOBS.split()],
        *[(name, {}, True) for name in ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_HOME", "PMIX_MCA_gds")],
    ],
)
def test_typed_options_win_and_none_breaks_a_job(
    scripted_slurm: ScriptedSlurm,
    attempt: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    settings: dict[str, Any],
    is_sent: bool,
) -> None:
    monkeypatch.setenv(variable, "of the shell")
    assert (variable in sent(scripted_slurm, attempt, **settings)) == is_sent


def test_preview_shows_what_comes_from_the_shell(
    scripted_slurm: ScriptedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"SBATCH_ACCOUNT": "mine", "SBATCH_PARTITION": "mine", "SLURM_MEM_PER_CPU": "1", "SQUEUE_SORT": "i"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    script = "#!/bin/bash\n#SBATCH --partition=typed\n"
    assert [*shell.describe(script)] == [
        "of the shell: SBATCH_ACCOUNT=mine",
        "of the shell, not used: SBATCH_PARTITION, SLURM_MEM_PER_CPU",
    ]
    monkeypatch.setenv("SLURM_JOB_ID", "3")
    assert [*shell.describe(script)] == []


def test_refusal_names_the_variable_of_the_shell(
    scripted_slurm: ScriptedSlurm, attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_QOS", "gone")
    scripted_slurm.refuse("Batch job submission failed: Invalid qos specification")
    for settings, is_of_the_shell in [({}, True), ({"qos": "typed"}, False)]:
        with pytest.raises(RefusedError) as refused:
            sent(scripted_slurm, attempt, **settings)
        error = refused.value.outcome.error
        assert "Change hydra.launcher.qos" in error
        assert ("because of SBATCH_QOS=gone in your shell" in error) == is_of_the_shell


@pytest.mark.parametrize("name", ["SQUEUE_PARTITION", "SQUEUE_NAMES", "SLURM_TIME_FORMAT"])
def test_filters_of_the_shell_hide_no_job(
    scripted_slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "other")
    scripted_slurm.say("squeue", f'[ "${name}" ] || echo "1|RUNNING|None|mine"')
    assert "mine" in squeue()


def test_renamed_job_is_followed_by_its_id(
    scripted_slurm: ScriptedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_job: Any
) -> None:
    monkeypatch.setattr("sweeps.launchers.slurm.follow.following._LATE_S", {})
    monkeypatch.setattr("sweeps.launchers.slurm.follow.watcher._ABSENT_S", 0.0)
    monkeypatch.setattr("sweeps.launchers.slurm.follow.following._LISTING_S", 0.0)
    trials = SlurmTrials(SlurmLauncherConf(trials_per_job=1, max_submissions_per_min=600), tmp_path / "study")
    job, other = make_job(0, print), make_job(1, print)
    for number, submitted in enumerate((job, other), start=1):
        while not trials.submit(submitted):
            pass
        scripted_slurm.say("squeue", f'seq -f "%g|RUNNING|None|prefix" {number}')
    for _ in range(3):
        trials.slurm.watcher.update()
        assert trials.poll(0.0) == []
    adopting = SlurmTrials(SlurmLauncherConf(trials_per_job=1), tmp_path / "study")
    assert adopting.adopt(job)
    scripted_slurm.say("squeue", "echo '1|TIMEOUT|None|prefix'; echo '2|RUNNING|None|prefix'")
    for launcher in (trials, adopting):
        launcher.slurm.watcher.update()
        assert [(number, end.state) for number, end in launcher.poll(0.0)] == [(0, "timed_out")]
    assert not scripted_slurm.lines("scancelled")
