"""Commands that are started without some of the standard streams, as by a daemon or cron."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_lines import GRID, ROOT, THEIRS, environment, rows

STUDY = [THEIRS, "-m", *GRID, "+x=1,2", "hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s"]
STATUS = ["-m", "sweeps", "status", "s"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.long
def test_closed_streams_change_no_result(closed: str, tmp_path: Path) -> None:
    for words, code in [(STUDY, 0), ([THEIRS, "+x=1"], 0), (STATUS, 0), (["-m", "sweeps", "status", "t"], 2)]:
        line = f"{shlex.join([sys.executable, *words])} {closed}"
        done = subprocess.run(
            ["bash", "-c", line], check=False, cwd=tmp_path, env=environment({"PYTHONPATH": str(ROOT)})
        )
        assert done.returncode == code, line
    assert [row.state for row in rows(tmp_path / "multirun" / "s")] == ["completed"] * 2
    lines = (tmp_path / "multirun" / "s" / "journal.jsonl").read_text().splitlines()
    assert all(line.startswith("{") for line in lines)  # because libraries print to the streams by number
