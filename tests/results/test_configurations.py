"""Configurations under several seeds, as the terminal, the page and the note show them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from sweeps.record import configurations as grouped
from sweeps.record.comparison import interval
from sweeps.record.study import By, StudySnapshot, TrialRecord
from sweeps.results import configurations, report, solutions
from sweeps.results.findings import Findings
from sweeps.results.tables import Paragraph
from sweeps.results.terminal import View
from sweeps.study import best, refit
from sweeps.trial.job import Outcome, Point, State
from tests.results.records import headline


def study(
    folder: Path, *trials: tuple[Point, float | State | Outcome], race: int | None = None, **changes: Any
) -> StudySnapshot:
    """Trials that returned this, or ended so; from number `race` on they are of the final race."""
    rows = []
    for number, (point, said) in enumerate(trials):
        end = Outcome(said) if isinstance(said, State) else said
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


def test_seeds_of_one_configuration_are_one_line(tmp_path: Path) -> None:
    summary = study(tmp_path, *grid(sgd=SGD, adam=ADAM))
    low, high = interval(ADAM)
    assert tables(summary)[0][:2] == [
        ["optimizer", "mean acc", "95% interval", "deviation", "seeds"],
        ["adam", "0.91", f"{low:.6g} to {high:.6g}", "0.01", "3"],
    ]
    assert [line[0] for line in tables(summary)[0]] == ["optimizer", "adam", "sgd"]


def test_optimizers_are_compared_pairwise(tmp_path: Path) -> None:
    header, *lines = tables(study(tmp_path, *grid(adam=ADAM, sgd=SGD, lion=LION)))[1]
    assert header[:2] == ["optimizer", "and"]
    found = {(one, other): (float(mean), verdict) for one, other, mean, _, _, _, verdict in lines}
    assert found == {
        ("adam", "sgd"): (pytest.approx(0.0967, abs=1e-4), "adam is better"),
        ("adam", "lion"): (pytest.approx(0.0, abs=1e-4), "not significantly different"),
        ("sgd", "lion"): (pytest.approx(-0.0967, abs=1e-4), "lion is better"),
    }
    assert {line[4] for line in lines} == {"3"}


def test_pairs_are_over_all_that_is_equal(tmp_path: Path) -> None:
    trials = [({**point, "lr": lr}, value) for lr in (0.1, 0.2) for point, value in grid(adam=ADAM, sgd=SGD)]
    trials[0] = (trials[0][0], State.DIVERGED)  # its partner has none
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
def test_nothing_is_grouped_where_no_two_differ_in_their_seed_alone(tmp_path: Path, trials: list[Any]) -> None:
    summary = study(tmp_path, *trials)
    assert configurations.build_parts(Findings(summary)) == []
    assert headline(summary) == ""


def test_a_key_of_another_name_and_one_with_a_plus(tmp_path: Path) -> None:
    trials: list[Any] = [({"+run.seed": seed}, 0.5 + seed / 10) for seed in (0, 1)]
    assert configurations.build_parts(Findings(study(tmp_path, *trials))) == []
    (one,) = grouped.rank(study(tmp_path, *trials, seed_key="run.seed")).configurations
    assert (one.name, one.values) == ("all else the same", [0.6, 0.5][::-1])


def test_a_configuration_that_failed_once_is_not_the_best(tmp_path: Path) -> None:
    trials = [*grid(adam=ADAM, sgd=SGD), ({"optimizer": "adam", "seed": 3}, State.DIVERGED)]
    summary = study(tmp_path, *trials)
    assert "optimizer=sgd" in headline(summary)
    assert [line[-1] for line in tables(summary)[0]] == ["no result", "", "1"]


@pytest.mark.parametrize("state", [State.PRUNED, State.TIMED_OUT])
def test_what_was_cut_short_is_no_result(tmp_path: Path, state: State) -> None:
    """Though it returned what it had reached by then."""
    cut = Outcome(state, objective=[0.99])
    summary = study(tmp_path, ({"lr": 0.1}, 0.9), ({"lr": 0.2}, cut), ({"lr": 0.3}, 0.8))
    found = grouped.candidates(grouped.by_configuration(summary.rows, "seed"), 2, maximize=True)
    assert [one.name for one in found] == ["lr=0.1", "lr=0.3"]
    summary = study(tmp_path, *grid(adam=ADAM, sgd=SGD), ({"optimizer": "adam", "seed": 0}, cut), race=6)
    (adam, sgd) = grouped.by_configuration(summary.rows, "seed")
    assert (adam.values, adam.failed, sgd.raced) == ([], 1, [])
    assert adam.mean() == pytest.approx(0.91)
    assert adam.results() == {0: pytest.approx(float("nan"), nan_ok=True) if state is State.TIMED_OUT else None}


def race(folder: Path, third: list[float | State]) -> StudySnapshot:
    found: list[float] = [0.95, 0.94, 0.93]
    searched: list[Any] = [({"lr": lr}, value) for lr, value in zip((0.1, 0.2, 0.3), found, strict=True)]
    raced: list[Any] = [
        ({"lr": lr, "seed": seed}, value)
        for lr, values in ((0.1, [0.91, 0.90, 0.92]), (0.2, [0.92, 0.905, 0.915]), (0.3, third))
        for seed, value in enumerate(values, 1)
    ]
    return study(folder, *searched, *raced, race=3)


def test_a_race_names_its_winner_by_fresh_seeds_alone(tmp_path: Path) -> None:
    summary = race(tmp_path, [0.80, 0.79, 0.81])
    low, high = interval([0.92, 0.905, 0.915], 0.975)  # chosen among the two that are left
    said = f"lr=0.2: mean acc 0.913333, 95% interval {low:.6g} to {high:.6g}, 3 seeds"
    assert headline(summary) == (
        f"**The final race's winner**: {said}. Not significantly different from 1 other: lr=0.1."
    )
    assert [line[-1] for line in tables(summary)[0]] == [
        "final race", "winner", "not significantly different", "worse after 3 seeds (p=0.003)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("third", "said"), [([State.FAILED], "it failed under a fresh seed"), ([0.9, 0.9], "running"), ([0.92], "running")]
)
def test_a_race_that_is_not_over_or_lost_a_candidate(tmp_path: Path, third: list[Any], said: str) -> None:
    summary = race(tmp_path, third)
    assert tables(summary)[0][-1][-1] == said
    assert ("running" in headline(summary)) == (said == "running")


def test_all_places_show_the_same(tmp_path: Path) -> None:
    summary = study(tmp_path, *grid(adam=ADAM, sgd=SGD))
    view = View()
    view.console = Console(record=True, width=160)
    view.closing(summary)
    shown = view.console.export_text()
    page = report.write(summary).read_text()
    note = report.markdown(summary)
    for place in (shown, page, note):
        assert "mean acc" in place
        assert "adam is better" in place
    assert "**Best mean**: optimizer=adam: mean acc 0.91," in note


@pytest.mark.parametrize("race", [None, 3])
def test_what_is_best_goes_by_means_everywhere(tmp_path: Path, race: int | None) -> None:
    lucky: list[Any] = [({"lr": 1, "seed": 0}, 0.5), ({"lr": 2, "seed": 0}, 0.99), ({"lr": 3, "seed": 0}, 0.4)]
    means: list[Any] = [({"lr": 2, "seed": seed}, 0.1) for seed in (1, 2)]
    means += [({"lr": 1, "seed": seed}, 0.6) for seed in (1, 2)]
    summary = study(tmp_path, *lucky, *means, race=race)
    chosen = best.choose_trial(summary, None)
    assert (chosen.number, best.choose_trial(summary, 1).number) == (0, 1)
    solutions.write(summary)
    found = yaml.safe_load((tmp_path / solutions.FILE).read_text())
    assert found["best_params"] == {"lr": 1}
    assert found["best_value"] == pytest.approx(0.6 if race else (0.5 + 0.6 + 0.6) / 3)
    tags = refit.tags(summary, chosen, chosen, [])
    low, high = grouped.best(summary).interval  # type: ignore[union-attr]
    assert tags["interval"] == f"{low:.6g} to {high:.6g}"


def test_a_race_in_which_all_failed_names_no_winner(tmp_path: Path) -> None:
    """And what is known of the others comes first."""
    trials: list[tuple[Point, float | State]] = [({"x": x, "seed": 0}, value) for x, value in ((1, 0.9), (2, 0.8))]
    trials += [({"x": 1, "seed": seed}, State.FAILED) for seed in (1, 2)]
    summary = study(tmp_path, *trials, race=2)
    said, table, *_ = configurations.build_parts(Findings(summary))
    assert isinstance(said, Paragraph)
    assert said.markdown == "**The final race has no winner**: each of its configurations failed under a fresh seed."
    assert [line[0] for line in table] == ["x", "2", "1"]
