"""Whether a command means the study that is there; and a definition that cannot be read any more."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile
from sweeps.hydra.functions import extend_grammar
from sweeps.hydra.settings import SweeperConf
from sweeps.record.definition import Definition, define
from sweeps.record.place import resume_line
from sweeps.record.study_file import read, sweeps_line, write_or_check
from sweeps.space.grammar import parse
from sweeps.study.run.choosing import total

GRID = {"sampler": {"_target_": "optuna.samplers.GridSampler"}}
SEARCH = {"sampler": {"_target_": "optuna.samplers.TPESampler"}, "n_trials": 5}


def make(*lines: str, name: str = "s", config: dict[str, object] | None = None, **settings: object) -> Definition:
    """Return the definition of the study of this command line."""
    sweeper = SweeperConf(**settings)  # type: ignore[arg-type]
    hydra = {"sweeper": {"storage": sweeper.storage, "tracking_uri": sweeper.tracking_uri}}
    whole = OmegaConf.create({"lr": 0.1, "model": {"hidden": [64, 32]}, **(config or {}), "hydra": hydra})
    extend_grammar()
    space = parse(OverridesParser.create().parse_overrides(list(lines or ["x=1,2"])), {}, {})
    return define(name, sweeper, space, whole, total(sweeper, space), None)


def test_repeats_multiply_the_trials() -> None:
    assert make("x=range(1,10)", **SEARCH, repeats=3).total == 15
    assert make("x=1,2", "seed=0,1", repeats=2).total == 4  # of a grid the seeds are an axis


def test_content_is_read_as_written(tmp_path: Path) -> None:
    made = make("x=1,2", "opt=adam,sgd", "y=tag(log,interval(0.1,1))", **SEARCH)
    assert write_or_check(tmp_path, made, extend=False) == ""
    assert read(tmp_path) == made
    assert made.parameters == {"x": "1,2", "opt": "adam,sgd", "y": "log interval(0.1, 1.0)"}
    assert made.config == {"lr": "0.1", "model.hidden": "[64,32]"}
    assert (made.n_trials, made.total, make().total) == ("5", 5, 2)
    assert write_or_check(tmp_path, made, extend=False) == ""


def test_differences_of_long_values_are_shown() -> None:
    old, new = (make(config={"text": f"{'a' * 99}{middle}{'a' * 99}"}) for middle in "bc")
    (difference,) = old.differences(new).values()
    shown, was = difference.split(" was ")
    assert ("c" in shown, "b" in was) == (True, True)
    assert len(difference) < 250


@pytest.mark.parametrize(
    ("lines", "changes", "shown"),
    [
        (["x=1,3"], {}, "x=1,3 was 1,2"),
        (["x=2,1"], {}, "x=2,1 was 1,2"),
        (["x=1,2", "y=1,2"], {}, "y=1,2 was (nothing)"),
        (["y=1,2"], {}, "x=(nothing) was 1,2"),
        ([], {"config": {"lr": 0.2}}, "lr=0.2 was 0.1"),
        ([], {"config": {"model": {"hidden": [64]}}}, "model.hidden=[64] was [64,32]"),
        ([], {"config": {"new": {"a": "b c"}}}, "new.a=b c was (nothing)"),
        ([], {"n_trials": 2}, "n_trials=2 was None"),
        ([], {"n_trials": 1}, "or 3. to start no further trial: sweepyard stop "),
        (["x=2,3"], {}, "or 4. to try it no further: sweepyard exclude "),
        ([], {"direction": "maximize"}, "direction=maximize was minimize"),
        ([], {"objective": "loss"}, "objective=loss was None"),
        ([], {"sampler": SEARCH["sampler"]}, 'sampler={"_target_": "optuna.samplers.TPESampler"} was null'),
        ([], {**SEARCH, "repeats": 3}, "hydra.sweeper.repeats=3 was (nothing)"),
        ([], {"final_race": 2}, "hydra.sweeper.final_race=2 was (nothing)"),
        ([], {"name": "t"}, "hydra.sweeper.study_name=t was s"),
    ],
)
def test_another_study_is_refused_with_the_differences(
    tmp_path: Path, lines: list[str], changes: dict[str, object], shown: str
) -> None:
    write_or_check(tmp_path, make(), extend=False)
    before = (tmp_path / "study.json").read_bytes()
    with pytest.raises(UserError, match="was started with other values: ") as caught:
        write_or_check(tmp_path, make(*lines, **changes), extend=False)  # type: ignore[arg-type]
    assert shown in str(caught.value)
    assert re.search("Either 1. choose another hydra.sweeper.study_name, (or )?2. type the command", str(caught.value))
    if "hydra.sweeper.extend=true" not in str(caught.value):
        with pytest.raises(UserError, match=r"Fixed values cannot change|: study s has "):
            write_or_check(tmp_path, make(*lines, **changes), extend=True)  # type: ignore[arg-type]
    assert (tmp_path / "study.json").read_bytes() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"n_jobs": 2},
        {"max_attempts": 9},
        {"max_failure_rate": 0.5},
        {"tracking_uri": "http://elsewhere:5000"},
        {"storage": "sqlite:///elsewhere.db"},
        {"tracking": False},
        {"config": {"tracking": {"uri": "elsewhere"}}},
        {"config": {"trainer": {"preload": ["torch"]}}},
    ],
)
def test_settings_that_may_change_on_resume(tmp_path: Path, changes: dict[str, object]) -> None:
    write_or_check(tmp_path, make(), extend=False)
    assert write_or_check(tmp_path, make(**changes), extend=False) == ""  # type: ignore[arg-type]


def test_changed_value_and_command_are_kept_for_the_next_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_or_check(tmp_path, make(may_change=["lr", "hydra.sweeper.objective"]), extend=False)
    monkeypatch.setattr("sys.orig_argv", ["python", "app.py", "-m", "x=1,2", "lr=0.2"])
    write_or_check(tmp_path, make(config={"lr": 0.2}, may_change=["lr"]), extend=False)
    assert (read(tmp_path).config["lr"], read(tmp_path).command[-1]) == ("0.2", "lr=0.2")
    with pytest.raises(UserError, match="model"):
        write_or_check(tmp_path, make(config={"lr": 0.2, "model": 3}, may_change=["lr"]), extend=False)
    with pytest.raises(UserError, match="objective"):
        write_or_check(tmp_path, make(config={"lr": 0.2}, objective="other"), extend=False)


def test_only_the_first_command_names_what_may_change(tmp_path: Path) -> None:
    write_or_check(tmp_path, make(), extend=False)
    with pytest.raises(UserError, match=r"lr=0\.2"):
        write_or_check(tmp_path, make(config={"lr": 0.2}, may_change=["lr"]), extend=False)


@pytest.mark.parametrize("content", [{"format": 2}, {"version": 2, "name": "s"}, {"format": None}])
def test_another_format_is_refused_and_unchanged(tmp_path: Path, content: dict[str, object]) -> None:
    text = json.dumps(content)
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(UserError, match=r"this version of sweepyard reads format 1\.\nUse the version"):
        write_or_check(tmp_path, make(), extend=False)
    assert (tmp_path / "study.json").read_text() == text


def test_sections_that_change_no_result_are_named_in_full() -> None:
    first, second = (make(config={"tracking_weight": weight}) for weight in (1, 2))
    assert [*first.differences(second)] == ["tracking_weight"]


@pytest.mark.parametrize(
    ("before", "lines", "settings", "allowed"),
    [
        (["x=1,2"], ["x=1,2,3"], GRID, True),
        (["x=1,2"], ["x=3,2,1"], GRID, True),
        (["x=1,2"], ["x=1,2", "y=1,2"], GRID, False),
        (["x=1,2"], ["x=1,2"], {**GRID, "n_trials": 2}, True),
        (["x=0.1,2"], ["x=2,1e-1,3"], GRID, True),
        (["x=1,2"], ["x=1,2,3"], SEARCH, True),
        (["x=interval(0,1)"], ["x=interval(0,2)"], SEARCH, True),
        (["x=interval(-1e-3,1)"], ["x=interval(-2.5,1.0)"], SEARCH, True),
        (["x=tag(log,interval(1,2))"], ["x=tag(log,interval(1,8))"], SEARCH, True),
        (["x=interval(1,2)"], ["x=tag(log,interval(1,2))"], SEARCH, False),
        (["x=int(interval(1,2))"], ["x=interval(0.5,2)"], SEARCH, False),
        (["x=interval(1,2)"], ["x=1,2"], SEARCH, False),
        (["x=interval,a"], ["x=interval,a,b"], SEARCH, True),
        (["x=1,2"], ["x=1,2,3"], {**GRID, "storage": "sqlite:///s.db"}, True),
        (["x=1,2"], ["x=1,2"], {**GRID, "config": {"lr": 0.2}}, False),
        (["x=1,2", "y='a,b',c"], ["p=zip(x=[1,1,2,2],y=['a,b',c,'a,b',c])"], GRID, True),
        (["x=1,2"], ["x=1,2"], {**SEARCH, "final_race": 2}, True),
        (["x=1,2"], ["x=1,2"], {**SEARCH, "repeats": 2}, False),  # what ended was judged by one seed
    ],
)
def test_values_that_an_extension_may_add(
    tmp_path: Path, before: list[str], lines: list[str], settings: dict[str, object], allowed: bool
) -> None:
    first = {key: value for key, value in settings.items() if key in ("sampler", "storage")}
    n_trials = 3 if "n_trials" in settings else None
    write_or_check(tmp_path, make(*before, n_trials=n_trials, **first), extend=False)  # type: ignore[arg-type]
    if not allowed:
        with pytest.raises(UserError, match=r"Fixed values cannot change, .*\nEither .* or 2. type") as caught:
            write_or_check(tmp_path, make(*lines, **settings), extend=True)  # type: ignore[arg-type]
        assert "add hydra.sweeper.extend" not in str(caught.value)
        return
    new = make(*lines, **settings)  # type: ignore[arg-type]
    write_or_check(tmp_path, new, extend=True)
    written = read(tmp_path)
    assert replace(written, extended=[]) == new
    assert len(written.extended) == 1
    write_or_check(tmp_path, new, extend=True)
    assert read(tmp_path).extended == written.extended
    with pytest.raises(
        UserError, match=r"was extended by .* This command has .*\nEither .* 2. type the command that ext"
    ):
        write_or_check(tmp_path, make(*before, n_trials=n_trials, **first), extend=False)  # type: ignore[arg-type]


TO_EXCLUDE = "sweepyard exclude study --root {root}"


@pytest.mark.parametrize(
    ("before", "lines", "settings", "message"),
    [
        (
            ["x=1,2,a"],
            ["x=1,3"],
            GRID,
            f"x=1,3: study s has 2, a too.\nType: x=1,3,2,a. To try it no further: {TO_EXCLUDE} x=2",
        ),
        (
            ["x=tag(log,interval(1e-5,1))"],
            ["x=tag(log,interval(1e-4,1e-2))"],
            SEARCH,
            "x=tag(log,interval(0.0001,0.01)): study s has tag(log,interval(1e-05,1)).\n"
            f"Type an interval that contains it. To narrow it: {TO_EXCLUDE} 'x < 0.0001 or x > 0.01'",
        ),
        (["+x=int(interval(1,5))"], ["+x=int(interval(0,4))"], SEARCH, f"{TO_EXCLUDE} 'x > 4'"),
        (
            ["x=1,2"],
            [],
            {**GRID, "exclude": ["x=2"]},
            f"hydra.sweeper.exclude: 'x=2' would take points from study s.\nRemove it here, and type: {TO_EXCLUDE} x=2",
        ),
        (
            ["p=zip(x=[1,2],y=[a,b])"],
            ["p=zip(x=[1,2,2],y=[a,a,c])"],
            GRID,
            "x=2 y=b: study s has this point, and this command lacks it.\n"
            f"Add it to zip(...). To try it no further: {TO_EXCLUDE} 'x=2 and y=b'",
        ),
        (
            ["w=vit-b16,c"],
            ["w=c,d"],
            GRID,
            f"w=c,d: study s has vit-b16 too.\nType: w=c,d,vit-b16. To try it no further: {TO_EXCLUDE} 'w=\"vit-b16\"'",
        ),
        (
            ["x=1,2", "y='a,b',c d"],
            ["p=zip(x=[1,1,2],y=['a,b',c d,'a,b'])"],
            GRID,
            f". To try it no further: {TO_EXCLUDE} 'x=2 and y=\"c d\"'",
        ),
        (
            ["w=c,d", "c=1,2"],
            ["w=d", "c=1,2"],
            {**GRID, "config": {"w": "d"}},
            "w: this command does not sweep it, and study s has c,d.\nType: w=c,d",
        ),
        (
            ["+w=vit-b16,c,d"],
            ["+w=c"],
            {**GRID, "config": {"w": "c"}},
            "+w: this command does not sweep it, and study s has vit-b16,c,d.\nType: +w=vit-b16,c,d",
        ),
        (
            ["x=1,2,3"],
            [],
            {**GRID, "n_trials": 2},
            "hydra.sweeper.n_trials=2: study s has 3.\n"
            "Remove hydra.sweeper.n_trials. To start no further trial: sweepyard stop study --root {root}",
        ),
        (
            ["x=interval(0,1)"],
            [],
            {**SEARCH, "n_trials": 4},
            "hydra.sweeper.n_trials=4: study s has 5.\nType hydra.sweeper.n_trials=5 or more. To start no further",
        ),
    ],
)
def test_an_extension_that_takes_something_away_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: list[str],
    lines: list[str],
    settings: dict[str, object],
    message: str,
) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    monkeypatch.setattr("sys.orig_argv", ["python", "sweep.py", *before])
    first = SEARCH if settings["sampler"] == SEARCH["sampler"] else GRID
    write_or_check(folder, make(*before, **first), extend=False)  # type: ignore[arg-type]
    with pytest.raises(UserError) as caught:
        write_or_check(folder, make(*(lines or before), **settings), extend=True)  # type: ignore[arg-type]
    assert message.format(root=tmp_path) in str(caught.value)
    assert str(caught.value).count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x00\xff", b"{}", b'{"name": "s"}', b'{"colour": 1}', b"{}{}"])
def test_damaged_definition_is_quarantined_and_rewritten(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "study.json"
    file.write_bytes(content)
    with pytest.raises(CorruptFile, match=str(file)):
        read(tmp_path)
    note = write_or_check(tmp_path, make(), extend=False)
    (quarantined,) = tmp_path.glob("study.json.damaged-*")
    assert str(file) in note
    assert quarantined.name in note
    assert quarantined.read_bytes() == content
    assert read(tmp_path) == make()


@pytest.mark.parametrize("extended", ["null", "[{}]", '[{"at": "x"}]', '[{"at": 1e20}]', "[1]", '{"at": 1}'])
def test_a_damaged_extension_is_left_out(tmp_path: Path, extended: str) -> None:
    write_or_check(tmp_path, make(), extend=False)
    file = tmp_path / "study.json"
    file.write_text(file.read_text().replace('"extended": []', f'"extended": {extended}'))
    assert f'"extended": {extended}' in file.read_text()
    assert read(tmp_path) == make()


def test_a_definition_cut_at_any_byte_is_no_traceback(tmp_path: Path) -> None:
    write_or_check(tmp_path, make(), extend=False)
    file = tmp_path / "study.json"
    whole = file.read_bytes()
    for cut in range(0, len(whole), 7):
        file.write_bytes(whole[:cut])
        assert "study.json" in write_or_check(tmp_path, make(), extend=False)
        assert file.read_bytes() == whole


def test_no_study(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path)


def test_resume_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ["python", "sweep.py", "-m", "lr=1,2", "s='a b'", "hydra.sweeper.study_name=old"]
    monkeypatch.setattr("sys.orig_argv", [*words, "hydra.sweeper.extend=true"])
    definition = make(name="new")
    usual = Path(definition.working_folder, "multirun", "new")
    resumed = [*words[:-1], "hydra.sweeper.study_name=new"]
    assert shlex.split(resume_line(definition, usual)) == resumed
    moved = tmp_path / "logs" / "2026 a"  # as after a hydra.sweep.dir with the time of its start
    assert shlex.split(resume_line(definition, moved)) == [*resumed, f"hydra.sweep.dir={moved}".replace(" ", r"\ ")]
    monkeypatch.chdir(tmp_path)
    assert sweeps_line("stop", tmp_path / "multirun" / "s") == "sweepyard stop s"
    assert sweeps_line("stop", Path("/a b/s")) == "sweepyard stop s --root '/a b'"


def as_written(**sweeper: object) -> Definition:
    """Return a configuration with settings of the sweeper as they were typed."""
    hydra = {"sweeper": {"storage": None, "tracking_uri": "${oc.select:tracking.uri,null}", **sweeper}}
    config = OmegaConf.create({"tracking": {"uri": "${oc.env:TRACKING}"}, "hydra": hydra})
    assert isinstance(config, DictConfig)
    return define("s", SweeperConf(), parse([], {}, {}), config, 1, 1)


@pytest.mark.parametrize(
    ("sweeper", "storage", "tracking_uri"),
    [
        ({}, None, "${oc.env:TRACKING}"),
        ({"storage": "${oc.env:DB}"}, "${oc.env:DB}", "${oc.env:TRACKING}"),
        ({"storage": "sqlite:///${oc.env:DB}.db"}, "sqlite:///${oc.env:DB}.db", "${oc.env:TRACKING}"),
        ({"tracking_uri": "${oc.env:OTHER}"}, None, "${oc.env:OTHER}"),
        ({"tracking_uri": None}, None, None),
        ({"tracking_uri": "http://host:5000"}, None, "http://host:5000"),
    ],
)
def test_address_is_stored_as_typed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sweeper: dict[str, object],
    storage: str | None,
    tracking_uri: str | None,
) -> None:
    for name in ("DB", "TRACKING", "OTHER"):
        monkeypatch.setenv(name, "postgresql://me:sesame@host/db")
    write_or_check(tmp_path, as_written(**sweeper), extend=False)
    written = (tmp_path / "study.json").read_text()
    assert "sesame" not in written
    content = json.loads(written)
    assert (content["storage"], content["tracking_uri"]) == (storage, tracking_uri)


def test_a_target_that_has_moved_makes_no_other_study(tmp_path: Path) -> None:
    write_or_check(tmp_path, make(config={"net": {"_target_": "os.path.join"}}), extend=False)
    assert write_or_check(tmp_path, make(config={"net": {"_target_": "posixpath.join"}}), extend=False) == ""
    for other in ("ntpath.join", "posixpath.split", "nowhere.join", "posixpath.join.join"):
        with pytest.raises(UserError, match=f"net._target_={other} was os.path.join"):
            write_or_check(tmp_path, make(config={"net": {"_target_": other}}), extend=False)
