"""Studies that the version before kept in Optuna's journal, most of them killed: the same command again goes on."""

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

pytestmark = pytest.mark.long  # eighteen studies, most of them resumed
CONVERTS = True
"""Whether this version has a record of its own, and the sampler of old studies another name."""
EXPECTED = old_studies.expected()
NAMES = [*EXPECTED]
ENDED = [name for name in NAMES if "after" in EXPECTED[name]]
"""Those of which every trial is determined."""
KILLED = [name for name in NAMES if name != "slurm" and not name.startswith("done_")]
"""Those of which a trial ran when its driver was killed, and the trial with it."""
IN_FOLDERS = [name for name in NAMES if not name.startswith("stored_")]
Trial = list[Any]
"""Number, state, params, objective and the count of attempts, as `expected.json` has it."""


def here(words: Sequence[str]) -> list[str]:
    """A command for this machine: without a cluster."""
    local = ["hydra/launcher=local" if word == "hydra/launcher=slurm" else word for word in words]
    return [word for word in local if not word.startswith("hydra.launcher.poll_s")]


def typed_again(study: Path, *more: str) -> Done:
    """The command that started a study, once more."""
    folder = study.parents[1]
    return lines.run([*here(old_studies.command(study)), *more], folder)


def answer(study: Path, *words: str) -> str:
    """What `python -m sweeps WORDS` prints where the study was started."""
    said = io.StringIO()
    with chdir(study.parents[1]), redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")
        patch.setattr("sys.argv", ["sweeps", *words])
        with pytest.raises(SystemExit) as exit_:
            commands.main()
    assert not exit_.value.code, said.getvalue()
    return said.getvalue()


def records(study: Path) -> list[TrialRecord]:
    with chdir(study.parents[1]):  # a storage of the user's may be named from there
        return rows(study)


def trial_of(row: TrialRecord) -> Trial:
    return [row.number, row.failure_signature[0].replace(" ", "_"), row.params, row.objective, len(row.attempts)]


def over(study: Path) -> list[Trial]:
    return [trial_of(row) for row in records(study) if row.state.is_over]


def as_text(trials: Sequence[Trial]) -> list[str]:
    """A line each, in which 4, 4.0 and "4" differ."""
    return [json.dumps(trial, sort_keys=True) for trial in trials]


def ends(study: Path, trials: Sequence[Trial]) -> dict[str, tuple[bytes, int]]:
    """What the files say of the ends of these trials, and when each was written."""
    numbers = {str(number) for number, *_ in trials}
    files = [file for file in study.glob("*/attempts/*/end.json") if file.parts[-4] in numbers]
    return {str(file.relative_to(study)): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def configuration(row: TrialRecord) -> str:
    return json.dumps({key: value for key, value in row.params.items() if key != "seed"}, sort_keys=True)


def best_numbers(said: str) -> list[int]:
    return [int(number) for number in re.findall(r"^# trial (\d+):", said, re.M)]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The studies as they were left, by their names."""
    folder = tmp_path_factory.mktemp("before")
    return {name: old_studies.unpack(folder / name, name) for name in NAMES}


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Done]]:
    """The studies after the same command again, and what it said."""
    folder = tmp_path_factory.mktemp("after")
    studies = [old_studies.unpack(folder / name, name) for name in NAMES]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(typed_again, studies))
    return dict(zip(NAMES, zip(studies, done, strict=True), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_ended_trials_are_read_unchanged(before: dict[str, Path], name: str) -> None:
    assert as_text(over(before[name])) == as_text(EXPECTED[name]["ended"])


@pytest.mark.parametrize("name", NAMES)
def test_commands_answer_before_a_study_resumes(before: dict[str, Path], name: str) -> None:
    study, total = before[name], EXPECTED[name]["total"]
    count = len(EXPECTED[name]["ended"])
    assert f"study {name}: {count} of {total} trials have ended" in answer(study, "status", name)
    assert f"{count} of {total}" in answer(study, "list")
    assert best_numbers(answer(study, "best", name)) == EXPECTED[name]["best"]


@pytest.mark.parametrize("name", NAMES)
def test_former_study_loads_before_resuming(before: dict[str, Path], name: str) -> None:
    with chdir(before[name].parents[1]):
        loaded = sweeps.load(name)
    ended = EXPECTED[name]["ended"]
    objective = loaded.trials[loaded.definition.objective[0]].dropna().to_dict()
    assert objective == {number: values[0] for number, _, _, values, _ in ended if values}
    assert loaded.snapshot.total == EXPECTED[name]["total"]


@pytest.mark.parametrize("name", NAMES)
def test_resumed_study_ends_like_an_uninterrupted_study(after: dict[str, tuple[Path, Done]], name: str) -> None:
    study, done = after[name]
    assert done.code == EXPECTED[name]["code"], done.said
    assert "Traceback" not in done.err
    found = records(study)
    assert [row.number for row in found] == list(range(len(found)))
    assert all(row.state.is_over for row in found)
    with chdir(study.parents[1]):
        assert sweeps.load(name).snapshot.total == len(found)


@pytest.mark.parametrize("name", NAMES)
def test_no_trial_that_had_ended_runs_again(
    before: dict[str, Path], after: dict[str, tuple[Path, Done]], name: str
) -> None:
    ended = EXPECTED[name]["ended"]
    study, _ = after[name]
    numbers = {number for number, *_ in ended}
    assert as_text([one for one in over(study) if one[0] in numbers]) == as_text(ended)
    assert ends(study, ended) == ends(before[name], ended)


@pytest.mark.parametrize("name", KILLED)
def test_a_trial_that_was_running_runs_once_more(after: dict[str, tuple[Path, Done]], name: str) -> None:
    study, _ = after[name]
    ended = {number for number, *_ in EXPECTED[name]["ended"]}
    running = min(set(range(len(ended) + 1)) - ended)
    said = [end.state for end in TrialFolder(study / str(running)).ends()]
    assert len(said) > 1
    assert said[-2] == "cancelled"
    assert said[-1] in {"completed", "pruned"}


def test_a_job_that_ended_after_its_driver_died_counts(after: dict[str, tuple[Path, Done]]) -> None:
    study, _ = after["slurm"]
    assert [end.state for end in TrialFolder(study / "1").ends()] == ["completed"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "search_custom"])  # which draws in code
def test_each_configuration_runs_under_each_seed_once(after: dict[str, tuple[Path, Done]], name: str) -> None:
    study, _ = after[name]
    params = [json.dumps(row.params, sort_keys=True) for row in records(study)]
    assert len(set(params)) == len(params)


@pytest.mark.parametrize("name", ENDED)
def test_its_trials_and_its_best_are_those_that_the_version_before_would_have_had(
    after: dict[str, tuple[Path, Done]], name: str
) -> None:
    study, _ = after[name]
    assert as_text(over(study)) == as_text(EXPECTED[name]["after"])
    assert best_numbers(answer(study, "best", name)) == EXPECTED[name]["best_after"]


@pytest.mark.parametrize("name", NAMES)
def test_commands_answer_after_a_study_resumed(after: dict[str, tuple[Path, Done]], name: str) -> None:
    study, _ = after[name]
    count = len(records(study))
    assert f"study {name}: {count} of {count} trials have ended" in answer(study, "status", name)
    assert f"{count} of {count}" in answer(study, "list")
    assert best_numbers(answer(study, "best", name))


@pytest.mark.parametrize("name", NAMES)
def test_former_study_loads_after_resuming(after: dict[str, tuple[Path, Done]], name: str) -> None:
    study, _ = after[name]
    with chdir(study.parents[1]):
        loaded = sweeps.load(name)
    found = records(study)
    assert list(loaded.trials.index) == [row.number for row in found]
    assert list(loaded.trials["state"]) == [str(row.state) for row in found]
    for row in found:
        shown = loaded.trials.loc[row.number]
        assert {key: shown[key] for key in row.params} == row.params
        if row.objective:
            assert shown[loaded.definition.objective[0]] == row.objective[0]


SEARCHES = ["search", "learned", "asha", "front", "nsgaii", "cmaes", "repeats", "stored_search", "search_custom"]


@pytest.mark.parametrize("name", SEARCHES)
def test_search_has_the_requested_number_of_trials(after: dict[str, tuple[Path, Done]], name: str) -> None:
    """Beside those of the final race, which ends when a test tells."""
    study, _ = after[name]
    assert sum(not row.race for row in records(study)) == EXPECTED[name]["total"]


def test_the_repeats_of_a_search_are_completed_and_its_race_run(after: dict[str, tuple[Path, Done]]) -> None:
    study, _ = after["repeats"]
    found = records(study)
    searched = Counter(configuration(row) for row in found if not row.race)
    outside = configuration(found[6])
    assert searched.pop(outside) == 1
    assert set(searched.values()) == {3}
    assert len(searched) == 6
    raced = Counter(configuration(row) for row in found if row.race)
    assert len(raced) == 2
    assert set(raced.values()) <= {2, 3}


def test_by_hand_stays_by_hand(before: dict[str, Path], after: dict[str, tuple[Path, Done]]) -> None:
    for name in ("repeats", "race"):
        for study in (before[name], after[name][0]):
            assert [row.number for row in records(study) if row.by_hand] == [5, 6]


def test_what_failed_is_avoided_and_what_cannot_run_is_no_trial_twice(after: dict[str, tuple[Path, Done]]) -> None:
    study, _ = after["search"]
    later = records(study)[12:]
    assert not [row for row in later if row.infeasible]


def test_sync_leaves_nothing_to_do(after: dict[str, tuple[Path, Done]]) -> None:
    for name in ("grid", "search", "race", "front", "stored_search"):
        study, _ = after[name]
        known = as_text(over(study))
        done = typed_again(study)
        assert done.code == EXPECTED[name]["code"], done.said
        assert "nothing is left to do" in done.out
        assert as_text(over(study)) == known


@pytest.mark.parametrize("name", ["learned", "done_search"])
def test_former_sampler_name_is_accepted(tmp_path: Path, name: str) -> None:
    """Optuna's own tpe has that name now: a study that was begun with the old one goes on with it."""
    names = [[], ["hydra/sweeper/sampler=tpe"]]
    names += [["hydra/sweeper/sampler=default"]] * CONVERTS
    studies = [old_studies.unpack(tmp_path / str(i), name) for i in range(len(names))]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda i: typed_again(studies[i], *names[i]), range(len(names))))
    assert [one.code for one in done] == [EXPECTED[name]["code"]] * len(names), [one.said for one in done]
    assert all(f"study {name}: {EXPECTED[name]['total']} trials: " in one.out for one in done)
    chosen = {tuple(map(configuration, records(study))) for study in studies}
    assert len(chosen) == 1  # the same seed and history: the same sampler


def cut(journal: Path) -> None:
    """Leave some half of the lines, the last one that a trial's end, and half a line more."""
    rest = journal.read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(rest[: len(rest) * 3 // 5]) if b"datetime_complete" in line)
    journal.write_bytes(b"".join(rest[: last + 1]) + rest[last + 1][:20])


@pytest.mark.parametrize("name", ["grid", "search", "repeats", "race", "front"])
def test_cut_journal_is_repaired_from_the_folders(tmp_path: Path, before: dict[str, Path], name: str) -> None:
    study = old_studies.unpack(tmp_path, name)
    journal = study / "study.journal"
    cut(journal)
    ended = EXPECTED[name]["ended"]
    done = typed_again(study)
    assert done.code == EXPECTED[name]["code"], done.said
    numbers = {number for number, *_ in ended}
    found = {row.number: row for row in records(study)}
    assert sorted(found) == list(range(len(found)))
    assert [found[number].params for number in sorted(numbers)] == [params for _, _, params, _, _ in ended]
    assert [found[number].objective for number in sorted(numbers)] == [values for *_, values, _ in ended]
    assert ends(study, ended) == ends(before[name], ended)


def test_a_trial_of_a_study_that_ended_is_retried(tmp_path: Path) -> None:
    study = old_studies.unpack(tmp_path, "done_search")
    done = lines.sweeps(tmp_path, "resume", "done_search", "--retry", "failed")
    assert done.code == 0, done.said
    assert "retries trials 2" in done.out
    counts = [len(row.attempts) for row in records(study)]
    assert counts == [1, 1, 2, *[1] * 8]
    assert {str(row.state) for row in records(study)} == {"completed"}


@pytest.mark.parametrize("point", ["lr=0.05 width=8", "lr=0.1 width=16"])
def test_a_point_is_added_to_a_study_that_ended(tmp_path: Path, point: str) -> None:
    study = old_studies.unpack(tmp_path, "done_grid")
    done = lines.sweeps(tmp_path, "resume", "done_grid", "--add", point)
    assert done.code == 0, done.said
    found = records(study)
    assert as_text(over(study)[:4]) == as_text(EXPECTED["done_grid"]["ended"])
    (new,) = found[4:]
    assert " ".join(f"{key}={value}" for key, value in new.params.items()) == point
    assert new.by_hand


def test_a_grid_that_ended_is_extended(tmp_path: Path) -> None:
    study = old_studies.unpack(tmp_path, "done_grid")
    words = ["lr=0.1,0.03,0.01" if word == "lr=0.1,0.03" else word for word in old_studies.command(study)]
    done = lines.run([*words, "hydra.sweeper.extend=true"], tmp_path)
    assert done.code == 0, done.said
    found = records(study)
    assert as_text(over(study)[:4]) == as_text(EXPECTED["done_grid"]["ended"])
    assert [row.params for row in found[4:]] == [{"lr": 0.01, "width": 4}, {"lr": 0.01, "width": 8}]


def test_other_values_are_refused_as_before(tmp_path: Path) -> None:
    study = old_studies.unpack(tmp_path, "grid")
    words = ["lr=0.1,0.02" if word == "lr=0.1,0.01" else word for word in old_studies.command(study)]
    done = lines.run(words, tmp_path)
    assert done.code == 2
    assert "study grid was started with other values: lr=0.1,0.02 was 0.1,0.01" in done.said
    assert as_text(over(study)) == as_text(EXPECTED["grid"]["ended"])


@pytest.mark.parametrize("name", ["done_search", "learned"])
def test_a_new_study_learns_from_one_of_the_version_before(tmp_path: Path, name: str) -> None:
    study = old_studies.unpack(tmp_path, name)
    words = [word for word in old_studies.command(study) if "study_name" not in word and "n_trials" not in word]
    more = [f"hydra.sweeper.learn_from=[{name}]", "hydra.sweeper.n_trials=2", "hydra.sweeper.study_name=new"]
    done = lines.run([*words, *more], tmp_path)
    assert done.code == 0, done.said
    assert f"warm start: 11 trials of study {name}" in done.out
    assert as_text(over(study)) == as_text(EXPECTED[name]["ended"])


if CONVERTS:

    @pytest.fixture(scope="module")
    def without_old_journals(
        tmp_path_factory: pytest.TempPathFactory, after: dict[str, tuple[Path, Done]]
    ) -> Iterator[dict[str, Path]]:
        """Copies of the studies that went on, from which the journal of the version before was deleted."""
        folder = tmp_path_factory.mktemp("without")
        copies = {}
        for name in IN_FOLDERS:
            shutil.copytree(after[name][0].parents[1], folder / name)
            copies[name] = folder / name / "multirun" / name
        for study in copies.values():
            for file in study.glob("study.journal*"):
                file.unlink()
        yield copies

    @pytest.mark.parametrize("name", IN_FOLDERS)
    def test_the_old_journal_is_kept(before: dict[str, Path], after: dict[str, tuple[Path, Done]], name: str) -> None:
        study, _ = after[name]
        assert (study / "journal.jsonl").exists()
        old = (before[name] / "study.journal").read_bytes()
        assert [file.read_bytes() for file in study.glob("study.journal*")] == [old]

    @pytest.mark.parametrize("name", IN_FOLDERS)
    def test_the_old_journal_is_not_needed(
        without_old_journals: dict[str, Path], after: dict[str, tuple[Path, Done]], name: str
    ) -> None:
        study, known = without_old_journals[name], as_text(over(after[name][0]))
        assert as_text(over(study)) == known
        done = typed_again(study)
        assert done.code == EXPECTED[name]["code"], done.said
        assert "nothing is left to do" in done.out
        assert "lacks" not in done.out
        assert as_text(over(study)) == known
