"""What a trial asks for, from its launcher's settings."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from sweeps.preview import Request, cost, request
from sweeps.settings import LocalLauncherConf, SlurmLauncherConf


@pytest.mark.parametrize(
    ("launcher", "expected"),
    [
        (LocalLauncherConf(), Request(0, None, 1.0, None)),
        (LocalLauncherConf(gpus_per_node=2, timeout_min=5), Request(2, None, 1.0, 5)),
        (SlurmLauncherConf(), Request(0, None, None, 60)),
        (SlurmLauncherConf(nodes=2, gpus_per_node=4, cpus_per_task=3, mem_gb=8), Request(8, 6, 16, 60)),
        (SlurmLauncherConf(nodes=2, tasks_per_node=4, gpus_per_task=1), Request(8, None, None, 60)),
        (SlurmLauncherConf(gres="gpu:2"), Request(2, None, None, 60)),
        (SlurmLauncherConf(gres="gpu:v100:3,nvme:1"), Request(3, None, None, 60)),
        (SlurmLauncherConf(gres="gpu"), Request(1, None, None, 60)),
        (SlurmLauncherConf(gres="gpu:0"), Request(0, None, None, 60)),
    ],
)
def test_a_request(launcher: Any, expected: Request) -> None:
    config = OmegaConf.create({"hydra": {"launcher": OmegaConf.structured(launcher)}})
    assert request(config) == expected


def test_the_cost_at_the_timeout() -> None:
    requests = [Request(2, None, None, 30), Request(0, None, None, 60)]
    assert cost(requests).startswith("At most 1.5 trial-hours and 1 GPU-hours")
    assert "no bound" in cost([Request(0, None, None, None)])
