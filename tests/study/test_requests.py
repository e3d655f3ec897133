"""Requests of persons whose files a driver cannot take: each concerns itself alone."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeps.choose import manual
from sweeps.choose.repeats import Seeds
from sweeps.hydra.settings import SweeperConf
from sweeps.record.study import StudySnapshot
from sweeps.study.run.requests import Requests
from tests.command_lines import GRID, rows, run, theirs
from tests.study.conftest import MakeStudy

WRONG = {
    "a text": "{",
    "nothing": "",
    "a list": "[]",
    "a number": "5",
    "deep": "[" * 5000,
    "a mapping as a value": '{"params": {"+x": {"a": 1}}, "by": "bob"}',
    "a list as a value": '{"params": {"+x": [1]}, "by": "bob"}',
    "a lone surrogate": '{"params": {"+x": "\\ud800"}, "by": "bob"}',
    "a huge number": '{"params": {"+x": 1%s}, "by": "bob"}' % ("0" * 400),
    "another key": '{"params": {"y": 1}, "by": "bob"}',
    "a number as condition": '{"condition": 5, "by": "bob"}',
    "a condition on nothing": '{"condition": "zzz=1", "by": "bob"}',
    "a wrong condition": '{"condition": "((", "by": "bob"}',
}
"""Contents of files that are refused."""


def make_unreadable(folder: Path) -> None:
    (folder / "80.json").mkdir()
    (folder / "81.json").symlink_to("81.json")
    (folder / "82.json").symlink_to("gone")
    (folder / "83.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "84.json")


def test_wrong_requests_stop_no_study(tmp_path: Path) -> None:
    command = theirs(*GRID, "+x=1,2")
    assert run(command, tmp_path).code == 0
    added = tmp_path / "multirun" / "s" / "added"
    added.mkdir()
    for number, content in enumerate(WRONG.values(), 10):
        (added / f"{number}.json").write_text(content)
    make_unreadable(added)
    valid = {"params": {"+x": 7}, "by": "bob"}
    (added / f"{'9' * 200}.json").write_text(json.dumps(valid))  # a time that no calendar has

    done = run(command, tmp_path)

    assert done.code == 0, done.said
    assert "Traceback" not in done.said
    assert done.out.count("refused: ") == len(WRONG) + 5
    assert not [*added.glob("*.json")]
    assert [row.params["+x"] for row in rows(tmp_path / "multirun" / "s")] == [1, 2, 7]
    repeated = run(command, tmp_path)
    assert (repeated.code, repeated.out.count("refused: ")) == (0, 0)


def test_unreadable_request_is_named_once_and_taken_later(
    make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study("x=1,2,3")
    record = study.record(SweeperConf())
    file = manual.exclude_points(study.folder, "x=3")
    requests = Requests(study.folder, study.space, Seeds(), points=None)  # type: ignore[arg-type]
    lines: list[str] = []

    def forbid(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(manual, "read_json", forbid)
        for _ in range(3):
            lines += requests.take(record)
    assert len(lines) == 1 and "Permission denied" in lines[0] and str(file) in lines[0]
    lines += requests.take(record)
    assert [excluded.text for excluded in record.study.excluded] == ["x=3"]
    assert not file.exists() and len(lines) == 1


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o2775])
@pytest.mark.parametrize("request_points", [manual.exclude_points])
def test_owner_reads_requests_whatever_the_umask(
    tmp_path: Path, mode: int, request_points: Callable[[Path, str], Path]
) -> None:
    study = StudySnapshot("s", tmp_path / "s", ("objective",), ("minimize",), [])
    study.folder.mkdir()
    study.folder.chmod(mode)
    umask = os.umask(0o077)
    try:
        file = request_points(study.folder, "x=3")
    finally:
        os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o644
    assert file.parent.stat().st_mode & 0o7777 == mode
