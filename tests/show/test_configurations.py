"""Tests of configurations under several seeds, in the terminal, the page and the note."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from sweeps.after import best, refit
from sweeps.analysis import configurations as grouped
from sweeps.analysis.comparison import interval
from sweeps.record.study import By, StudySnapshot, TrialRecord
from sweeps.show import configurations
from sweeps.show.findings import Findings
from sweeps.show.page import report
from sweeps.show.tables import Paragraph
from sweeps.show.terminal import solutions
from sweeps.show.terminal.lines import View
from sweeps.trial.job import Outcome, Point, State
from tests.show.records import headline


def study(
    folder: Path, *trials: tuple[Point, float | State | Outcome], race: int | None = None, **changes: Any
) -> StudySnapshot:
    """Return a study of trials with these objectives or outcomes; trials from number `race` on are of the race."""
    rows = []
    for number, (point, result) in enumerate(trials):
        end = Outcome(result) if isinstance(result, State) else result
        end = end if isinstance(end, Outcome) else Outcome(State.COMPLETED, objective=[end])
        row = TrialRecord(number, point, State.QUEUED, folder / str(number))
        if race is not None and number >= race:
            row = replace(row, by=By.RACE, of=0, seed={"seed": point["seed"]})
        rows.append(row.with_end(end))
    return StudySnapshot("demo", folder, ("acc",), ("maximize",), rows, **changes)


def grid(**by_optimizer: list[float]) -> list[tuple[Point, float | State]]:
    return [
        ({"optimizer": name, "seed": seed}, value)
        for name, values in by_optimizer.items()
        for seed, value in enumerate(values)
    ]


ADAM, SGD, LION = [0.90, 0.92, 0.91], [0.80, 0.83, 0.81], [0.905, 0.915, 0.91]


def tables(summary: StudySnapshot) -> list[list[list[str]]]:
    return [part for part in configurations.build_parts(Findings(summary)) if not isinstance(part, Paragraph)]


def test_seeds_of_a_configuration_share_a_line(tmp_path: Path) -> None:
    summary = study(tmp_path, *grid(sgd=SGD, adam=ADAM))
    low, high = interval(ADAM)
    assert tables(summary)[0][:2] == [
        ["optimizer", "mean acc", "95% interval", "deviation", "seeds"],
        ["adam", "0.910", f"{low:.3f} to {high:.3f}", "0.01", "3"],
    ]
    assert [line[0] for line in tables(summary)[0]] == ["optimizer", "adam", "sgd"]


@pytest.mark.parametrize(
    ("values", "objective", "shown"),
    [
        ([0.9, 0.99], "val_accuracy", "0.37 to 1.00"),
        ([0.01, 0.1], "f1", "0.00 to 0.63"),
        ([0.9, 0.99], "loss", "0.37 to 1.52"),
        ([90.0, 99.0], "accuracy", "37 to 152"),  # percent
        ([0.5, 0.5], "accuracy", "0.5 to 0.5"),
        ([1e-9, 3e-9], "mse", "-1.07062e-08 to 1.47062e-08"),
    ],
)
def test_interval_of_a_fraction_is_cut_at_its_ends(
    tmp_path: Path, values: list[float], objective: str, shown: str
) -> None:
    summary = replace(study(tmp_path, *grid(adam=values)), objective=(objective,))
    assert tables(summary)[0][1][2] == shown


def test_optimizers_are_compared_pairwise(tmp_path: Path) -> None:
    header, *lines = tables(study(tmp_path, *grid(adam=ADAM, sgd=SGD, lion=LION)))[1]
    assert header[:2] == ["optimizer", "and"]
    verdicts = {(first, second): (float(mean), verdict) for first, second, mean, _, _, _, verdict in lines}
    assert verdicts == {
        ("adam", "sgd"): (pytest.approx(0.0967, abs=1e-4), "adam is better"),
        ("adam", "lion"): (pytest.approx(0.0, abs=1e-4), "not significantly different"),
        ("sgd", "lion"): (pytest.approx(-0.0967, abs=1e-4), "lion is better"),
    }
    assert {line[4] for line in lines} == {"3"}


def test_pairs_have_equal_other_params(tmp_path: Path) -> None:
    trials = [({**point, "lr": lr}, value) for lr in (0.1, 0.2) for point, value in grid(adam=ADAM, sgd=SGD)]
    trials[0] = (trials[0][0], State.DIVERGED)  # so that a pair lacks a result
    ((_, line),) = [tables(study(tmp_path, *trials))[1]]
    assert [*line[:2], line[4]] == ["adam", "sgd", "5"]


@pytest.mark.parametrize(
    "trials",
    [
        [],
        [({"seed": 0}, 0.5)],
        [({"lr": 0.1, "seed": 0}, 0.5), ({"lr": 0.2, "seed": 0}, 0.5)],
        [({"lr": 0.1, "seed": 0}, 0.5), ({"lr": 0.2, "seed": 1}, 0.5)],
        [({"lr": 0.1}, 0.5), ({"lr": 0.2}, 0.5)],
    ],
)
def test_trials_without_replicates_are_not_grouped(tmp_path: Path, trials: list[Any]) -> None:
    summary = study(tmp_path, *trials)
    assert configurations.build_parts(Findings(summary)) == []
    assert headline(summary) == ""


def test_seed_key_may_have_another_name_and_a_plus(tmp_path: Path) -> None:
    trials: list[Any] = [({"+run.seed": seed}, 0.5 + seed / 10) for seed in (0, 1)]
    assert configurations.build_parts(Findings(study(tmp_path, *trials))) == []
    (configuration,) = grouped.rank(study(tmp_path, *trials, seed_key="run.seed")).configurations
    assert (configuration.name, configuration.values) == ("all else the same", [0.6, 0.5][::-1])


def test_configuration_with_a_failed_trial_is_not_best(tmp_path: Path) -> None:
    trials = [*grid(adam=ADAM, sgd=SGD), ({"optimizer": "adam", "seed": 3}, State.DIVERGED)]
    summary = study(tmp_path, *trials)
    assert "optimizer=sgd" in headline(summary)
    assert [line[-1] for line in tables(summary)[0]] == ["no result", "", "1"]


@pytest.mark.parametrize("state", [State.PRUNED, State.TIMED_OUT])
def test_pruned_or_timed_out_trial_has_no_result(tmp_path: Path, state: State) -> None:
    """Skip the objective that the trial returned before the end."""
    cut = Outcome(state, objective=[0.99])
    summary = study(tmp_path, ({"lr": 0.1}, 0.9), ({"lr": 0.2}, cut), ({"lr": 0.3}, 0.8))
    candidates = grouped.candidates(grouped.by_configuration(summary.rows, "seed"), 2, maximize=True)
    assert [configuration.name for configuration in candidates] == ["lr=0.1", "lr=0.3"]
    summary = study(tmp_path, *grid(adam=ADAM, sgd=SGD), ({"optimizer": "adam", "seed": 0}, cut), race=6)
    (adam, sgd) = grouped.by_configuration(summary.rows, "seed")
    assert (adam.values, adam.failed, sgd.raced) == ([], 1, [])
    assert adam.mean() == pytest.approx(0.91)
    assert adam.results() == {0: pytest.approx(float("nan"), nan_ok=True) if state is State.TIMED_OUT else None}


def race(folder: Path, third: list[float | State]) -> StudySnapshot:
    objectives: list[float] = [0.95, 0.94, 0.93]
    searched: list[Any] = [({"lr": lr}, value) for lr, value in zip((0.1, 0.2, 0.3), objectives, strict=True)]
    raced: list[Any] = [
        ({"lr": lr, "seed": seed}, value)
        for lr, values in ((0.1, [0.91, 0.90, 0.92]), (0.2, [0.92, 0.905, 0.915]), (0.3, third))
        for seed, value in enumerate(values, 1)
    ]
    return study(folder, *searched, *raced, race=3)


def test_race_winner_is_chosen_by_fresh_seeds_only(tmp_path: Path) -> None:
    summary = race(tmp_path, [0.80, 0.79, 0.81])
    low, high = interval([0.92, 0.905, 0.915], 0.975)  # corrected, because two configurations are left
    result = f"lr=0.2: mean acc 0.913, 95% interval {low:.3f} to {high:.3f}, 3 seeds"
    assert headline(summary) == (
        f"**The final race's winner**: {result}. Not significantly different from 1 other: lr=0.1."
    )
    assert [line[-1] for line in tables(summary)[0]] == [
        "final race", "winner", "not significantly different", "worse after 3 seeds (p=0.003)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("third", "status"),
    [([State.FAILED], "it failed under a fresh seed"), ([0.9, 0.9], "running"), ([0.92], "running")],
)
def test_race_shows_failed_and_running_candidates(tmp_path: Path, third: list[Any], status: str) -> None:
    summary = race(tmp_path, third)
    assert tables(summary)[0][-1][-1] == status
    assert ("running" in headline(summary)) == (status == "running")


def test_terminal_page_and_note_show_the_same_means(tmp_path: Path) -> None:
    summary = study(tmp_path, *grid(adam=ADAM, sgd=SGD))
    view = View()
    view.console = Console(record=True, width=160)
    view.closing(summary)
    terminal = view.console.export_text()
    page = report.write(summary).read_text()
    note = report.markdown(summary)
    for place in (terminal, page, note):
        assert "mean acc" in place
        assert "adam is better" in place
    assert "**Best mean**: optimizer=adam: mean acc 0.910," in note


@pytest.mark.parametrize("race", [None, 3])
def test_best_trial_is_chosen_by_mean_everywhere(tmp_path: Path, race: int | None) -> None:
    lucky: list[Any] = [({"lr": 1, "seed": 0}, 0.5), ({"lr": 2, "seed": 0}, 0.99), ({"lr": 3, "seed": 0}, 0.4)]
    means: list[Any] = [({"lr": 2, "seed": seed}, 0.1) for seed in (1, 2)]
    means += [({"lr": 1, "seed": seed}, 0.6) for seed in (1, 2)]
    summary = study(tmp_path, *lucky, *means, race=race)
    chosen = best.choose_trial(summary, None)
    assert (chosen.number, best.choose_trial(summary, 1).number) == (0, 1)
    solutions.write(summary)
    solution = yaml.safe_load((tmp_path / solutions.FILE).read_text())
    assert solution["best_params"] == {"lr": 1}
    assert solution["best_value"] == pytest.approx(0.6 if race else (0.5 + 0.6 + 0.6) / 3)
    tags = refit.tags(summary, chosen, chosen, [])
    low, high = grouped.best(summary).interval  # type: ignore[union-attr]
    assert tags["interval"] == f"{low:.6g} to {high:.6g}"


def test_race_without_results_has_no_winner(tmp_path: Path) -> None:
    """Order the configurations that did not fail first."""
    trials: list[tuple[Point, float | State]] = [({"x": x, "seed": 0}, value) for x, value in ((1, 0.9), (2, 0.8))]
    trials += [({"x": 1, "seed": seed}, State.FAILED) for seed in (1, 2)]
    summary = study(tmp_path, *trials, race=2)
    text, table, *_ = configurations.build_parts(Findings(summary))
    assert isinstance(text, Paragraph)
    assert text.markdown == "**The final race has no winner**: each of its configurations failed under a fresh seed."
    assert [line[0] for line in table] == ["x", "2", "1"]
