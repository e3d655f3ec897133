"""Options of sbatch and srun as a user types them."""

from typing import Any

import pytest

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.hydra.slurm_options import options_of_sbatch, options_of_srun
from sweeps.launchers.slurm.script.request import request


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ({"reservation": "course", "nice": 5}, {"reservation": "course", "nice": 5}),
        ({"spread-job": True, "overcommit": False, "reservation": None}, {"spread-job": True}),
        ({"mail-type": ["END", "FAIL"], "licenses": ["a"]}, {"mail-type": "END,FAIL", "licenses": "a"}),
        ({"nice": 0}, {"nice": 0}),
    ],
)
def test_options_of_sbatch(typed: dict[str, Any], options: dict[str, Any]) -> None:
    assert options_of_sbatch(typed) == options


@pytest.mark.parametrize("typed", [{"x": {"a": 1}}, {"x": [["a"]]}, {"wait": True}, {"job_name": "x"}])
def test_wrong_options_of_sbatch_have_two_lines(typed: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"^hydra\.launcher\.additional_parameters\.\w+.*\.\n(Type|Remove) "
    ) as refused:
        SlurmLauncherConf(additional_parameters=typed)
    assert str(refused.value).count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        (None, None),
        ("--mpi=none  --comment='a b'", ["--mpi=none", "--comment=a b"]),
        (["--mpi=none", "-v", 3], ["--mpi=none", "-v", "3"]),
        ("", []),
    ],
)
def test_options_of_srun(typed: Any, options: list[str] | None) -> None:
    assert options_of_srun(typed) == options


@pytest.mark.parametrize("typed", [5, {"mpi": "none"}, [["--mpi"]], "--comment='a"])
def test_wrong_options_of_srun_have_two_lines(typed: Any) -> None:
    with pytest.raises(ValueError, match=r"^hydra\.launcher\.srun_args=.*\.\nType ") as refused:
        SlurmLauncherConf(srun_args=typed)
    assert str(refused.value).count("\n") == 1


def test_all_memory_of_a_node_is_no_number() -> None:
    assert request(SlurmLauncherConf(mem_gb=0)).mem_gb is None
    assert request(SlurmLauncherConf(mem_per_cpu="0", cpus_per_task=2)).mem_gb is None
    with pytest.raises(ValueError, match=r"mem_gb=0\.0001: it must be 0\.001 or more\.\nFor all memory"):
        SlurmLauncherConf(mem_gb=0.0001)
