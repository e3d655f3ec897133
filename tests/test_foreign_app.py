"""The engine under somebody else's Hydra app: whatever its task function does, the study ends well."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

FAKES = Path(__file__).parent / "fakes"
APP = """
import ctypes, os, resource, signal, sys, time
import hydra
from omegaconf import DictConfig

def space(cfg, trial):
    trial.suggest_int("z", 1, 3)

def end(how):
    if how == "raises":
        raise RuntimeError("too large")
    if how == "exits":
        os._exit(3)
    if how == "segfaults":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "is_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "eats":
        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
        return len(bytearray(2**33))
    if how == "hangs":
        time.sleep(600)
    return {"not_a_number": float("nan"), "text": "many", "none": None, "pair": (1.0, 2.0)}.get(how, 1.0)

@hydra.main(version_base="1.3", config_path=None)
def main(cfg: DictConfig):
    if cfg.get("how"):
        return end(cfg.how)
    if cfg.get("epochs"):
        from sweeps.trial import current_trial
        trial = current_trial()
        for epoch in range(cfg.epochs):
            trial.report({"objective": cfg.x}, step=epoch)
            time.sleep(0.05)
            if trial.should_stop():
                break
        return cfg.x
    if cfg.get("two"):
        return cfg.x ** 2, (cfg.x - 2) ** 2
    print("own", os.environ.get("CUDA_VISIBLE_DEVICES"), sorted(os.sched_getaffinity(0)), flush=True)
    time.sleep(cfg.get("sleep", 0))
    return cfg.get("x", 0) ** 2 + cfg.get("y", 0) + cfg.get("z", 0)

if __name__ == "__main__":
    main()
"""


def run(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None, largest_file: int | None = None
) -> tuple[int, str]:
    """Its exit code, and all it printed. Without tracking, which other tests look at.

    Past `largest_file` bytes the kernel refuses to write, as it does on a full disk.
    """
    (folder / "their_app.py").write_text(APP)
    settings = ["hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s"]
    ours = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    limit = [] if largest_file is None else ["prlimit", f"--fsize={largest_file}"]
    done = subprocess.run(
        [*limit, sys.executable, "their_app.py", "-m", *arguments, *settings],
        cwd=folder,
        env={**ours, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


GRID = ["hydra/sweeper=grid", "hydra/launcher=local"]
SEARCH = ["hydra/sweeper=optuna", "hydra/launcher=local"]


def trials(folder: Path) -> list[optuna.trial.FrozenTrial]:
    from sweeps.study.storage import open_storage

    return optuna.load_study(
        study_name="s", storage=open_storage(None, folder / "multirun" / "s", writes=False)
    ).trials


def overrides(folder: Path) -> list[list[str]]:
    import yaml

    files = (folder / "multirun" / "s").glob("*/.hydra/overrides.yaml")
    return [yaml.safe_load(f.read_text()) for f in sorted(files, key=lambda f: int(f.parents[1].name))]


ENDS = {
    "fine": ("completed", ""),
    "raises": ("failed", "RuntimeError: too large"),
    "exits": ("failed", "exit code 3"),
    "segfaults": ("failed", "Segmentation fault"),
    "is_killed": ("lost", "killed from outside"),
    "eats": ("out_of_memory", "MemoryError"),
    "hangs": ("timed_out", "timeout_min"),
    "not_a_number": ("diverged", "objective is nan"),
    "text": ("failed", "a trial returns its objective"),
    "none": ("failed", "a trial returns its objective"),
    "pair": ("failed", "2 numbers for 1 objectives"),
}


@pytest.fixture(scope="module")
def all_ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    folder = tmp_path_factory.mktemp("ends")
    limits = ["hydra.launcher.timeout_min=0.1", "hydra.sweeper.max_attempts=1"]
    return folder, *run(folder, *GRID, f"+how={','.join(ENDS)}", *limits)


def test_one_bad_trial_never_ends_the_study(all_ends: tuple[Path, int, str]) -> None:
    folder, code, out = all_ends
    assert code == 1, out
    assert len(trials(folder)) == len(ENDS)
    assert [o[0] for o in overrides(folder)] == [f"+how={how}" for how in ENDS]


@pytest.mark.parametrize("number, how", list(enumerate(ENDS)))
def test_each_end_has_its_name(all_ends: tuple[Path, int, str], number: int, how: str) -> None:
    folder, _, out = all_ends
    end = trials(folder)[number].user_attrs["end"]
    state, error = ENDS[how]
    assert (end["state"], error in end["error"]) == (state, True), end
    if state != "completed":
        assert f"trial {number} {state}" in out
        assert str(folder / "multirun" / "s" / str(number) / "attempts" / "1" / "log") in out


def test_a_lost_trial_gets_all_its_attempts(tmp_path: Path) -> None:
    assert run(tmp_path, *GRID, "+how=is_killed")[0] == 1
    assert len(list((tmp_path / "multirun" / "s" / "0" / "attempts").iterdir())) == 3


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["+x=1,2", "+y=3,4"], [["+x=1", "+y=3"], ["+x=1", "+y=4"], ["+x=2", "+y=3"], ["+x=2", "+y=4"]]),
        (["+x=range(1,4)", "+y=1"], [["+y=1", "+x=1"], ["+y=1", "+x=2"], ["+y=1", "+x=3"]]),
        (["+x=1,1.0,1"], [["+x=1"]]),
        (["+x=1,2,3", "hydra.sweeper.n_trials=2"], [["+x=1"], ["+x=2"]]),
        (["+x=1"], [["+x=1"]]),
    ],
)
def test_a_grid_has_every_point_once(tmp_path: Path, arguments: list[str], expected: Sequence[Any]) -> None:
    code, out = run(tmp_path, *GRID, *arguments, "hydra.sweeper.n_jobs=1")
    assert code == 0, out
    assert overrides(tmp_path) == expected


@pytest.mark.parametrize("how", [GRID, [*SEARCH, "hydra.sweeper.n_trials=12"]])
def test_parameters_that_exist_under_a_choice(tmp_path: Path, how: list[str]) -> None:
    study = tmp_path / "conf" / "study" / "conditional.yaml"
    study.parent.mkdir(parents=True)
    conditions = ["conditional_params:", "  +x=1: {+y: '1,2'}", "  +x=2: {+y: '7,8'}"]
    study.write_text("\n".join(["# @package hydra.sweeper", *conditions, ""]))
    code, out = run(tmp_path, "--config-dir=conf", *how, "+x=1,2,3", "+study=conditional")
    assert code == 0, out
    allowed = [["+x=1", "+y=1"], ["+x=1", "+y=2"], ["+x=2", "+y=7"], ["+x=2", "+y=8"], ["+x=3"]]
    found = [one[1:] for one in overrides(tmp_path)]  # without +study
    if how is GRID:
        assert sorted(found) == sorted(allowed)
    else:
        assert len(found) == 12
        assert all(one in allowed for one in found)


NUMBERS = ["+x=interval(0, 2)", "+y=tag(log, interval(1, 3))"]


@pytest.mark.parametrize("sampler", ["tpe", "random", "gp", "cmaes", "nsgaii", "qmc"])
def test_every_sampler_searches(tmp_path: Path, sampler: str) -> None:
    if sampler == "gp":
        pytest.importorskip("torch", reason="the Gaussian process needs PyTorch, which is not installed")
    code, out = run(
        tmp_path, *SEARCH, f"hydra/sweeper/sampler={sampler}", *NUMBERS, "hydra.sweeper.n_trials=12"
    )
    assert code == 0, out
    found = trials(tmp_path)
    assert len(found) == 12
    assert all(0 <= t.params["+x"] <= 2 and 1 <= t.params["+y"] <= 3 for t in found)
    assert len({t.params["+x"] for t in found}) > 1


def test_several_objectives(tmp_path: Path) -> None:
    directions = "hydra.sweeper.direction=[minimize,minimize]"
    code, out = run(
        tmp_path, *SEARCH, "hydra/sweeper/sampler=nsgaii", directions, "+two=1", NUMBERS[0],
        "hydra.sweeper.n_trials=6",
    )  # fmt: skip
    assert code == 0, out
    assert all(len(t.values) == 2 for t in trials(tmp_path))


def test_a_search_space_in_code(tmp_path: Path) -> None:
    code, out = run(
        tmp_path, *SEARCH, "hydra.sweeper.custom_search_space=their_app.space", "hydra.sweeper.n_trials=4",
        "+z=0", "+x=1,2", environment={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert code == 0, out
    assert all(1 <= t.params["z"] <= 3 for t in trials(tmp_path))
    assert all(t.values == [t.params["+x"] ** 2 + t.params["z"]] for t in trials(tmp_path))


@pytest.mark.parametrize(
    "pruner, settings",
    [
        ("none", []),
        ("median", ["n_startup_trials=2"]),
        ("percentile", ["n_startup_trials=2"]),
        ("asha", []),
        ("hyperband", ["max_resource=4"]),
        ("wilcoxon", []),
    ],
)
def test_a_pruner_ends_hopeless_trials(tmp_path: Path, pruner: str, settings: list[str]) -> None:
    chosen = [f"hydra/sweeper/pruner={pruner}", *(f"hydra.sweeper.pruner.{one}" for one in settings)]
    code, out = run(tmp_path, *GRID, *chosen, "+x=1,2,9,8,7", "+epochs=40", "hydra.sweeper.n_jobs=1")
    assert code == 0, out
    states = [t.user_attrs["end"]["state"] for t in trials(tmp_path)]
    assert states[0] == "completed"
    assert set(states[1:]) <= {"completed", "pruned"}
    assert ("pruned" in states) == (pruner != "none")
    for number, state in enumerate(states):
        steps = (tmp_path / "multirun" / "s" / str(number) / "metrics.jsonl").read_text().splitlines()
        assert (len(steps) < 40) == (state == "pruned")


def test_a_full_disk_stops_the_study_which_then_goes_on(tmp_path: Path) -> None:
    trials_of = [*GRID, "+x=range(1,31)", "hydra.sweeper.n_jobs=1"]
    code, out = run(tmp_path, *trials_of, largest_file=20_000)
    assert code == 2, out
    assert "the study had to stop: [Errno 27] File too large" in out
    assert "hydra.sweeper.study_name=s" in out
    assert 0 < len(trials(tmp_path)) < 30
    code, out = run(tmp_path, *trials_of)
    assert code == 0, out
    assert sorted(t.params["+x"] for t in trials(tmp_path)) == list(range(1, 31))
    assert all(t.values == [t.params["+x"] ** 2] for t in trials(tmp_path))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "multirun").write_text("in the way")
    code, out = run(tmp_path, *GRID, "+x=1,2")
    assert code == 2, out
    assert f"the study's folder {tmp_path / 'multirun' / 's'} cannot be written: [Errno" in out
    assert "Traceback" not in out


@pytest.mark.parametrize("rate, code, ended", [("0.5", 0, 6), ("0.1", 1, 1)])
def test_failures_within_the_rate_are_fine_and_more_end_the_study(
    tmp_path: Path, rate: str, code: int, ended: int
) -> None:
    hows = "+how=raises,exits,a,b,c,d"
    got, out = run(tmp_path, *GRID, hows, f"hydra.sweeper.max_failure_rate={rate}", "hydra.sweeper.n_jobs=1")
    assert got == code, out
    assert len([t for t in trials(tmp_path) if t.state.is_finished()]) == ended
    assert ("max_failure_rate" in out) == (code == 1)


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_somebody_elses_launcher(tmp_path: Path, launcher: str) -> None:
    code, out = run(tmp_path, "hydra/sweeper=grid", f"hydra/launcher={launcher}", "+x=1,2,3")
    assert code == 0, out
    assert [t.values for t in trials(tmp_path)] == [[1.0], [4.0], [9.0]]


def test_a_slot_owns_its_gpus_and_its_share_of_the_cores(tmp_path: Path) -> None:
    code, out = run(
        tmp_path, *GRID, "+x=1,2", "+sleep=2", "hydra.launcher.gpus_per_node=1",
        environment={"PYTHONPATH": str(FAKES), "FAKE_NVML_GPUS": "2"},
    )  # fmt: skip
    assert code == 0, out
    logs = [(tmp_path / "multirun" / "s" / str(n) / "attempts" / "1" / "log").read_text() for n in (0, 1)]
    owned = [next(line for line in log.splitlines() if line.startswith("own")) for log in logs]
    assert {line.split()[1] for line in owned} == {"0", "1"}
    assert owned[0].split("[")[1] != owned[1].split("[")[1] or len(os.sched_getaffinity(0)) == 1


def test_more_gpus_than_there_are(tmp_path: Path) -> None:
    code, out = run(
        tmp_path, *GRID, "+x=1,2", "hydra.launcher.gpus_per_node=3",
        environment={"PYTHONPATH": str(FAKES), "FAKE_NVML_GPUS": "2"},
    )  # fmt: skip
    assert code == 2, out
    assert "this machine has 2 GPUs" in out
    assert not (tmp_path / "multirun").exists()


def test_a_budget_of_gpu_hours(tmp_path: Path) -> None:
    budget = ["hydra.sweeper.max_gpu_hours=0.0001", "hydra.sweeper.n_jobs=1"]
    code, out = run(
        tmp_path, *GRID, "+x=1,2,3", "+sleep=1", "hydra.launcher.gpus_per_node=1", *budget,
        environment={"PYTHONPATH": str(FAKES), "FAKE_NVML_GPUS": "1"},
    )  # fmt: skip
    assert code == 0, out
    assert "max_gpu_hours=0.0001 is spent" in out
    assert len(trials(tmp_path)) == 1


@pytest.mark.parametrize(
    "where, folder", [([], "multirun/s"), (["hydra.sweep.dir=theirs/t"], "theirs/t")], ids=["here", "theirs"]
)
def test_the_commands_for_what_exists(tmp_path: Path, where: list[str], folder: str) -> None:
    assert run(tmp_path, *GRID, *where, "+x=1,2")[0] == 0
    study, root = tmp_path / folder, ["--root", str(Path(folder).parent)]

    def sweeps(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sweeps", *words, *root], cwd=tmp_path, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    assert "2 of 2" in sweeps("list")
    assert "2 of 2 trials have ended (2 completed)" in sweeps("status", study.name)
    assert "trials.csv" in sweeps("report", study.name)
    assert "is not running" in sweeps("stop", study.name)
    assert f"There is: {study.name}" in sweeps("status", "other")
    (study / "report.html").unlink()
    sweeps("report", study.name)
    assert (study / "report.html").exists()
    assert json.loads((study / "study.json").read_text())["total"] == 2
    assert "study_name=s" in sweeps("resume", study.name)
