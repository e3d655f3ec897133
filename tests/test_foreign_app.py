"""Studies of a foreign Hydra app, with each possible end of a task function."""

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweeps.record.study import TrialRecord
from sweeps.trial.job import State
from tests import command_lines as lines
from tests.command_lines import APPS, GRID, SEARCH, THEIRS, Done, processes, refuse, rows, run_all, some, steps, theirs

FAKES = Path(__file__).parent / "fakes"
SILENT = str(APPS / "silent_app.py")


def run(folder: Path, *arguments: str, **options: Any) -> tuple[int, str]:
    """Run the app, and return the exit code and the output."""
    done = lines.run(theirs(*arguments), folder, **options)
    return done.code, done.said


def run_afresh(folder: Path, *arguments: str, **options: Any) -> tuple[int, str]:
    done = lines.finish(lines.start_afresh(theirs(*arguments), folder, **options), folder)
    return done.code, done.said


def run_with_gpus(folder: Path, count: int, *arguments: str) -> tuple[int, str]:
    """Run the app on a machine with `count` fake GPUs."""
    return run_afresh(folder, *arguments, extra={"PYTHONPATH": str(FAKES), "FAKE_NVML_GPUS": str(count)})


def trials(folder: Path) -> list[TrialRecord]:
    return rows(folder / "multirun" / "s")


def overrides(folder: Path) -> list[list[str]]:
    files = (folder / "multirun" / "s").glob("*/.hydra/overrides.yaml")
    return [yaml.safe_load(f.read_text()) for f in sorted(files, key=lambda f: int(f.parents[1].name))]


def logs(folder: Path) -> list[str]:
    return [(row.folder / "attempts" / "1" / "log").read_text() for row in trials(folder)]


ENDS = {
    "fine": ("completed", ""),
    "exits_well": ("completed", ""),
    "raises": ("failed", "RuntimeError: too large"),
    "exits": ("failed", "sys.exit(3)"),
    "exits_at_once": ("failed", "exit code 3"),
    "segfaults": ("failed", "Segmentation fault"),
    "is_killed": ("lost", "killed from outside"),
    "eats": ("out_of_memory", "MemoryError"),
    "hangs": ("timed_out", "timeout_min"),
    "returns_nothing": ("completed", ""),
    "returns_nan": ("diverged", "objective is nan"),
    "returns_text": ("completed", ""),
    "returns_a_dict": ("completed", ""),
    "returns_an_array": ("completed", ""),
    "returns_metrics": ("completed", ""),
    "reports_text": ("failed", "the metric 'accuracy' is a str ('high')"),
    "reports_an_array": ("failed", "the metric 'accuracy' is a ndarray of shape (4,)"),
    "reports_a_dict": ("failed", "the metric 'accuracy' is a dict"),
}


@pytest.fixture(scope="module")
def all_ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    folder = tmp_path_factory.mktemp("ends")
    limits = ["hydra.launcher.timeout_min=0.1", "hydra.sweeper.max_attempts=1"]
    return folder, *run(folder, *GRID, f"+how={','.join(ENDS)}", *limits)


def test_failed_trials_do_not_stop_the_study(all_ends: tuple[Path, int, str]) -> None:
    folder, code, out = all_ends
    assert code == 1, out
    assert "Traceback (most recent call last)" not in out.partition("trial 0")[0]
    assert len(trials(folder)) == len(ENDS)
    assert [o[0] for o in overrides(folder)] == [f"+how={how}" for how in ENDS]


@pytest.mark.parametrize("number, how", list(enumerate(ENDS)))
def test_each_end_has_a_state_and_an_error(all_ends: tuple[Path, int, str], number: int, how: str) -> None:
    folder, _, out = all_ends
    row = trials(folder)[number]
    state, error = ENDS[how]
    assert (row.state, error in row.error) == (state, True), row
    if state != "completed":
        assert row.error
        assert f"trial {number} {state}" in out
        assert str(folder / "multirun" / "s" / str(number) / "attempts" / "1" / "log") in out


@pytest.mark.long
def test_lost_trial_is_retried_until_max_attempts(tmp_path: Path) -> None:
    assert run(tmp_path, *GRID, "+how=is_killed")[0] == 1
    assert len(list((tmp_path / "multirun" / "s" / "0" / "attempts").iterdir())) == 3


@pytest.fixture(scope="module")
def objectives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """Run studies whose trials return no objective or another metric, and return the results by name."""
    typo, one_job = "hydra.sweeper.objective=objectiv", "hydra.sweeper.n_jobs=1"
    ends = {
        "silent grid": [SILENT, "-m", *GRID, "+x=1,2,3", "hydra.sweeper.tracking=false"],
        "silent search": [SILENT, "-m", *SEARCH, "+x=1,2,3", "hydra.sweeper.tracking=false"],
        "search for nothing": theirs(*SEARCH, "+how=returns_nothing", "+x=interval(0,1)", one_job),
        "search for another": theirs(*SEARCH, "+how=returns_metrics", "+x=interval(0,1)", one_job),
        "grid of pairs": theirs(*GRID, "+how=returns_a_pair", "+x=1,2,3,4,5"),
        "reported typo": theirs(*GRID, typo, "+epochs=1000", "+x=1,2,3,4,5", one_job),
        "returned typo": theirs(*GRID, "hydra.sweeper.objective=acuracy", "+how=returns_metrics", "+x=1,2,3,4"),
    }  # fmt: skip
    return run_all(ends, tmp_path_factory.mktemp("objectives"))


def test_grid_needs_no_objective(objectives: dict[str, Done]) -> None:
    done = objectives["silent grid"]
    assert done.code == 0, done.said
    assert [row.state for row in rows(done.study())] == [State.COMPLETED] * 3
    assert "best" not in done.said
    report = lines.sweeps(done.folder, "report", done.study().name)
    assert report.code == 0, report.said
    assert (done.study() / "trials.csv").read_text().startswith("trial,state,x,")
    status = lines.sweeps(done.folder, "status", done.study().name)
    assert "3 of 3 trials have ended (3 completed)" in status.out
    assert "best" not in status.out


def test_grid_records_several_numbers(objectives: dict[str, Done]) -> None:
    done = objectives["grid of pairs"]
    assert done.code == 0, done.said
    assert [row.metrics for row in rows(done.study())] == [{"objective_0": 1.0, "objective_1": 2.0}] * 5


def test_search_over_a_function_without_result_is_refused(objectives: dict[str, Done]) -> None:
    done = objectives["silent search"]
    assert done.code == 2, done.said
    assert len(done.err.splitlines()) <= 2
    assert "main() returns nothing" in done.err
    assert not (done.folder / "multirun").exists()


@pytest.mark.parametrize(
    "name, message",
    [
        ("search for nothing", "the task returned nothing; a trial returns its objective"),
        ("search for another", "hydra.sweeper.objective=accuracy hydra.sweeper.direction=maximize"),
        ("reported typo", "the task reported no 'objectiv', which is the objective; it reported objective"),
        ("returned typo", "hydra.sweeper.objective=accuracy"),
    ],
)
def test_missing_objective_stops_the_study(objectives: dict[str, Done], name: str, message: str) -> None:
    done = objectives[name]
    assert done.code == 1, done.said
    assert message in done.out
    assert f"is not finished: {rows(done.study())[0].error}" in done.out
    assert "Traceback" not in done.err
    started = [row for row in rows(done.study()) if row.attempts]
    assert len(started) <= (1 if "search" in name or "reported" in name else 2)
    assert all(row.state is State.FAILED and len(steps(row.folder)) <= 1 for row in started)


@some(
    ("objective", "direction"),
    [("test_auc", ""), ("logloss", "maximize"), ("[accuracy,seconds]", "[minimize,minimize]")],
    3,
)
def test_direction_against_the_name_of_a_metric_is_typed_or_refused(
    tmp_path: Path, objective: str, direction: str
) -> None:
    study = tmp_path / "conf" / "study" / "named.yaml"
    study.parent.mkdir(parents=True)
    setting = f"direction: {direction}" if direction else f"objective: {objective}"
    study.write_text(f"# @package hydra.sweeper\n{setting}\n")
    line = theirs(f"--config-dir={tmp_path}/conf", *SEARCH, "+study=named", "+x=interval(0,1)")
    line += [f"hydra.sweeper.objective={objective}", "hydra.sweeper.preview=true"]
    refused = refuse(line, tmp_path)
    assert refused.code == 2, refused.said
    problem, advice = refused.err.splitlines()
    assert problem.endswith("d, because hydra.sweeper.direction is not typed."), problem
    typed = [word.rstrip(",") for word in shlex.split(advice) if "direction=" in word]
    assert len(typed) == len({*typed}) == 2
    for word in typed:
        done = refuse([*line, word], tmp_path)
        assert "none was started" in done.out, done.said


@some(
    "arguments, expected",
    [
        (["+x=1,2", "+y=3,4"], [["+x=1", "+y=3"], ["+x=1", "+y=4"], ["+x=2", "+y=3"], ["+x=2", "+y=4"]]),
        (["+x=range(1,4)", "+y=1"], [["+x=1", "+y=1"], ["+x=2", "+y=1"], ["+x=3", "+y=1"]]),
        (["+x=1,1.0,1"], [["+x=1"]]),
        (["+x=1,2,3", "hydra.sweeper.n_trials=2"], [["+x=1"], ["+x=2"]]),
        (["+x=1"], [["+x=1"]]),
    ],
    5,
)
def test_grid_runs_every_point_once(tmp_path: Path, arguments: list[str], expected: Sequence[Any]) -> None:
    code, out = run(tmp_path, *GRID, *arguments, "hydra.sweeper.n_jobs=1")
    assert code == 0, out
    assert overrides(tmp_path) == expected


@some("arguments", [GRID, [*SEARCH, "hydra.sweeper.n_trials=12"]], 2)
def test_conditional_params_are_swept_under_the_condition(tmp_path: Path, arguments: list[str]) -> None:
    study = tmp_path / "conf" / "study" / "conditional.yaml"
    study.parent.mkdir(parents=True)
    conditions = ["conditional_params:", "  +x=1: {+y: '1,2'}", "  +x=2: {+y: '7,8'}"]
    study.write_text("\n".join(["# @package hydra.sweeper", *conditions, ""]))
    code, out = run(tmp_path, f"--config-dir={tmp_path}/conf", *arguments, "+x=1,2,3", "+study=conditional")
    assert code == 0, out
    allowed = [["+x=1", "+y=1"], ["+x=1", "+y=2"], ["+x=2", "+y=7"], ["+x=2", "+y=8"], ["+x=3"]]
    points = [[word for word in words if not word.startswith("+study")] for words in overrides(tmp_path)]
    assert sorted(points) == sorted(allowed)


NUMBERS = ["+x=interval(0, 2)", "+y=tag(log, interval(1, 3))"]


# tpe and gp get 12 trials, because both draw the first ten points at random.
@some("sampler, n", [("tpe", 12), ("gp", 12), ("random", 4), ("cmaes", 6), ("nsgaii", 4), ("qmc", 4)], 6)
def test_each_sampler_completes_a_search(tmp_path: Path, sampler: str, n: int) -> None:
    if sampler == "gp":
        pytest.importorskip("torch", reason="the Gaussian process needs PyTorch, which is not installed")
    code, out = run(tmp_path, *SEARCH, f"hydra/sweeper/sampler={sampler}", *NUMBERS, f"hydra.sweeper.n_trials={n}")
    assert code == 0, out
    records = trials(tmp_path)
    assert len(records) == n
    assert all(0 <= row.params["+x"] <= 2 and 1 <= row.params["+y"] <= 3 for row in records)
    assert len({row.params["+x"] for row in records}) > 1


@pytest.mark.long
def test_two_objectives_are_reported_with_a_pareto_front(tmp_path: Path) -> None:
    directions = "hydra.sweeper.direction=[minimize,minimize]"
    code, out = run(
        tmp_path, *SEARCH, "hydra/sweeper/sampler=nsgaii", directions, "+two=1", NUMBERS[0],
        "hydra.sweeper.n_trials=6",
    )  # fmt: skip
    assert code == 0, out
    assert all(len(row.objective) == 2 for row in trials(tmp_path))
    assert "Pareto front: " in out
    page = (tmp_path / "multirun" / "s" / "report.html").read_text()
    assert "<h2>Pareto front</h2>" in page
    assert "<h2>Hypervolume</h2>" in page


SEEDS = ["hydra.sweeper.repeats=2", "hydra.sweeper.final_race=2", "hydra.sweeper.final_race_seeds=3"]


@pytest.mark.long
def test_repeats_and_final_race_select_a_winner(tmp_path: Path) -> None:
    arguments = [*SEARCH, "+x=1,2,3,4", "hydra.sweeper.n_trials=3", *SEEDS, "hydra.sweeper.seed_key=++y"]
    code, out = run(tmp_path, *arguments)
    assert code == 0, out
    assert "each configuration runs 2 times, with ++y=0,1; hydra.sweeper.n_trials counts configurations" in out
    assert "study s: 6 trials in" in out
    records = trials(tmp_path)
    searched = sorted({int(str(row.params["+x"])) for row in records if not row.race})
    best, second = searched[:2]
    assert len(records) == 6 + 6
    assert {(row.params["+x"], row.params["++y"]) for row in records if row.race} == {
        (x, seed) for x in (best, second) for seed in (2, 3, 4)
    }
    assert all(row.objective == [row.params["+x"] ** 2 + row.params["++y"]] for row in records)  # type: ignore[operator]
    # Because the app is deterministic, a difference is the same with each seed.
    winner = f"The final race's winner: x={best}: mean objective {best**2 + 3}.0, 95% interval"
    assert winner in out
    assert "<h2>Configurations</h2>" in (tmp_path / "multirun" / "s" / "report.html").read_text()
    status = lines.sweeps(tmp_path, "status", "s")
    assert "12 of 12 trials have ended (12 completed)" in status.out
    assert winner in status.out


@some(
    "arguments, message",
    [
        (SEEDS, "this app's configuration has no 'seed'"),
        ([*SEEDS, "hydra.sweeper.seed_key=++x"], "x is swept"),
        (
            ["hydra/sweeper/pruner=median", "hydra.sweeper.direction=[minimize,minimize]"],
            "a pruner needs one objective",
        ),
        (
            ["hydra/sweeper/pruner=median", "hydra/launcher=basic"],
            "hydra/launcher=basic: its trials report only at their ends",
        ),
        ([*SEEDS, "hydra.sweeper.direction=[minimize,minimize]"], "it needs one objective, but this study has 2"),
        (
            ["hydra.sweeper.objective=[]"],
            "hydra.sweeper.objective=[]: the list is empty.\nType: hydra.sweeper.objective=",
        ),
        (["hydra.sweeper.objective=[]", "hydra.sweeper.direction=[]"], "hydra.sweeper.direction=[]: the list is empty"),
    ],
    3,
)
def test_conflicting_settings_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = refuse(theirs(*SEARCH, "+x=1,2,3,4", *arguments), tmp_path)
    assert done.code == 2, done.said
    assert message in done.said
    assert not (tmp_path / "multirun").exists()


@pytest.mark.long
def test_custom_search_space_is_searched(tmp_path: Path) -> None:
    code, out = run(
        tmp_path, *SEARCH, "hydra.sweeper.custom_search_space=their_app.space", "hydra.sweeper.n_trials=4",
        "+z=0", "+x=1,2", extra={"PYTHONPATH": str(APPS)},
    )  # fmt: skip
    assert code == 0, out
    assert all(1 <= row.params["z"] <= 3 for row in trials(tmp_path))
    assert all(row.objective == [row.params["+x"] ** 2 + row.params["z"]] for row in trials(tmp_path))


@pytest.mark.long
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
def test_pruner_prunes_hopeless_trials(tmp_path: Path, pruner: str, settings: list[str]) -> None:
    chosen = [f"hydra/sweeper/pruner={pruner}", *(f"hydra.sweeper.pruner.{setting}" for setting in settings)]
    code, out = run(tmp_path, *GRID, *chosen, "+x=1,2,9,8,7", "+epochs=40", "+sleep=0.03", "hydra.sweeper.n_jobs=1")
    assert code == 0, out
    records = trials(tmp_path)
    states = [row.state for row in records]
    assert states[0] == "completed"
    assert set(states[1:]) <= {"completed", "pruned"}
    assert ("pruned" in states) == (pruner != "none")
    assert all((len(steps(row.folder)) < 40) == (row.state == "pruned") for row in records)


@pytest.mark.long
def test_study_stopped_by_a_full_disk_resumes(tmp_path: Path) -> None:
    app = str(shutil.copy(THEIRS, tmp_path))  # because a copy in an empty folder has little code to store
    line = [app, *theirs(*GRID, "+x=range(1,17)", "hydra.sweeper.n_jobs=1")[1:]]
    done = lines.finish(lines.start_afresh(line, tmp_path, largest_file=5_500), tmp_path)
    code, out = done.code, done.said
    assert code == 3, out
    assert "the study had to stop: [Errno 27] File too large" in out
    assert "hydra.sweeper.study_name=s" in out
    assert "Traceback" not in out
    assert 0 < len(trials(tmp_path)) < 16
    done = lines.run(line, tmp_path)
    assert done.code == 0, done.said
    assert sorted(row.params["+x"] for row in trials(tmp_path)) == list(range(1, 17))
    assert all(row.objective == [row.params["+x"] ** 2] for row in trials(tmp_path))


def test_unwritable_study_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "multirun").write_text("in the way")
    code, out = run(tmp_path, *GRID, "+x=1,2")
    assert code == 2, out
    assert f"the study's folder {tmp_path / 'multirun' / 's'} cannot be written: [Errno" in out
    assert "Traceback" not in out


@pytest.mark.long
def test_refused_trials_run_once_folders_can_be_created(tmp_path: Path) -> None:
    study = tmp_path / "multirun" / "s"
    study.mkdir(parents=True)
    for number in range(2, 12):
        (study / str(number)).write_text("in the way")
    line = [*GRID, "+x=range(1,13)"]
    code, out = run(tmp_path, *line)
    assert code == 3, out
    assert out.count("3 trials in a row were refused") == 1, out
    assert "Correct the cause of the refusal, or the wrong setting in this command. Resume with: " in out
    assert f"its folder cannot be made: [Errno 20] Not a directory: '{study}/2" in out
    assert "Traceback" not in out
    states = [row.state for row in trials(tmp_path)]
    assert states[:2] == [State.COMPLETED] * 2
    assert len(states) <= 2 + 3 + 2 * 2  # because each of the two trials that start in between may reset the count
    for number in range(2, 12):
        (study / str(number)).unlink()
    code, out = run(tmp_path, *line)
    assert code == 0, out
    assert [row.state for row in trials(tmp_path)] == [State.COMPLETED] * 12
    assert {row.params["+x"] for row in trials(tmp_path)} == set(range(1, 13))


@some("rate, code, ended", [("0.1", 1, 1), ("0.5", 0, 6)], 2)
def test_failures_above_the_maximum_rate_stop_the_study(tmp_path: Path, rate: str, code: int, ended: int) -> None:
    hows = "+how=raises,exits,a,b,c,d"
    exit_code, out = run(tmp_path, *GRID, hows, f"hydra.sweeper.max_failure_rate={rate}", "hydra.sweeper.n_jobs=1")
    assert exit_code == code, out
    assert len([row for row in trials(tmp_path) if row.state.is_over]) == ended
    assert ("max_failure_rate" in out) == (code == 1)


@some("launcher", ["basic", "joblib"], 2)
def test_foreign_launcher_runs_a_grid(tmp_path: Path, launcher: str) -> None:
    code, out = run(tmp_path, "hydra/sweeper=grid", f"hydra/launcher={launcher}", "+x=1,2,3")
    assert code == 0, out
    assert [row.objective for row in trials(tmp_path)] == [[1.0], [4.0], [9.0]]


def test_slot_owns_gpus_and_a_share_of_cores(tmp_path: Path) -> None:
    code, out = run_with_gpus(tmp_path, 2, *GRID, "+x=1,2", "+sleep=1", "hydra.launcher.gpus_per_node=1")
    assert code == 0, out
    owned = [next(line for line in log.splitlines() if line.startswith("own")) for log in logs(tmp_path)]
    assert {line.split()[1] for line in owned} == {"0", "1"}
    assert owned[0].split("[")[1] != owned[1].split("[")[1] or len(os.sched_getaffinity(0)) == 1


@pytest.mark.long
def test_more_gpus_than_the_machine_has_are_refused(tmp_path: Path) -> None:
    code, out = run_with_gpus(tmp_path, 2, *GRID, "+x=1,2", "hydra.launcher.gpus_per_node=3")
    assert code == 2, out
    assert "this machine has 2 GPUs" in out
    assert not (tmp_path / "multirun").exists()


@pytest.mark.long
def test_spent_gpu_hours_stop_the_study(tmp_path: Path) -> None:
    budget = ["hydra.sweeper.max_gpu_hours=0.0001", "hydra.sweeper.n_jobs=1"]
    code, out = run_with_gpus(tmp_path, 1, *GRID, "+x=1,2,3", "+sleep=1", "hydra.launcher.gpus_per_node=1", *budget)
    assert code == 3, out
    assert "max_gpu_hours=0.0001 is spent" in out
    assert len(trials(tmp_path)) == 1


@pytest.mark.long
def test_memory_limit_of_the_user_is_applied(tmp_path: Path) -> None:
    limit = "hydra.launcher.mem_gb=0.5"
    code, out = run(tmp_path, *GRID, limit, "+eats_gb=0.01,0.8")
    assert code == 1, out
    assert [row.state for row in trials(tmp_path)] == [State.COMPLETED, State.OUT_OF_MEMORY]
    assert "GB, more than hydra.launcher.mem_gb=0.5" in out
    *_, advice = filter(None, out.splitlines())
    assert advice.endswith("--retry out_of_memory hydra.launcher.mem_gb=1"), advice
    _, _, typed = advice.partition(" type more of it: sweepyard ")
    retried = lines.run(["-m", "sweeps", *shlex.split(typed)], tmp_path, {"PYTHONPATH": str(APPS.parents[1])})
    assert retried.code == 0, retried.said
    assert [row.state for row in trials(tmp_path)] == [State.COMPLETED] * 2
    code, out = run(tmp_path / "free", *GRID, "+eats_gb=1.2")  # more than the estimate
    assert code == 0, out


@pytest.mark.long
def test_processes_of_an_ended_trial_are_killed(tmp_path: Path) -> None:
    driver = lines.start(theirs(*GRID, "+spawns=1", "+x=1,2", "+sleep=1.5", "hydra.sweeper.n_jobs=1"), tmp_path)
    study = tmp_path / "multirun" / "s"

    def sleep_count() -> int:
        return sum(process.info["name"] == "sleep" for process in processes(tmp_path))

    lines.wait_until(lambda: sleep_count() == 2)
    lines.wait_until((study / "0" / "attempts" / "1" / "end.json").exists)
    lines.wait_until((study / "1" / "attempts" / "1" / "started").exists)
    lines.wait_until(lambda: sleep_count() == 2)  # of the second trial alone
    done = lines.finish(driver, tmp_path)
    assert done.code == 0, done.said
    assert not processes(tmp_path)


@pytest.mark.long
def test_unnamed_studies_of_one_second_have_separate_folders(tmp_path: Path) -> None:
    line = [lines.THEIRS, "-m", *GRID, "+x=1,2", "hydra.sweeper.tracking=false"]
    drivers = [lines.start(line, tmp_path) for _ in range(2)]
    assert [lines.finish(driver, tmp_path).code for driver in drivers] == [0, 0]
    studies = list((tmp_path / "multirun").iterdir())
    assert [len(rows(study)) for study in studies] == [2, 2]


REFUSED = {
    "+hydra.launcher.time=10": "Did you mean hydra.launcher.timeout_min?",
    "+hydra.launcher.exclusive=true": "hydra.launcher.exclusive is no setting of",
    "+hydra.sweeper.foo=1": "hydra.sweeper.foo is no setting of",
    "+hydra.sweeper.n_trails=1": "Did you mean hydra.sweeper.n_trials?",
    "hydra.sweeper.n_trial=3": "Did you mean 'hydra.sweeper.n_trials'?",
    "hydra/launcher=slrum": "Did you mean hydra/launcher=slurm?",
    "hydra.launcher.mem_gb=0": "hydra.launcher.mem_gb=0.0: it must be 0.001 or more",
    "+cluster=plain": "Type hydra/launcher=slurm too, or remove cluster=plain",
    "hydra.launcher.timeout_min=0": "hydra.launcher.timeout_min=0.0: it must be 0.001 or more",
    "hydra.sweeper.max_gpu_hours=-1": "hydra.sweeper.max_gpu_hours=-1.0: nothing could start",
    "hydra.sweep.dir=/": "hydra.sweeper.study_name=: not a folder's name",
    "hydra.sweeper.custom_search_space=nope.f": "custom_search_space=nope.f cannot be imported",
    "hydra.sweeper.storage=sqlite:////proc/x.db": "hydra.sweeper.storage cannot be used: (sqlite3.OperationalError)",
    "hydra.sweeper.storage=nonsense": "hydra.sweeper.storage cannot be used: ",
}


@some("setting", REFUSED, 7)
def test_invalid_settings_are_refused(tmp_path: Path, setting: str) -> None:
    line = [THEIRS, "-m", *GRID, "+x=1,2", "hydra.sweeper.tracking=false"]
    done = refuse([*line, setting], tmp_path)
    assert done.code == 2, done.said
    assert REFUSED[setting] in done.err
    assert 1 <= len(done.err.splitlines()) <= 2, done.err
    assert "started" not in done.out
    assert "storage" in setting or not (done.folder / "multirun").exists()


def test_app_with_another_sweeper_keeps_answers_of_hydra(tmp_path: Path) -> None:
    done = lines.run([lines.THEIRS, "-m", "+x=1,2", "hydra.sweeper.n_trial=3"], tmp_path)
    assert done.code == 1, done.said
    assert "Key 'n_trial' not in 'BasicSweeperConf'" in done.err


@pytest.mark.long
def test_two_trials_never_share_a_folder(tmp_path: Path) -> None:
    code, out = run(tmp_path, *GRID, "+x=1,2", "hydra.sweep.subdir=same")
    assert code == 0, out
    beside = tmp_path / "multirun" / "s" / "same_1"
    assert f"hydra.sweep.subdir=same: another trial has this folder. Trial 1 runs in {beside}" in out
    assert [row.folder.name for row in trials(tmp_path)] == ["same", "same_1"]


@pytest.mark.long
def test_study_leaves_other_studies_in_the_folder_unchanged(tmp_path: Path) -> None:
    assert run(tmp_path, *GRID, "+x=1,2,3,4")[0] == 0
    done = lines.run(theirs(*GRID, "+x=5,6", "hydra.sweep.dir=multirun", name="all"), tmp_path)
    assert done.code == 0, done.said
    assert [row.params["+x"] for row in rows(tmp_path / "multirun")] == [5, 6]
    assert [row.params["+x"] for row in trials(tmp_path)] == [1, 2, 3, 4]
