"""The files of real sites in sweeps/conf/cluster: what a trial with one GPU requests from sbatch."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

import trainers.config.schema  # noqa: F401 - registers itself with Hydra
from sweeps.base.errors import UserError
from sweeps.hydra.settings import SlurmLauncherConf, read
from sweeps.launchers.slurm.script.request import parameters
from tests.command_lines import ROOT

SITES = ROOT / "sweeps/conf/cluster"
BILLED = {"daint", "kestrel", "lumi", "roihu", "wice"}
REQUESTS: dict[str, dict[str, Any]] = {
    "cheaha": {"partition": "amperenodes", "gres": "gpu:1", "cpus-per-gpu": 2, "mem": "4096MB"},
    "daint": {"partition": "normal", "account": "mine", "gpus_per_node": 1, "mem": "4096MB"},
    "iris": {"partition": "gpu", "qos": "normal", "gpus_per_node": 1, "cpus-per-gpu": 7, "mem": "4096MB"},
    "kestrel": {"account": "mine", "gpus_per_node": 1, "cpus-per-gpu": 32, "mem": "4096MB"},
    "lrz": {"partition": "cm4_tiny", "clusters": "cm4", "gpus_per_node": 1, "mem": "4096MB"},
    "lumi": {"partition": "small-g", "account": "mine", "gpus_per_node": 1, "cpus-per-gpu": 7, "mem_per_gpu": "60G"},
    "mila": {"partition": "long", "gres": "gpu:1", "cpus_per_task": 4, "mem": "10240MB"},
    "plain": {"partition": "main", "gpus_per_node": 1, "cpus_per_task": 2, "mem": "4096MB"},
    "power9": {"partition": "gpu", "gres": "gpu:1", "cpus-per-gpu": 40, "mem": "61440MB"},
    "roihu": {"partition": "gpumedium", "account": "mine", "gres": "gpu:gh200:1", "mem": "4096MB"},
    "wice": {
        "partition": "gpu_a100",
        "account": "mine",
        "gpus_per_node": 1,
        "cpus-per-gpu": 18,
        "clusters": "wice",
        "mem": "4096MB",
    },
}
ALIKE = {"nodes", "time", "ntasks_per_node", "job_name", "stderr_to_stdout", "setup", "srun_args"}
ALIKE |= {"output", "signal", "no-requeue", "additional_parameters"}


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Return the configuration of an app whose trials use a GPU."""
    (tmp_path / "config.yaml").write_text("gpus: 1\n")
    return tmp_path


def composed(folder: Path, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(folder), job_name="sweep", version_base="1.3"):
        return compose("config", ["hydra/launcher=slurm", *overrides], return_hydra_config=True)


def requested(settings: SlurmLauncherConf) -> dict[str, Any]:
    """Return the options of sbatch that differ among sites."""
    options = parameters(Path("/study/0/attempts/1"), settings)
    options |= options["additional_parameters"]
    return {name: value for name, value in options.items() if name not in ALIKE}


@pytest.mark.parametrize("site", sorted(file.stem for file in SITES.iterdir()))
def test_request_at_a_site(app: Path, site: str) -> None:
    launcher = composed(app, f"+cluster={site}").hydra.launcher
    if site in BILLED:
        with pytest.raises(UserError, match=r"account: this site charges each job to one\.\nAdd hydra\.launcher\.acc"):
            read(launcher, SlurmLauncherConf)
        launcher.account = "mine"
    settings = read(launcher, SlurmLauncherConf)
    assert requested(settings) == REQUESTS[site]
    on_the_cpu = requested(replace(settings, gpus_per_node=0))
    assert not [name for name in on_the_cpu if "gpu" in name or name == "gres"]


def test_site_counts_the_gpus_of_a_trial_of_ours() -> None:
    config = composed(ROOT / "conf", "cluster=roihu", "gpus=2", "hydra.launcher.account=mine")
    assert requested(read(config.hydra.launcher, SlurmLauncherConf))["gres"] == "gpu:gh200:2"


def test_each_file_has_its_source_and_the_date() -> None:
    for site in REQUESTS.keys() - {"plain", "power9"}:
        source = (SITES / f"{site}.yaml").read_text().splitlines()[2]
        assert re.match(r"# https://\S+ \((as of 202|undated).*, read 202", source), site
