"""The figures of a study as files for print."""

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from sweeps.base.errors import UserError
from sweeps.base.wording import short
from sweeps.record.study import StudySnapshot
from sweeps.show.figures import picture
from sweeps.show.figures.curves import CURVES, EVERY_TRIAL, SECONDS, STEP, Choice, interpolate, learning_curves
from sweeps.show.figures.drawing import Figures
from sweeps.show.figures.figure_data import FigureData
from sweeps.show.figures.figures import SCALING, build_figures, build_plotly_figures
from sweeps.show.figures.picture import FORMATS, write_figures
from sweeps.show.findings import Findings
from sweeps.show.trials import TrialFiles
from sweeps.trial.folder import TrialFolder
from sweeps.trial.job import State
from sweeps.trial.metrics import MetricsLine
from tests.command_lines import some
from tests.show import pages, scaled

CELLS, PARALLEL, SLICES = "Two parameters", "Parameters and objective", "Slices"


def drawn(
    study: StudySnapshot, folder: Path, *sections: str, choice: Choice = EVERY_TRIAL, file_format: str = "svg"
) -> dict[str, str]:
    """Write the figures of these sections alone, and return each by the end of its name."""

    def build(source: FigureData, choice: Choice) -> dict[str, Figures]:
        figures = build_figures(source, choice)
        return {section: figures[section] for section in sections}

    with patch.object(picture, "build_figures", build):
        paths, problems = write_figures(Findings(study), folder, file_format, choice)
    assert not problems
    return {path.stem.removeprefix(f"{study.name}_"): path.read_text(errors="replace") for path in paths}


@some("name", pages.STUDIES, 4)
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
    assert [*drawn(study, tmp_path, SLICES)] == ["slices_a_b", "slices_a_b_2"]


def test_values_of_a_wide_grid_fit_into_its_cells(tmp_path: Path) -> None:
    points = [{"x": f"name_{i % 7}", "y": i // 7} for i in range(14)]
    rows = [pages.trial(tmp_path / "s", i, point, [1.2345e-9 * i], State.COMPLETED) for i, point in enumerate(points)]
    study = StudySnapshot("s", tmp_path / "s", ("loss",), ("minimize",), rows)
    cells = drawn(study, tmp_path, CELLS)["two_parameters"]
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px[^>]*>1\.11e-08<", cells)]
    assert len(sizes) == 1 and 3.5 <= sizes[0] < 5


def texts(figure: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", figure)


@some("side, are_written", [(12, True), (13, False)], 2)
def test_values_of_at_most_twelve_by_twelve_cells_are_written(tmp_path: Path, side: int, are_written: bool) -> None:
    values = [0.5 + i / 1000 for i in range(side**2)]
    rows = [
        pages.trial(tmp_path / "s", i, {"x": i // side, "y": i % side}, [value], State.COMPLETED)
        for i, value in enumerate(values)
    ]
    study = StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), rows)
    written = {*texts(drawn(study, tmp_path, CELLS)["two_parameters"])}
    between = {f"{value:.3g}" for value in values if len(f"{value:.3g}") == 5}  # no ticks of the colour bar
    assert len(written & between) == (len(between) if are_written else 0)


def test_many_parallel_axes_have_both_columns_and_all_their_names(tmp_path: Path) -> None:
    names = [f"optimizer.hyperparameter_{i}" for i in range(10)]
    points = [{name: 1000.0 + trial + i for i, name in enumerate(names)} for trial in range(3)]
    rows = [pages.trial(tmp_path / "s", i, point, [0.1 * i], State.COMPLETED) for i, point in enumerate(points)]
    study = StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), rows)
    parallel = drawn(study, tmp_path / "f", PARALLEL)["parameters_and_objective"]
    width = re.search(r'<svg [^>]*width="([\d.]+)pt"', parallel)
    assert width and float(width[1]) == pytest.approx(7 * 72, abs=1)
    assert {"accuracy", *(short(name, 18) for name in names)} <= {*texts(parallel)}
    assert len(re.findall(r"rotate\(-40", parallel)) == 11


def test_labels_of_batches_do_not_overlap(tmp_path: Path) -> None:
    batches = [32, 40, 48, 64, 96, 512]
    rows = [pages.trial(tmp_path / "s", i, {"b": b}, [0.1 * i], State.COMPLETED) for i, b in enumerate(batches)]
    study = StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), rows)
    figures = drawn(study, tmp_path / "f", PARALLEL, SLICES)
    assert not {"40", "48"} & {*texts(figures["parameters_and_objective"])}
    assert {"32", "64", "512"} <= {*texts(figures["parameters_and_objective"])}
    assert {"32", "64", "512"} <= {*texts(figures["slices_b"])}


def test_scaling_is_printed_and_in_notebooks(tmp_path: Path) -> None:
    rows = [
        scaled.trial(tmp_path / str(n), {"gpus": n}, [9, 8 / n, 8 / n], objectives=[0.1, 0.2, 0.3], epochs_to_stable=n)
        for n in (1, 2, 4)
    ]
    study = scaled.study(tmp_path, rows)
    titles = ["speed-up", "epoch time (s)", "images/s", "epochs to stable"]
    figures = drawn(study, tmp_path / "f", SCALING)
    files = ["scaling_speed-up", "scaling_epoch_time_s", "scaling_images_s", "scaling_epochs_to_stable"]
    assert [*figures] == files
    for name, title in zip(files, titles, strict=True):
        assert {title, "GPUs", "1", "2", "4"} <= {*texts(figures[name])}
    plots = build_plotly_figures(study)
    assert [name for name in plots if name.startswith("Scaling")] == [f"Scaling: {title}" for title in titles]
    measured = next(trace for trace in plots["Scaling: speed-up"].data if trace.name == "measured")
    assert [*measured.y] == pytest.approx([1, 2, 4])


def test_curves_of_chosen_metrics_trials_and_axis(tmp_path: Path) -> None:
    study = pages.grid(tmp_path / "grid")
    for row in study.rows[:3]:
        folder = TrialFolder(row.folder)
        for step in range(8, 10):
            folder.append_metrics(MetricsLine(step, 1.7e9 + 2 * step, {"loss": 0.5, "val_loss": 0.7 + step}))
    both = Choice(("loss", "val_loss"), by=SECONDS, trials=(0, 2))
    names = {*texts(drawn(study, tmp_path / "a", CURVES, choice=both)["learning_curves"])}
    assert {"seconds", "loss (dotted: val_loss)"} <= names
    assert {name for name in names if name.startswith("lr=")} == {"lr=0.001 batch_size=32", "lr=0.001 batch_size=128"}
    apart = drawn(study, tmp_path / "b", CURVES, choice=Choice(("loss", "accuracy")))
    assert {*apart} == {"learning_curves_loss", "learning_curves_accuracy"}


def test_each_value_of_a_param_has_curves_of_its_own_on_one_scale(tmp_path: Path) -> None:
    study = pages.grid(tmp_path / "grid")
    curves = drawn(study, tmp_path / "f", CURVES, choice=Choice(("loss",), facet="lr"))
    assert [*curves] == [f"learning_curves_lr_{value}" for value in (0.001, 0.003, 0.01, 0.03)]
    assert "lr=0.003" in texts(curves["learning_curves_lr_0.003"])
    source = FigureData(Findings(study), files_of(study).curves())
    panels = learning_curves(source, Choice(("loss",), facet="lr")).values()
    assert len({str(panel["layout"]["yaxis"]["range"]) for panel in panels}) == 1


@pytest.mark.parametrize(
    "choice, message",
    [
        (Choice(("lss",)), "--metrics lss: unknown metric.\nDid you mean: --metrics loss"),
        (Choice(by="hours"), "--by hours: unknown axis.\nChoose among step, seconds"),
        (Choice(by="epoch"), "--by epoch: unknown axis.\nChoose among step, seconds"),
        (Choice(trials=(1, 99)), "--trials 99: unknown trial, or it reported nothing.\nChoose among 0, 1, 2, 3, 4, 5"),
        (Choice(trials=(11,)), "--trials 11: unknown trial, or it reported nothing.\n"),
        (Choice(facet="optimizer"), "--facet optimizer: unknown param.\nChoose among lr, batch_size"),
    ],
)
def test_unknown_choices_are_refused_in_two_lines(tmp_path: Path, choice: Choice, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        write_figures(Findings(pages.grid(tmp_path / "grid")), tmp_path / "figures", "svg", choice)
    assert str(refused.value).count("\n") == 1
    assert not (tmp_path / "figures").exists()


def files_of(study: StudySnapshot) -> TrialFiles:
    files = TrialFiles(study.objective)
    files.look(Findings(study))
    return files


def test_curves_over_seconds_are_those_over_steps(tmp_path: Path) -> None:
    """Take a step between two reports at the time between them, and none after the last report."""
    assert [interpolate(([1, 3], [10.0, 30.0]), step) for step in (1, 2, 3, 4)] == [10, 20, 30, None]
    study = pages.grid(tmp_path / "grid")
    files = files_of(study)
    source = FigureData(Findings(study), files.curves(), seconds=files.seconds())
    by_step, by_seconds = (learning_curves(source, Choice(by=by))[""]["data"][0] for by in (STEP, SECONDS))
    assert by_step["y"] == by_seconds["y"]
    assert by_seconds["x"] == [*range(8)]


@some("file_format", FORMATS, 3)
def test_formats(tmp_path: Path, file_format: str) -> None:
    drawn(pages.grid(tmp_path / "grid"), tmp_path / "figures", CELLS, CURVES, PARALLEL, file_format=file_format)
    paths = [*(tmp_path / "figures").iterdir()]
    heads = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}
    assert [path.read_bytes()[: len(heads[file_format])] for path in paths] == [heads[file_format]] * 3


def test_each_curve_has_a_dash_of_its_own(tmp_path: Path) -> None:
    study = pages.grid(tmp_path / "grid")
    few = replace(study, rows=study.rows[:3])
    curves = drawn(few, tmp_path, CURVES)["learning_curves"]
    assert "lr=0.001 batch_size=32" in curves
    assert len(set(re.findall(r"stroke-dasharray: ([\d.,]+)", curves))) == 2


def test_ten_curves_have_ten_dashes(tmp_path: Path) -> None:
    points = [pages.trial(tmp_path / "s", i, {"lr": i}, pages.rising(0.5 + i / 30), State.COMPLETED) for i in range(10)]
    study = StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), points)
    curves = drawn(study, tmp_path, CURVES)["learning_curves"]
    assert len(set(re.findall(r"stroke-dasharray: ([\d., ]+)", curves))) == 9  # and a solid line


def test_labels_are_text(tmp_path: Path) -> None:
    points = [{"a&b": i % 4, "c<d": i // 4} for i in range(8)]
    rows = [pages.trial(tmp_path, i, point, [10.0**-i], State.COMPLETED) for i, point in enumerate(points)]
    study = StudySnapshot("s", tmp_path, ("a<b",), ("minimize",), rows)
    cells = drawn(study, tmp_path / "figures", CELLS)["two_parameters"]
    assert {"a&amp;b", "c&lt;d", "10⁻³", "a&lt;b"} <= {*texts(cells)}
    assert "&lt;sup" not in cells


def test_figure_that_cannot_be_drawn_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no room")

    monkeypatch.setitem(picture._TRACES, "heatmap", fail)
    paths, problems = write_figures(Findings(pages.grid(tmp_path / "grid")), tmp_path / "figures", "svg")
    assert problems == ["Two parameters: This figure cannot be drawn: ZeroDivisionError: no room"]
    assert len(paths) == len([*(tmp_path / "figures").iterdir()]) > 2
