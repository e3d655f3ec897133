"""Tests of scaling tables measured elsewhere: valid tables, and the errors of invalid tables."""

from pathlib import Path

import pytest

from sweeps.base.errors import UserError
from sweeps.show.print.scaling_table import read_table
from tests.command_lines import sweeps

GOOD = "gpus,epoch_time\n1,10\n2,5\n"


@pytest.mark.parametrize(
    ("content", "unit", "time", "counts", "epochs"),
    [
        (GOOD, "GPUs", "epoch time", [1, 2], [10, 5]),
        ("# mine\n\ngpus , epoch_time\n2,5\n1,10\n1,11\n1,30\n", "GPUs", "epoch time", [1, 2], [11, 5]),
        ("nodes,gpus,epoch_time\n1,4,10\n2,4,5\n", "GPUs", "epoch time", [4, 8], [10, 5]),
        ("nodes,gpus,epoch_time\n2,1,6\n1,2,5\n", "GPUs", "epoch time", [2, 2], [5, 6]),
        ("ranks,total_time\n1,10\n4,5\n", "processes", "total time", [1, 4], [10, 5]),
        ("nodes,total_time,epochs\n1,10,5\n2,8,5\n", "nodes", "epoch time", [1, 2], [2, 1.6]),
        ("ranks,total_time,epochs\n1,10,\n4,5,\n", "processes", "total time", [1, 4], [10, 5]),
        ("gpus\tepoch_time\n1\t10\n2\t5\n", "GPUs", "epoch time", [1, 2], [10, 5]),
        ('gpus;epoch_time;site\n1;10.5;"a\nb"\n2;5;"a\nb"\n', "GPUs", "epoch time", [1, 2], [10.5, 5]),
        ("\ufeffgpus,epoch_time,accuracy\r\n1,10,\r\n2,5,0.5\r\n", "GPUs", "epoch time", [1, 2], [10, 5]),
    ],
)
def test_valid_tables_are_read(
    tmp_path: Path, content: str, unit: str, time: str, counts: list[int], epochs: list[float]
) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(content.encode())
    scaling = read_table(file)
    assert (scaling.title, scaling.unit, scaling.time) == ("t", unit, time)
    (series,) = scaling.series
    assert [count.count for count in series.counts] == counts
    assert [count.epoch_s for count in series.counts] == epochs


def test_other_columns_except_seeds_name_the_series(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("gpus,epoch_time,model,site,seed\n1,10,a,x,1\n1,12,a,x,2\n2,5,a,x,1\n1,9,b,x,1\n")
    scaling = read_table(file)
    assert [(series.name, len(series.counts)) for series in scaling.series] == [("model=a", 2), ("model=b", 1)]
    assert scaling.series[0].counts[0].trials == 2
    assert scaling.remarks == ["Measured for a single count, so not compared: 1 GPU model=b."]


def test_examples_and_epochs_to_stable_are_measurements(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("gpus,epoch_time,examples,epochs_to_stable\n1,8,2000000,3\n2,4,2000000,5\n")
    (series,) = read_table(path).series
    assert [(c.images_s, c.epochs_to_stable, c.time_to_stable_s) for c in series.counts] == [
        (250000, 3, 24),
        (500000, 5, 20),
    ]


def test_time_to_target_is_epochs_times_epoch_time(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("gpus,epoch_time,accuracy,epochs\n1,10,0.9,360\n2,6,0.8,300\n")
    first, second = read_table(file).series[0].counts
    assert (first.target_s, first.devices, second.target_s, second.devices) == (3600, 1, 1800, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.csv is empty."),
        (b"# nothing\n", "t.csv is empty."),
        (b"gpus,epoch_time\n", "t.csv has a header, but no lines below it."),
        (b"gpus,epoch_time\n1,10\n", "t.csv has a single count: 1."),
        (b"gpus,epoch_time\n1,10\n1,11\n", "t.csv has a single count: 1."),
        (
            b"cards,epoch_time\n1,1\n",
            "t.csv line 1: a column is missing among cards, epoch_time.\nAdd a column: gpus, nodes or ranks.",
        ),
        (
            b"# x\ngpus,time\n1,1\n",
            "t.csv line 2: a column is missing among gpus, time.\nAdd a column: epoch_time or total_time.",
        ),
        (b"gpus,gpus,epoch_time\n1,1,1\n", "t.csv: column 'gpus' occurs twice.\nRemove"),
        (
            b"gpus,epoch_time\n1,10\n2,fast\n",
            "t.csv line 3, column epoch_time: invalid value 'fast'.\nUse a number above 0, at most 1e9.",
        ),
        (b"gpus,epoch_time\n1,10\n2,-5\n", "t.csv line 3, column epoch_time: invalid value '-5'."),
        (b"gpus,epoch_time\n1,10\n2,nan\n", "t.csv line 3, column epoch_time: invalid value 'nan'."),
        (b"gpus,epoch_time\n1,10\n2,\n", "t.csv line 3, column epoch_time: invalid value ''."),
        (
            b"gpus,epoch_time\n0,10\n2,5\n",
            "t.csv line 2, column gpus: invalid value '0'.\nUse a whole number, 1 to 1,000,000.",
        ),
        (b"gpus,epoch_time\n1,1e300\n", "t.csv line 2, column epoch_time: invalid value '1e300'."),
        (b"gpus,epoch_time\n1e7,1\n", "t.csv line 2, column gpus: invalid value '1e7'."),
        (b"gpus,epoch_time\n1.5,10\n", "t.csv line 2, column gpus: invalid value '1.5'."),
        (
            b"gpus,epoch_time,accuracy\n1,1,high\n",
            "t.csv line 2, column accuracy: invalid value 'high'.\nUse a number, at most 1e9.",
        ),
        (b"gpus,epoch_time\n1,10\n2,5,7\n", "t.csv: line 3 has more cells than the header"),
        (b"gpus,epoch_time\n1,10\n2,\xff\n", "t.csv: not a table in UTF-8: 'utf-8' codec can't decode byte 0xff in"),
        (
            b"gpus,total_time,epochs\n1,10,5\n2,8,\n",
            "t.csv line 3, column epochs: empty cell.\nUse a number on every line, or remove the column.",
        ),
        (b"gpus;epoch_time\n1;10,5\n", "t.csv: line 2 has epoch_time=10,5: a decimal comma"),
        (b",gpus,epoch_time\n0,1,10\n1,2,6\n", "t.csv: its first column has no name, and counts the lines from 0"),
    ],
)
def test_invalid_tables_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_table(file)
    assert str(error.value).startswith(f"{tmp_path}/{message}")
    assert len(str(error.value).splitlines()) == 2


def test_scaling_command_writes_a_page(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("gpus,epoch_time,accuracy,epochs\n1,100,0.9,60\n2,55,0.9,60\n4,30,0.91,60\n")
    done = sweeps(tmp_path, "scaling", "t.csv", "--predict", "8,16", "--target", "0.9")
    assert done.code == 0, done.said
    assert "4 GPUs: 3.33 times as fast as 1, 83% of ideal." in done.out
    assert "Cheapest to accuracy 0.9: 1 GPU (1.67 hours, 1.67 GPU-hours); 2 would save 45 minutes and" in done.out
    assert "cost 10% more; 4 would save 70 minutes and cost 20% more." in done.out
    assert "16 is 4 times" not in done.out
    assert done.out.splitlines()[-1] == "t.html"
    assert "<h2>Scaling</h2>" in (tmp_path / "t.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["t.csv", "--predict", "many"],
            "--predict many: not a list of counts from 1 to 999999.\nType: --predict 16,32",
        ),
        (["t.csv", "--predict", "0"], "--predict 0: not a list of counts"),
        (["t.csv", "--predict", "9" * 400], "not a list of counts"),
        (["other.csv"], "other.csv is not a file.\nType the path of a CSV file"),
        (["."], ". is not a file.\nType the path of a CSV file"),
        (["t.csv", "--output", "./t.csv"], "t.csv: the page would overwrite the table.\nChoose another file"),
        (["t.csv", "--output", "no/t.html"], "--output no/t.html: there is no folder no.\nChoose a file"),
        (["t.csv", "--output", "."], "--output .: the path is a folder.\nChoose a file"),
        (["bad.csv"], "bad.csv line 2, column gpus: invalid value 'x'"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "bad.csv").write_text("gpus,epoch_time\nx,1\n")
    done = sweeps(tmp_path, "scaling", *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err
