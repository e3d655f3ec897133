"""The figures of a study as files for print."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.record.study import StudySnapshot
from sweeps.results import picture
from sweeps.results.figure_data import FigureData
from sweeps.results.figures import build_figures
from sweeps.results.findings import Findings
from sweeps.results.picture import FORMATS, write_figures
from sweeps.results.trials import TrialFiles
from sweeps.trial.job import State
from tests.results import pages


@pytest.mark.parametrize("name", pages.STUDIES)
def test_every_figure_is_written(tmp_path: Path, name: str) -> None:
    study = pages.STUDIES[name](tmp_path / name)
    findings = Findings(replace(study, importance={"lr": 0.7, "batch_size": 0.3}))
    files = TrialFiles(study.objective)
    files.look(findings)
    figures = build_figures(FigureData(findings, files.curves()))
    titles = [(section, key) for section, by_key in figures.items() for key in by_key]
    paths, problems = write_figures(findings, tmp_path / "figures", "svg")
    assert not problems
    assert len({*paths}) == len(titles)
    assert sorted(paths) == sorted((tmp_path / "figures").iterdir())
    for path in paths:
        assert path.name.startswith(study.name.replace(" ", "_"))
        width = re.search(r'<svg [^>]*width="([\d.]+)pt"', path.read_text())
        assert width and float(width[1]) == pytest.approx(3.4 * 72, abs=1)


def test_params_that_differ_in_punctuation_have_files_of_their_own(tmp_path: Path) -> None:
    rows = [pages.trial(tmp_path / "s", i, {"a/b": i, "a b": -i}, [0.1 * i], State.COMPLETED) for i in range(4)]
    study = StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), rows)
    paths, _ = write_figures(Findings(study), tmp_path / "figures", "svg")
    assert [path.name for path in paths if "slices" in path.name] == ["s_slices_a_b.svg", "s_slices_a_b_2.svg"]


def test_values_of_a_wide_grid_fit_into_its_cells(tmp_path: Path) -> None:
    points = [{"x": f"name_{i % 7}", "y": i // 7} for i in range(14)]
    rows = [pages.trial(tmp_path / "s", i, point, [1.2345e-9 * i], State.COMPLETED) for i, point in enumerate(points)]
    write_figures(Findings(StudySnapshot("s", tmp_path / "s", ("loss",), ("minimize",), rows)), tmp_path, "svg")
    drawn = (tmp_path / "s_two_parameters.svg").read_text()
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px[^>]*>1\.11e-08<", drawn)]
    assert len(sizes) == 1 and 3.5 <= sizes[0] < 5


@pytest.mark.parametrize("file_format", FORMATS)
def test_formats(tmp_path: Path, file_format: str) -> None:
    paths, _ = write_figures(Findings(pages.grid(tmp_path / "grid")), tmp_path / "figures", file_format)
    heads = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}
    assert {path.read_bytes()[: len(heads[file_format])] for path in paths} == {heads[file_format]}


def test_each_curve_has_a_dash_of_its_own(tmp_path: Path) -> None:
    study = pages.grid(tmp_path / "grid")
    few = replace(study, rows=study.rows[:3])
    write_figures(Findings(few), tmp_path, "svg")
    curves = (tmp_path / "grid_learning_curves.svg").read_text()
    assert "lr=0.001 batch_size=32" in curves
    assert len(set(re.findall(r"stroke-dasharray: ([\d.,]+)", curves))) == 2


def test_ten_curves_have_ten_dashes(tmp_path: Path) -> None:
    points = [pages.trial(tmp_path / "s", i, {"lr": i}, pages.rising(0.5 + i / 30), State.COMPLETED) for i in range(10)]
    write_figures(Findings(StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), points)), tmp_path, "svg")
    curves = (tmp_path / "s_learning_curves.svg").read_text()
    assert len(set(re.findall(r"stroke-dasharray: ([\d., ]+)", curves))) == 9  # and a solid line


def test_labels_are_text(tmp_path: Path) -> None:
    points = [{"a&b": i % 4, "c<d": i // 4} for i in range(8)]
    rows = [pages.trial(tmp_path, i, point, [10.0**-i], State.COMPLETED) for i, point in enumerate(points)]
    study = StudySnapshot("s", tmp_path, ("a<b",), ("minimize",), rows)
    write_figures(Findings(study), tmp_path / "figures", "svg")
    cells = (tmp_path / "figures" / "s_two_parameters.svg").read_text()
    assert {"a&amp;b", "c&lt;d", "10⁻³", "a&lt;b"} <= {*re.findall(r">([^<>]+)</text>", cells)}
    assert "&lt;sup" not in cells


def test_figure_that_cannot_be_drawn_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no room")

    monkeypatch.setitem(picture._TRACES, "heatmap", fail)
    paths, problems = write_figures(Findings(pages.grid(tmp_path / "grid")), tmp_path / "figures", "svg")
    assert problems == ["Two parameters: This figure cannot be drawn: ZeroDivisionError: no room"]
    assert len(paths) == len([*(tmp_path / "figures").iterdir()]) > 2
