"""Tables for print: columns, means with their intervals, the best in bold."""

import csv
import json
import math
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.base.errors import UserError
from sweeps.base.wording import without_noise
from sweeps.record.study import By, StudySnapshot
from sweeps.show.figures.picture import write_figures
from sweeps.show.findings import Findings
from sweeps.show.print.print_table import STYLES, render_classes, render_table
from sweeps.trial.job import State
from tests.show import pages


@pytest.fixture
def seeded(tmp_path: Path) -> Findings:
    results = {("a_b", 0): 0.8, ("a_b", 1): 0.82, ("100%", 0): 0.9, ("100%", 1): 0.91}
    rows = [
        pages.trial(tmp_path / "s", number, {"act": act, "+seed": seed}, [result], State.COMPLETED)
        for number, ((act, seed), result) in enumerate(results.items())
    ]
    return Findings(StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), rows, len(rows)))


def test_means_with_intervals_in_latex(seeded: Findings) -> None:
    assert render_table(seeded, [], "latex").splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"act & accuracy \\",
        r"\midrule",
        r"100\% & \textbf{0.905 $\pm$ 0.064} \\",
        r"a\_b & 0.81 $\pm$ 0.13 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_columns_in_markdown(seeded: Findings) -> None:
    table = render_table(seeded, ["accuracy", "act", "seed", "seconds_training"], "markdown").splitlines()
    assert table[0] == "| accuracy | act | seed | seconds_training |"
    assert table[2] == "| **0.905 ± 0.064** | 100% | 0, 1 | 30 ± 0 |"


def test_csv_has_numbers(seeded: Findings) -> None:
    header, first, _ = csv.reader(render_table(seeded, [], "csv").splitlines())
    assert header == ["act", "accuracy", "accuracy_interval"]
    assert [first[0], *map(float, first[1:])] == pytest.approx(["100%", 0.905, 0.0635310])


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", pages.STUDIES)
def test_every_study_has_a_table(tmp_path: Path, name: str, style: str) -> None:
    study = pages.STUDIES[name](tmp_path / name)
    if not study.count(State.COMPLETED):
        with pytest.raises(UserError, match=r"no trial has a result\.\nShow the reason"):
            render_table(Findings(study), [], style)
        return
    table = render_table(Findings(study), [], style)
    assert len(table.splitlines()) == study.count(State.COMPLETED) + {"latex": 6, "markdown": 2, "csv": 1}[style]
    everything = Findings(replace(study, rows=study.rows[:1]))
    assert "folder" in render_table(everything, ["folder", "error", "trial"], style)


def test_numbers_of_32_bits_have_no_noise(tmp_path: Path) -> None:
    noisy = struct.unpack("f", struct.pack("f", 0.3))[0]
    rows = [pages.trial(tmp_path / "s", 0, {"lr": 0.1}, [noisy], State.COMPLETED)]
    findings = Findings(StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), rows, 1))
    assert render_table(findings, ["lr", "accuracy"], "csv") == "lr,accuracy\n0.1,0.3"
    for number in (0.1, 1 / 3, 1e300, 0.5, 16777217.0, 1e-46, math.pi, -2.5e-8):
        assert without_noise(number) == number
    single = struct.unpack("f", struct.pack("f", 1 / 3))[0]
    assert str(without_noise(single)) == "0.33333334"


def test_mean_of_a_fraction_has_an_interval_within_its_ends(tmp_path: Path) -> None:
    rows = [
        pages.trial(tmp_path / "s", seed, {"lr": 1, "seed": seed}, [value], State.COMPLETED)
        for seed, value in enumerate((0.9, 0.98))
    ]
    findings = Findings(StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), rows, 2))
    assert "0.94 (0.43 to 1.00)" in render_table(findings, [], "markdown")
    assert "0.94 (0.43 to 1.00)" in render_table(findings, [], "latex")
    assert "0.94 ± 0.51" in render_table(Findings(replace(findings.study, objective=("loss",))), ["loss"], "markdown")


def test_each_objective_has_a_best_value(tmp_path: Path) -> None:
    table = render_table(Findings(pages.two_objectives(tmp_path)), [], "markdown")
    assert table.count("**") == 2 * 2


def test_swept_name_of_a_metric_has_a_column_of_its_own(tmp_path: Path) -> None:
    rows = [
        pages.trial(tmp_path / "s", number, {"loss": loss}, [0.5 + number / 10], State.COMPLETED)
        for number, loss in enumerate(("mse", "[huber,=1]"))
    ]
    study = StudySnapshot("s", tmp_path / "s", ("loss",), ("minimize",), rows, len(rows))
    table = render_table(Findings(study), [], "markdown").splitlines()
    assert table == ["| loss | metric.loss |", "| --- | --- |", "| mse | **0.5** |", "| [huber,=1] | 0.6 |"]
    assert render_table(Findings(study), [], "latex").count("{}[huber") == 1


def test_best_is_the_winner_of_the_race(seeded: Findings) -> None:
    lucky = pages.trial(seeded.study.folder, 4, {"act": "lucky", "+seed": 0}, [0.99], State.COMPLETED)
    failed = pages.trial(seeded.study.folder, 5, {"act": "lucky", "+seed": 1}, [], State.FAILED, "bad")
    study = replace(seeded.study, rows=[*seeded.study.rows, lucky, failed])
    assert "| 100% | **0.905 ± 0.064** |" in render_table(Findings(study), [], "markdown")


@pytest.mark.long
def test_tables_compile_in_latex(seeded: Findings, tmp_path: Path) -> None:
    if not shutil.which("pdflatex"):
        pytest.skip("needs LaTeX: apt-get install texlive-latex-base texlive-latex-recommended")
    confusion = {"subset": "test", "classes": ["a_b", "50%"], "matrix": [[3, 1], [0, 4]]}
    (seeded.study.rows[0].folder / "confusion.json").write_text(json.dumps(confusion))
    write_figures(seeded, tmp_path / "figures", "pdf")
    tables = [render_table(seeded, [], "latex"), render_classes(seeded, "latex")]
    figures = [rf"\includegraphics{{{path}}}" for path in sorted((tmp_path / "figures").iterdir())]
    head = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
    (tmp_path / "paper.tex").write_text("\n\n".join([head, *tables, *figures, r"\end{document}"]))
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000


def test_interval_of_a_race_is_that_of_the_page(tmp_path: Path) -> None:
    rows = [
        replace(
            pages.trial(
                tmp_path / "s", 3 * i + seed, {"lr": lr, "seed": 10 + seed}, [top + 0.01 * seed], State.COMPLETED
            ),
            by=By.RACE,
            of=3 * i,
            seed={"seed": 10 + seed},
        )
        for i, (lr, top) in enumerate([(0.1, 0.8), (0.2, 0.7)])
        for seed in range(3)
    ]
    findings = Findings(StudySnapshot("s", tmp_path / "s", ("accuracy",), ("maximize",), rows, 6, searched=True))
    low, high = findings.ranking.configurations[0].interval
    _, first, _ = csv.reader(render_table(findings, ["accuracy"], "csv").splitlines())
    assert float(first[1]) == pytest.approx((high - low) / 2)


def test_unknown_column_is_refused(seeded: Findings) -> None:
    for typed, advice in (
        ("zz", "Choose among trial, state, act, seed, accuracy"),
        ("accurac", "Did you mean: --columns"),
    ):
        with pytest.raises(UserError, match=rf"--columns {typed}: unknown column\.\n{advice}"):
            render_table(seeded, ["act", typed], "csv")
