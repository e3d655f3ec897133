"""The preview of requests: the scripts, and SLURM's answers to them."""

from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm
from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.launchers.slurm.script.limits import minutes_in

START = "sbatch: Job 7 to start at 2026-11-24T22:11:45 using 1 processors on nodes lab1 in partition main"


def preview(folder: Path, *settings: dict[str, Any], **own: Any) -> tuple[list[str], str]:
    """Return the lines of the preview of trials with these settings, and the error; `own` are the launcher's own."""
    trials, lines = SlurmTrials(SlurmLauncherConf(**own), folder / "s"), []
    for changes in settings:
        node = OmegaConf.merge(OmegaConf.structured(SlurmLauncherConf), changes)
        trials.request(DictConfig({"hydra": {"launcher": node}}))
    try:
        for line in trials.preview():
            lines.append(line.strip())
    except UserError as error:
        return lines, str(error)
    return lines, ""


def answer(slurm: ScriptedSlurm, words: str, code: int = 0) -> None:
    slurm.say("sbatch", f'echo "$@" >> "$F/asked"; cat > "$F/script"; echo "{words}" >&2; exit {code}')
    slurm.say("sinfo", "echo 1-00:00:00")


def test_each_request_is_tested_once_and_not_submitted(scripted_slurm: ScriptedSlurm, tmp_path: Path) -> None:
    answer(scripted_slurm, START)
    lines, error = preview(
        tmp_path, {"partition": "main"}, {"gpus_per_node": 2, "python": "python3"}, {"partition": "main"}
    )
    assert lines.count("SLURM would start it at 2026-11-24 22:11:45 on lab1, partition main") == 2
    assert {"request 1:", "#SBATCH --partition=main", "request 2:", "#SBATCH --gpus-per-node=2", "python: python3"} <= {
        *lines
    }
    assert not error
    assert scripted_slurm.lines("asked") == ["--test-only"] * 2
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "message",
    [
        "sbatch: error: invalid partition specified: nope",
        "allocation failure: Requested node configuration is not available",
    ],
)
def test_refusal_is_an_error_after_all_requests(scripted_slurm: ScriptedSlurm, tmp_path: Path, message: str) -> None:
    answer(scripted_slurm, message, code=1)
    lines, error = preview(tmp_path, {"partition": "nope"}, {"mem_gb": 900})
    assert "request 2:" in lines
    assert error.startswith(f"SLURM would refuse request 1: {message.removeprefix('sbatch: error: ')}.\nCorrect the")


def test_limit_of_the_partition_is_compared(scripted_slurm: ScriptedSlurm, tmp_path: Path) -> None:
    answer(scripted_slurm, START)
    assert preview(tmp_path, {"timeout_min": 1440})[1] == ""
    late = "SLURM would refuse request 1: PartitionTimeLimit: 1441 min requested, and main allows 1-00:00:00."
    assert preview(tmp_path, {"timeout_min": 1441})[1].startswith(late)
    assert [minutes_in(limit) for limit in ("5:00", "2:00:30", "1-00:00:00", "infinite")] == [
        5,
        120.5,
        1440,
        float("inf"),
    ]


def test_job_of_the_driver_is_previewed_first(scripted_slurm: ScriptedSlurm, tmp_path: Path) -> None:
    answer(scripted_slurm, "sbatch: error: invalid partition specified: far", code=1)
    lines, error = preview(tmp_path, {}, driver="job", driver_partition="far")
    own = lines[: lines.index("request 1:")]
    assert own[0] == "the driver's job:"
    assert {"#SBATCH --partition=far", "#SBATCH --mem=2048MB", "#SBATCH --signal=TERM@120"} <= {*own}
    assert error.startswith("SLURM would refuse the driver's job: invalid partition specified: far.\nCorrect")
    assert scripted_slurm.lines("asked") == ["--test-only"] * 2


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("sbatch: error: Unable to contact slurm controller (connect failure)", "SLURM cannot be asked now: Unable to"),
        ("sbatch: error: AssocMaxSubmitJobLimit", "SLURM cannot be asked now: AssocMaxSubmitJobLimit"),
        ("", "SLURM cannot be asked now: sbatch did not answer"),
    ],
)
def test_absent_controller_is_no_refusal(scripted_slurm: ScriptedSlurm, tmp_path: Path, words: str, shown: str) -> None:
    answer(scripted_slurm, words, code=1)
    lines, error = preview(tmp_path, {})
    assert lines[-1].startswith(shown)
    assert not error


def test_missing_sbatch_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert preview(tmp_path, {}) == (
        ["this machine has no sbatch command, so that SLURM was not asked about the requests"],
        "",
    )


def test_values_of_the_environment_are_not_shown(
    scripted_slurm: ScriptedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRECIOUS", "open sesame")
    answer(scripted_slurm, START)
    reference = "${oc.env:PRECIOUS}"
    secrets = {"comment": reference, "setup": [f"export K={reference}"], "additional_parameters": {"wrap": reference}}
    lines, _ = preview(tmp_path, secrets, driver="job", comment="open sesame")
    assert "open sesame" in (scripted_slurm.folder / "script").read_text()
    assert "sesame" not in str(lines)
    assert lines.count(f"#SBATCH --comment={reference}") == 2
    assert lines.count(f"export K={reference}") == 1


@pytest.mark.long
def test_real_cluster_answers_a_preview(cluster: None, tmp_path: Path) -> None:
    lines, error = preview(tmp_path, {})
    assert lines[-1].startswith("SLURM would start it at 2")
    assert not error
    assert "Invalid partition name" in preview(tmp_path, {"partition": "nope"})[1]
    assert "not available" in preview(tmp_path, {"mem_gb": 900})[1]
