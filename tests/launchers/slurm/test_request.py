"""The resources that trials and workers request from SLURM, by the launcher's settings."""

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

import trainers.config.schema  # noqa: F401 - registers itself with Hydra
from sweeps.base.errors import UserError
from sweeps.hydra.settings import SlurmLauncherConf, read
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.launchers.slurm.script.request import parameters, request
from sweeps.trial.job import Request

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Request(0, None, 4.0, 60)),
        ({"nodes": 2, "gpus_per_node": 4, "cpus_per_task": 3, "mem_gb": 8}, Request(8, 6, 16, 60, 2, 2)),
        ({"nodes": 2, "tasks_per_node": 4, "gpus_per_task": 1}, Request(8, None, 8, 60, 2, 8)),
        ({"gres": "gpu:2"}, Request(2, None, 4, 60)),
        ({"gres": "gpu:v100:3,nvme:1"}, Request(3, None, 4, 60)),
        ({"gres": "gpu"}, Request(1, None, 4, 60)),
        ({"gres": "gpu:0"}, Request(0, None, 4, 60)),
        ({"gres": "nvme:1"}, Request(0, None, 4, 60)),
        ({"gres": "gpu:2", "cpus_per_gpu": 10}, Request(2, 20, 4, 60)),
        ({"cpus_per_gpu": 10}, Request(0, None, 4, 60)),
        ({"mem_per_cpu": "2G", "cpus_per_task": 3}, Request(0, 3, 6, 60)),
        ({"mem_per_cpu": "512", "tasks_per_node": 2}, Request(0, None, 1, 60, 1, 2)),
        ({"mem_per_gpu": "16GB", "gpus_per_node": 2}, Request(2, None, 32, 60)),
        ({"mem_per_gpu": "16G"}, Request(0, None, 4, 60)),
        ({"additional_parameters": {"mem": "9G"}}, Request(0, None, None, 60)),
        ({"gpus_per_node": 1, "trials_per_gpu": 4}, Request(0.25, None, 4, 60)),
        ({"gres": "gpu:1g.10gb:1", "gpus_per_node": 1, "trials_per_gpu": 2}, Request(0.5, None, 4, 60)),
        ({"gres": "gpu:a100", "trials_per_gpu": 4, "cpus_per_gpu": 6, "mem_per_gpu": "8G"}, Request(0.25, 2, 2, 60)),
    ],
)
def test_a_request(settings: dict[str, Any], expected: Request) -> None:
    assert request(SlurmLauncherConf(**settings)) == expected


def test_shared_gpu_needs_workers() -> None:
    with pytest.raises(ValueError, match=r"trials_per_gpu=4: it needs workers\.\nType .*trials_per_job=null"):
        SlurmLauncherConf(gpus_per_node=1, trials_per_gpu=4, trials_per_job=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus_per_node": 2, "trials_per_gpu": 4}, "trials_per_gpu=4 and gpus=2 conflict: trials share one GPU"),
        ({"gpus_per_node": 1, "trials_per_gpu": 4, "nodes": 2}, "trials_per_gpu=4: a trial of 2 processes shares no"),
        ({"trials_per_gpu": 2}, "trials_per_gpu=2: the trial requests no GPU"),
    ],
)
def test_gpus_that_cannot_be_requested(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^hydra.launcher.{message}.*\n(Type|Add) "):
        request(SlurmLauncherConf(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mem_gb": 8, "mem_per_cpu": "2G"}, r"mem_gb=8 and mem_per_cpu=2G conflict.*\n.*launcher\.mem_gb=null"),
        (
            {"mem_gb": 8, "mem_per_gpu": "9G", "gpus_per_node": 1},
            r"mem_gb=8 and mem_per_gpu=9G conflict.*\n.*mem_gb=null",
        ),
        ({"mem_per_cpu": "2G", "mem_per_gpu": "9G", "gres": "gpu"}, r"mem_per_cpu=2G and mem_per_gpu=9G conflict"),
    ],
)
def test_two_amounts_of_memory_conflict(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=rf"^hydra\.launcher\.{message}"):
        request(SlurmLauncherConf(**settings))
    assert request(SlurmLauncherConf(mem_gb=8, mem_per_gpu="9G")).mem_gb == 8  # because the trial has no GPU


def test_a_request_that_cannot_be() -> None:
    with pytest.raises(UserError, match=r"'plenty' is not an amount of memory\.\nUse an amount such as 16G"):
        request(SlurmLauncherConf(mem_per_cpu="plenty"))


def resources(trials: int = 1, **settings: Any) -> dict[str, Any]:
    """Return the memory, processors and GPUs of a request to sbatch."""
    requested = parameters(Path("/study/0/attempts/1"), SlurmLauncherConf(**settings), trials)
    names = ("cpus_per_task", "gpus_per_node", "gpus_per_task", "gres", "mem", "mem_per_gpu", "mem_per_cpu")
    by_gpu = requested["additional_parameters"].get("cpus-per-gpu")
    return {name: requested[name] for name in names if name in requested} | ({"cpus_per_gpu": by_gpu} if by_gpu else {})


def of_two(**settings: Any) -> dict[str, Any]:
    return resources(2, **settings)


def test_trial_requests_its_resources() -> None:
    assert resources() == {"mem": "4096MB"}
    assert resources(mem_gb=0.5, cpus_per_task=2) == {"mem": "512MB", "cpus_per_task": 2}
    assert resources(mem_per_cpu="2G") == {"mem_per_cpu": "2G"}
    assert resources(additional_parameters={"mem-per-gpu": "2G"}) == {}
    assert resources(gres="gpu:0,nvme:1", cpus_per_gpu=40, mem_per_gpu="9G") == {"mem": "4096MB", "gres": "nvme:1"}
    assert resources(gpus_per_node=1, cpus_per_gpu=40) == {"mem": "4096MB", "gpus_per_node": 1, "cpus_per_gpu": 40}


def test_a_worker_asks_for_all_its_trials_side_by_side() -> None:
    assert of_two() == {"cpus_per_task": 2, "mem": "8192MB"}
    assert of_two(gres="gpu:v100:2,nvme:1", cpus_per_task=3) == {
        "cpus_per_task": 6,
        "gres": "gpu:v100:4,nvme:1",
        "mem": "8192MB",
    }
    assert of_two(gres="gpu", cpus_per_gpu=4) == {"gres": "gpu:2", "cpus_per_gpu": 4, "mem": "8192MB"}
    assert of_two(gpus_per_node=1, mem_per_gpu="3G") == {"cpus_per_task": 2, "gpus_per_node": 2, "mem_per_gpu": "3G"}
    assert of_two(gpus_per_task=1, mem_gb=1)["gpus_per_task"] == 2
    eight = {"cpus_per_task": 8, "gpus_per_node": 2, "mem": "8192MB"}
    assert resources(8, gpus_per_node=1, trials_per_gpu=4, mem_gb=1) == eight
    of_type = resources(4, gpus_per_node=1, gres="gpu:1g.10gb:1", trials_per_gpu=4, mem_gb=1)
    assert of_type == {"cpus_per_task": 4, "gres": "gpu:1g.10gb:1", "mem": "4096MB"}


def composed(*overrides: str) -> Any:
    with initialize_config_dir(str(ROOT / "conf"), job_name="sweep", version_base="1.3"):
        return compose("config", ["hydra/launcher=slurm", *overrides], return_hydra_config=True)


def test_a_site_that_counts_gpus_by_gres() -> None:
    two, none = (read(composed("cluster=power9", f"gpus={gpus}").hydra.launcher, SlurmLauncherConf) for gpus in (2, 0))
    assert request(two) == Request(2, 80, 60, 240)
    assert request(none) == Request(0, None, 60, 240)
    assert resources(**vars(two)) == {"mem": "61440MB", "gres": "gpu:2", "cpus_per_gpu": 40}
    assert resources(**vars(none)) == {"mem": "61440MB"}


@pytest.mark.parametrize(
    ("gres", "count", "expected"),
    [
        ("gpu:a100", 2, {"gres": "gpu:a100:2"}),
        ("gpu:a100", 0, {}),
        ("gpu:a100", None, {"gres": "gpu:a100:1"}),
        ("gpu:1g.10gb", 1, {"gres": "gpu:1g.10gb:1"}),
        ("gpu:1g.10gb:1", 1, {"gres": "gpu:1g.10gb:1"}),
        ("gpu:a100:1", 0, {"gres": "gpu:a100:1"}),
        ("nvme:1,gpu:a100", 2, {"gres": "nvme:1,gpu:a100:2"}),
        ("nvme:1", 2, {"gres": "nvme:1", "gpus_per_node": 2}),
    ],
)
def test_kind_of_gpu_is_counted_by_the_gpus_of_the_trial(
    gres: str, count: int | None, expected: dict[str, Any]
) -> None:
    assert resources(gres=gres, gpus_per_node=count) == {"mem": "4096MB", **expected}


def test_two_numbers_of_gpus_conflict() -> None:
    answer = r"gres=gpu:a100:1 and 2 GPUs on each node .* conflict\.\n.*: hydra\.launcher\.gres=gpu:a100$"
    with pytest.raises(UserError, match=answer):
        request(SlurmLauncherConf(gres="gpu:a100:1", gpus_per_node=2))


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("+hydra.launcher.time=10", "Did you mean hydra.launcher.timeout_min"),
        ("+hydra.launcher.exclusive=true", r"\+hydra.launcher.additional_parameters.exclusive=True"),
        ("hydra.launcher.cpus_per_gpu=0", "cpus_per_gpu=0: it must be 1 or more"),
    ],
)
def test_unknown_setting_is_refused_with_a_hint(override: str, hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        SlurmTrials(SlurmLauncherConf(), Path()).request(composed(override))


@pytest.mark.parametrize(
    ("override", "words"),
    [("hydra.launcher.nodes=2", "trials_per_job=1"), ("hydra.launcher.timeout_min=2", "signal_delay_s=120")],
)
def test_requests_that_no_worker_can_run(override: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        SlurmTrials(SlurmLauncherConf(), Path()).request(composed(override, "hydra.launcher.trials_per_job=null"))
