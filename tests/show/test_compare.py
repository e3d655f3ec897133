"""Several studies side by side: their best results, their settings and the tests of their seeds."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.analysis.comparison import interval, paired_p, welch
from sweeps.base.errors import UserError
from sweeps.record.study import StudySnapshot
from sweeps.show.page import studies_page
from sweeps.show.page.studies import ComparedStudy, build_settings, build_table, compare, compare_pairs
from sweeps.trial.job import State
from tests.show import pages

MakeStudy = Callable[..., StudySnapshot]
ZEROS: tuple[tuple[str, float, float], ...] = (("a", 5.0, 0.0), ("b", 5.0, 0.001))


@pytest.fixture
def make_study(tmp_path: Path) -> MakeStudy:
    def make(name: str, *results: float, **params: object) -> StudySnapshot:
        """Return a study of one configuration, under a seed for each of the results."""
        rows = [
            pages.trial(tmp_path / name, seed, {**params, "seed": seed}, [result / 2, result], State.COMPLETED)  # type: ignore[dict-item]
            for seed, result in enumerate(results)
        ]
        return StudySnapshot(name, tmp_path / name, ("accuracy",), ("maximize",), rows, len(rows))

    return make


def compared(*snapshots: StudySnapshot) -> list[ComparedStudy]:
    return compare({study.name: study for study in snapshots})


def test_table_has_the_best_configuration_of_each_study(make_study: MakeStudy) -> None:
    table = build_table(compared(make_study("a", 0.8, 0.82, lr=0.1), make_study("b", 0.9, lr=0.01)))
    assert [cells[:5] for cells in table] == [
        ["study", "best accuracy", "95% interval", "seeds", "best configuration"],
        ["a", "0.81", "0.68 to 0.94", "2", "lr=0.1"],
        ["b", "0.9", "", "1", "lr=0.01 seed=0"],
    ]


def test_settings_that_differ(make_study: MakeStudy) -> None:
    first, second = make_study("a", 0.8, 0.9, lr=0.1, act="relu"), make_study("b", 0.9, lr=0.01, act="relu")
    second = replace(second, space={"lr": "log interval(0.001, 0.1)"})
    (second.rows[0].folder / ".hydra" / "config.yaml").write_text(
        "epochs: 12\ndb: ${oc.env:DB}\npassword: hidden\noptimizer: {rate: '${lr}', decay: '${epochs}'}"
    )
    (first.rows[0].folder / ".hydra" / "config.yaml").write_text("epochs: 10\noptimizer: {rate: '${lr}', decay: 3}")
    table = build_settings(compared(first, second))
    assert table[0] == ["setting", "a", "b"]
    rows = {cells[0]: cells[1:] for cells in table[1:]}
    assert rows["lr"] == ["0.1 (of 0.1)", "0.01 (of log interval(0.001, 0.1))"]
    assert rows["seed"] == ["0,1 (of 0,1)", "0 (of 0)"]
    assert rows["epochs"] == ["10", "12"]
    assert rows["password"] == ["", "***"]
    assert "db" not in rows
    assert "optimizer.rate" not in rows  # because it repeats lr in both
    assert rows["optimizer.decay"] == ["3", "12"]


def test_studies_with_seeds_are_tested(make_study: MakeStudy) -> None:
    studies_ = compared(
        make_study("a", 0.8, 0.81, 0.82), make_study("b", 0.9, 0.91, 0.92), make_study("c", 0.805, 0.81, 0.825)
    )
    words = [comparison.words for comparison in compare_pairs(studies_)]
    of_pair = "95% interval of this pair alone 0.07733 to 0.1227, p=0.0"
    assert words[0].startswith(f"b is better than a: difference 0.1, {of_pair}")
    assert words[1].startswith("a and c are not significantly different: ")
    assert words[2].startswith("b is better than c: ")
    (alone,) = compare_pairs(studies_[:2])
    assert "95% interval 0.07733 to 0.1227, p=" in alone.words and "Holm" not in alone.words


def test_welch_agrees_with_scipy() -> None:
    from scipy.stats import ttest_ind

    first, second = [1.0, 2.5, 3.0, 4.0], [2.0, 5.0, 9.0]
    expected = ttest_ind(first, second, equal_var=False)
    difference = welch(first, second)
    assert difference.p == pytest.approx(expected.pvalue)
    assert (difference.low, difference.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert welch([1.0, 1.0], [1.0, 1.0]).p == 1
    assert welch([1.0, 1.0], [2.0, 2.0]).p == 0


def test_page_without_seeds_names_the_condition_of_a_test(make_study: MakeStudy) -> None:
    page = studies_page.render_page(compared(make_study("<a>", 0.8), make_study("b", math.pi)))
    assert "A test needs at least 2 seeds" in page
    assert "&lt;a&gt;" in page
    assert "<a>" not in page
    for section in ("Best results", "Best trial so far", "Learning curves of the best", "Settings that differ"):
        assert f"<h2>{section}</h2>" in page


def test_page_of_several_objectives_shows_the_fronts(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    page = studies_page.render_page(
        compare({"a": pages.two_objectives(tmp_path), "b": pages.two_objectives(tmp_path / "b")})
    )
    assert "<h2>Pareto fronts</h2>" in page
    assert "on the Pareto front" in page


def test_curves_of_trials_with_one_number_are_of_their_own_studies(make_study: MakeStudy) -> None:
    figure = studies_page._curves(compared(make_study("a", 0.8), make_study("b", 0.4)))
    assert figure
    assert [trace["y"] for trace in figure["data"]] == [[0.4, 0.8], [0.2, 0.4]]


def test_zeros_have_a_place(make_study: MakeStudy) -> None:
    studies = [replace(make_study(name, *results), directions=("minimize",)) for name, *results in ZEROS]
    figure = studies_page._best_so_far(compared(*studies), by_time=False)
    assert figure["layout"]["yaxis"]["ticktext"][0] == "0"
    assert [min(trace["y"]) for trace in figure["data"]] == pytest.approx([0.0001, 0.001])


def test_params_under_a_condition_are_one_setting(make_study: MakeStudy) -> None:
    space = {"momentum under opt=sgd": "0.5,0.9", "momentum under opt=rmsprop": "0"}
    first = replace(make_study("a", 0.8, 0.9, momentum=0.9), space=space)
    first = replace(first, rows=[first.rows[0], replace(first.rows[1], params={"seed": 1})])
    table = build_settings(studies := compared(first, make_study("b", 0.7, momentum=0)))
    (row,) = (cells for cells in table if "momentum" in cells[0])
    assert row == ["momentum", "0.9 (of 0.5,0.9,0)", "0 (of 0)"]
    assert not studies[0].is_in_all_trials("momentum")
    assert studies[1].is_in_all_trials("momentum")


def test_unreadable_config_is_named(make_study: MakeStudy) -> None:
    first, second = make_study("a", 0.8), make_study("b", 0.9, lr=None)
    (first.rows[0].folder / ".hydra" / "config.yaml").write_text("epochs: [")
    studies = compared(replace(first, fixed={"epochs": "10", "lr": "null"}), second)
    assert studies[0].problem.startswith("study a: the config in ")
    assert "cannot be read: ParserError: " in studies[0].problem
    assert not studies[1].problem
    assert studies[0].problem.partition(" cannot")[2] in studies_page.render_page(studies)
    assert [cells[0] for cells in build_settings(studies)] == ["setting", "seed", "lr"]


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_tests_of_large_and_small_results(scale: float) -> None:
    first, second = [1.0, 1.5, 2.0], [3.0, 3.5, 4.5]
    expected, difference = welch(first, second), welch([scale * v for v in first], [scale * v for v in second])
    assert difference.p == pytest.approx(expected.p)
    assert difference.low / scale == pytest.approx(expected.low)
    assert paired_p([scale * v for v in first]) == pytest.approx(paired_p(first))
    assert interval([scale * v for v in first])[0] / scale == pytest.approx(interval(first)[0])


def test_other_objectives_and_studies_without_a_result_are_refused(make_study: MakeStudy) -> None:
    study = make_study("a", 0.8)
    for changes in ({"objective": ("loss",)}, {"directions": ("minimize",)}):
        with pytest.raises(UserError, match=r"study b: its objective is .*\nChoose studies of the same objective"):
            compare({"a": study, "b": replace(study, **changes)})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"study b: none of its 0 trials has a result\.\nLeave it out"):
        compare({"a": study, "b": replace(study, rows=[])})
