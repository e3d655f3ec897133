"""Tests of studies that the former version stored in Optuna's journal, and that the same command resumes."""

import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps import __main__ as commands
from sweeps.record.study import TrialRecord
from sweeps.trial.folder import TrialFolder
from tests import command_lines as lines
from tests import old_studies
from tests.command_lines import Done, rows

pytestmark = pytest.mark.long  # because most of eighteen studies are resumed
CONVERTS = True
"""Whether this version has its own record, and another name for the sampler of former studies."""
EXPECTED = old_studies.expected()
NAMES = [*EXPECTED]
ENDED = [name for name in NAMES if "after" in EXPECTED[name]]
"""The studies with an expected result for every trial."""
KILLED = [name for name in NAMES if name != "slurm" and not name.startswith("done_")]
"""The studies whose driver was killed together with a running trial."""
IN_FOLDERS = [name for name in NAMES if not name.startswith("stored_")]
Trial = list[Any]
"""Number, state, params, objective and count of attempts, in the format of `expected.json`."""


def local_command(words: Sequence[str]) -> list[str]:
    """Return the command for this machine, which has no cluster."""
    local = ["hydra/launcher=local" if word == "hydra/launcher=slurm" else word for word in words]
    return [word for word in local if not word.startswith("hydra.launcher.poll_s")]


def resume(study: Path, *more: str) -> Done:
    """Run the command that started the study once more."""
    folder = study.parents[1]
    return lines.run([*local_command(old_studies.command(study)), *more], folder)


def answer(study: Path, *words: str) -> str:
    """Return the output of `python -m sweeps WORDS` in the folder of the study's command."""
    output = io.StringIO()
    with chdir(study.parents[1]), redirect_stdout(output), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")
        patch.setattr("sys.argv", ["sweeps", *words])
        with pytest.raises(SystemExit) as exit_:
            commands.main()
    assert not exit_.value.code, output.getvalue()
    return output.getvalue()


def records(study: Path) -> list[TrialRecord]:
    with chdir(study.parents[1]):  # because the path of a storage may be relative to this folder
        return rows(study)


def trial_of(row: TrialRecord) -> Trial:
    return [row.number, row.failure_signature[0].replace(" ", "_"), row.params, row.objective, len(row.attempts)]


def ended_trials(study: Path) -> list[Trial]:
    return [trial_of(row) for row in records(study) if row.state.is_over]


def as_text(trials: Sequence[Trial]) -> list[str]:
    """Return each trial as a line of JSON, in which 4, 4.0 and "4" differ."""
    return [json.dumps(trial, sort_keys=True) for trial in trials]


def ends(study: Path, trials: Sequence[Trial]) -> dict[str, tuple[bytes, int]]:
    """Return the content and the modification time of each `end.json` of these trials."""
    numbers = {str(number) for number, *_ in trials}
    files = [file for file in study.glob("*/attempts/*/end.json") if file.parts[-4] in numbers]
    return {str(file.relative_to(study)): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def configuration(row: TrialRecord) -> str:
    return json.dumps({key: value for key, value in row.params.items() if key != "seed"}, sort_keys=True)


def best_numbers(output: str) -> list[int]:
    return [int(number) for number in re.findall(r"^# trial (\d+):", output, re.M)]


@pytest.fixture(scope="module")
def former_studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the studies as the former version left them, by name."""
    folder = tmp_path_factory.mktemp("before")
    return {name: old_studies.unpack(folder / name, name) for name in NAMES}


@pytest.fixture(scope="module")
def resumed_studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Done]]:
    """Return each resumed study and the output of its command, by name."""
    folder = tmp_path_factory.mktemp("after")
    studies = [old_studies.unpack(folder / name, name) for name in NAMES]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(resume, studies))
    return dict(zip(NAMES, zip(studies, done, strict=True), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_ended_trials_are_read_unchanged(former_studies: dict[str, Path], name: str) -> None:
    assert as_text(ended_trials(former_studies[name])) == as_text(EXPECTED[name]["ended"])


@pytest.mark.parametrize("name", NAMES)
def test_commands_answer_before_a_study_resumes(former_studies: dict[str, Path], name: str) -> None:
    study, total = former_studies[name], EXPECTED[name]["total"]
    count = len(EXPECTED[name]["ended"])
    assert f"study {name}: {count} of {total} trials have ended" in answer(study, "status", name)
    assert f"{count} of {total}" in answer(study, "list")
    assert best_numbers(answer(study, "best", name)) == EXPECTED[name]["best"]


@pytest.mark.parametrize("name", NAMES)
def test_former_study_loads_before_resuming(former_studies: dict[str, Path], name: str) -> None:
    with chdir(former_studies[name].parents[1]):
        loaded = sweeps.load(name)
    ended = EXPECTED[name]["ended"]
    objective = loaded.trials[loaded.definition.objective[0]].dropna().to_dict()
    assert objective == {number: values[0] for number, _, _, values, _ in ended if values}
    assert loaded.snapshot.total == EXPECTED[name]["total"]


@pytest.mark.parametrize("name", NAMES)
def test_resumed_study_ends_like_an_uninterrupted_study(
    resumed_studies: dict[str, tuple[Path, Done]], name: str
) -> None:
    study, done = resumed_studies[name]
    assert done.code == EXPECTED[name]["code"], done.said
    assert "Traceback" not in done.err
    trials = records(study)
    assert [row.number for row in trials] == list(range(len(trials)))
    assert all(row.state.is_over for row in trials)
    with chdir(study.parents[1]):
        assert sweeps.load(name).snapshot.total == len(trials)


@pytest.mark.parametrize("name", NAMES)
def test_ended_trials_do_not_run_again(
    former_studies: dict[str, Path], resumed_studies: dict[str, tuple[Path, Done]], name: str
) -> None:
    ended = EXPECTED[name]["ended"]
    study, _ = resumed_studies[name]
    numbers = {number for number, *_ in ended}
    assert as_text([trial for trial in ended_trials(study) if trial[0] in numbers]) == as_text(ended)
    assert ends(study, ended) == ends(former_studies[name], ended)


@pytest.mark.parametrize("name", KILLED)
def test_trial_of_a_killed_driver_runs_again(resumed_studies: dict[str, tuple[Path, Done]], name: str) -> None:
    study, _ = resumed_studies[name]
    ended = {number for number, *_ in EXPECTED[name]["ended"]}
    running = min(set(range(len(ended) + 1)) - ended)
    states = [end.state for end in TrialFolder(study / str(running)).ends()]
    assert len(states) > 1
    assert states[-2] == "cancelled"
    assert states[-1] in {"completed", "pruned"}


def test_job_completed_after_driver_death_counts(resumed_studies: dict[str, tuple[Path, Done]]) -> None:
    study, _ = resumed_studies["slurm"]
    assert [end.state for end in TrialFolder(study / "1").ends()] == ["completed"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "search_custom"])  # because code draws params
def test_each_configuration_runs_under_each_seed_once(resumed_studies: dict[str, tuple[Path, Done]], name: str) -> None:
    study, _ = resumed_studies[name]
    params = [json.dumps(row.params, sort_keys=True) for row in records(study)]
    assert len(set(params)) == len(params)


@pytest.mark.parametrize("name", ENDED)
def test_resumed_study_equals_the_result_of_the_former_version(
    resumed_studies: dict[str, tuple[Path, Done]], name: str
) -> None:
    study, _ = resumed_studies[name]
    assert as_text(ended_trials(study)) == as_text(EXPECTED[name]["after"])
    assert best_numbers(answer(study, "best", name)) == EXPECTED[name]["best_after"]


@pytest.mark.parametrize("name", NAMES)
def test_commands_answer_after_a_study_resumed(resumed_studies: dict[str, tuple[Path, Done]], name: str) -> None:
    study, _ = resumed_studies[name]
    count = len(records(study))
    assert f"study {name}: {count} of {count} trials have ended" in answer(study, "status", name)
    assert f"{count} of {count}" in answer(study, "list")
    assert best_numbers(answer(study, "best", name))


@pytest.mark.parametrize("name", NAMES)
def test_former_study_loads_after_resuming(resumed_studies: dict[str, tuple[Path, Done]], name: str) -> None:
    study, _ = resumed_studies[name]
    with chdir(study.parents[1]):
        loaded = sweeps.load(name)
    trials = records(study)
    assert list(loaded.trials.index) == [row.number for row in trials]
    assert list(loaded.trials["state"]) == [str(row.state) for row in trials]
    for row in trials:
        shown = loaded.trials.loc[row.number]
        assert {key: shown[key] for key in row.params} == row.params
        if row.objective:
            assert shown[loaded.definition.objective[0]] == row.objective[0]


SEARCHES = ["search", "learned", "asha", "front", "nsgaii", "cmaes", "repeats", "stored_search", "search_custom"]


@pytest.mark.parametrize("name", SEARCHES)
def test_search_has_the_requested_number_of_trials(resumed_studies: dict[str, tuple[Path, Done]], name: str) -> None:
    """Count the trials before the final race, because a statistical test decides the race's number of trials."""
    study, _ = resumed_studies[name]
    assert sum(not row.race for row in records(study)) == EXPECTED[name]["total"]


def test_resumed_search_completes_replicates_and_final_race(resumed_studies: dict[str, tuple[Path, Done]]) -> None:
    study, _ = resumed_studies["repeats"]
    trials = records(study)
    searched = Counter(configuration(row) for row in trials if not row.race)
    outside = configuration(trials[6])
    assert searched.pop(outside) == 1
    assert set(searched.values()) == {3}
    assert len(searched) == 6
    raced = Counter(configuration(row) for row in trials if row.race)
    assert len(raced) == 2
    assert set(raced.values()) <= {2, 3}


def test_added_trials_stay_marked_as_added(
    former_studies: dict[str, Path], resumed_studies: dict[str, tuple[Path, Done]]
) -> None:
    for name in ("repeats", "race"):
        for study in (former_studies[name], resumed_studies[name][0]):
            assert [row.number for row in records(study) if row.by_hand] == [5, 6]


def test_resumed_search_proposes_no_infeasible_trial(resumed_studies: dict[str, tuple[Path, Done]]) -> None:
    study, _ = resumed_studies["search"]
    later = records(study)[12:]
    assert not [row for row in later if row.infeasible]


def test_completed_study_has_nothing_left_to_do(resumed_studies: dict[str, tuple[Path, Done]]) -> None:
    for name in ("grid", "search", "race", "front", "stored_search"):
        study, _ = resumed_studies[name]
        trials = as_text(ended_trials(study))
        done = resume(study)
        assert done.code == EXPECTED[name]["code"], done.said
        assert "nothing is left to do" in done.out
        assert as_text(ended_trials(study)) == trials


@pytest.mark.parametrize("name", ["learned", "done_search"])
def test_former_sampler_name_is_accepted(tmp_path: Path, name: str) -> None:
    """Resume with the former sampler, although the name tpe now means Optuna's sampler."""
    names = [[], ["hydra/sweeper/sampler=tpe"]]
    names += [["hydra/sweeper/sampler=default"]] * CONVERTS
    studies = [old_studies.unpack(tmp_path / str(i), name) for i in range(len(names))]
    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(lambda i: resume(studies[i], *names[i]), range(len(names))))
    assert [output.code for output in outputs] == [EXPECTED[name]["code"]] * len(names), [
        output.said for output in outputs
    ]
    assert all(f"study {name}: {EXPECTED[name]['total']} trials: " in output.out for output in outputs)
    chosen = {tuple(map(configuration, records(study))) for study in studies}
    assert len(chosen) == 1  # because equal seeds and histories give equal params only under the same sampler


def cut(journal: Path) -> None:
    """Keep about half of the lines, up to the end of a trial, and a part of the next line."""
    rest = journal.read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(rest[: len(rest) * 3 // 5]) if b"datetime_complete" in line)
    journal.write_bytes(b"".join(rest[: last + 1]) + rest[last + 1][:20])


@pytest.mark.parametrize("name", ["grid", "search", "repeats", "race", "front"])
def test_cut_journal_is_repaired_from_the_folders(tmp_path: Path, former_studies: dict[str, Path], name: str) -> None:
    study = old_studies.unpack(tmp_path, name)
    journal = study / "study.journal"
    cut(journal)
    ended = EXPECTED[name]["ended"]
    done = resume(study)
    assert done.code == EXPECTED[name]["code"], done.said
    numbers = {number for number, *_ in ended}
    trials = {row.number: row for row in records(study)}
    assert sorted(trials) == list(range(len(trials)))
    assert [trials[number].params for number in sorted(numbers)] == [params for _, _, params, _, _ in ended]
    assert [trials[number].objective for number in sorted(numbers)] == [values for *_, values, _ in ended]
    assert ends(study, ended) == ends(former_studies[name], ended)


def test_failed_trial_of_an_ended_study_is_retried(tmp_path: Path) -> None:
    study = old_studies.unpack(tmp_path, "done_search")
    done = lines.sweeps(tmp_path, "resume", "done_search", "--retry", "failed")
    assert done.code == 0, done.said
    assert "retries trials 2" in done.out
    counts = [len(row.attempts) for row in records(study)]
    assert counts == [1, 1, 2, *[1] * 8]
    assert {str(row.state) for row in records(study)} == {"completed"}


@pytest.mark.parametrize("point", ["lr=0.05 width=8", "lr=0.1 width=16"])
def test_point_is_added_to_an_ended_study(tmp_path: Path, point: str) -> None:
    study = old_studies.unpack(tmp_path, "done_grid")
    done = lines.sweeps(tmp_path, "resume", "done_grid", "--add", point)
    assert done.code == 0, done.said
    trials = records(study)
    assert as_text(ended_trials(study)[:4]) == as_text(EXPECTED["done_grid"]["ended"])
    (new,) = trials[4:]
    assert " ".join(f"{key}={value}" for key, value in new.params.items()) == point
    assert new.by_hand


def test_ended_grid_is_extended(tmp_path: Path) -> None:
    study = old_studies.unpack(tmp_path, "done_grid")
    words = ["lr=0.1,0.03,0.01" if word == "lr=0.1,0.03" else word for word in old_studies.command(study)]
    done = lines.run([*words, "hydra.sweeper.extend=true"], tmp_path)
    assert done.code == 0, done.said
    trials = records(study)
    assert as_text(ended_trials(study)[:4]) == as_text(EXPECTED["done_grid"]["ended"])
    assert [row.params for row in trials[4:]] == [{"lr": 0.01, "width": 4}, {"lr": 0.01, "width": 8}]


def test_changed_values_of_a_former_grid_are_refused(tmp_path: Path) -> None:
    study = old_studies.unpack(tmp_path, "grid")
    words = ["lr=0.1,0.02" if word == "lr=0.1,0.01" else word for word in old_studies.command(study)]
    done = lines.run(words, tmp_path)
    assert done.code == 2
    assert "study grid was started with other values: lr=0.1,0.02 was 0.1,0.01" in done.said
    assert as_text(ended_trials(study)) == as_text(EXPECTED["grid"]["ended"])


@pytest.mark.parametrize("name", ["done_search", "learned"])
def test_new_study_warm_starts_from_a_former_study(tmp_path: Path, name: str) -> None:
    study = old_studies.unpack(tmp_path, name)
    words = [word for word in old_studies.command(study) if "study_name" not in word and "n_trials" not in word]
    more = [f"hydra.sweeper.learn_from=[{name}]", "hydra.sweeper.n_trials=2", "hydra.sweeper.study_name=new"]
    done = lines.run([*words, *more], tmp_path)
    assert done.code == 0, done.said
    assert f"warm start: 11 trials of study {name}" in done.out
    assert as_text(ended_trials(study)) == as_text(EXPECTED[name]["ended"])


if CONVERTS:

    @pytest.fixture(scope="module")
    def without_old_journals(
        tmp_path_factory: pytest.TempPathFactory, resumed_studies: dict[str, tuple[Path, Done]]
    ) -> Iterator[dict[str, Path]]:
        """Yield copies of the resumed studies without the former version's journal."""
        folder = tmp_path_factory.mktemp("without")
        copies = {}
        for name in IN_FOLDERS:
            shutil.copytree(resumed_studies[name][0].parents[1], folder / name)
            copies[name] = folder / name / "multirun" / name
        for study in copies.values():
            for file in study.glob("study.journal*"):
                file.unlink()
        yield copies

    @pytest.mark.parametrize("name", IN_FOLDERS)
    def test_former_journal_is_kept(
        former_studies: dict[str, Path], resumed_studies: dict[str, tuple[Path, Done]], name: str
    ) -> None:
        study, _ = resumed_studies[name]
        assert (study / "journal.jsonl").exists()
        old = (former_studies[name] / "study.journal").read_bytes()
        assert [file.read_bytes() for file in study.glob("study.journal*")] == [old]

    @pytest.mark.parametrize("name", IN_FOLDERS)
    def test_former_journal_is_not_needed(
        without_old_journals: dict[str, Path], resumed_studies: dict[str, tuple[Path, Done]], name: str
    ) -> None:
        study, trials = without_old_journals[name], as_text(ended_trials(resumed_studies[name][0]))
        assert as_text(ended_trials(study)) == trials
        done = resume(study)
        assert done.code == EXPECTED[name]["code"], done.said
        assert "nothing is left to do" in done.out
        assert "lacks" not in done.out
        assert as_text(ended_trials(study)) == trials
