"""The first seconds of a new mlflow.db: killed drivers, and several drivers at once."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tracking.studies import runs

OPEN = """
import os, random, signal, sys, time
from pathlib import Path
import mlflow.store.tracking.sqlalchemy_store
from sweeps.record.study import StudySnapshot
from sweeps.tracking.tracker import Tracker

def in_child(task):
    child = os.fork()
    if child == 0:
        try:
            task()
            os._exit(0)
        finally:
            os._exit(1)
    return child

def open_at(folder):
    Tracker(f"sqlite:///{folder}/mlflow.db", "e", StudySnapshot("s", folder / "s", ("loss",), ("minimize",), [])).open()

def code_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
KILLED = """
random.seed(sys.argv[2])
for number in range(3):
    folder = Path(sys.argv[1], str(number))
    child = in_child(lambda: open_at(folder))
    time.sleep(random.uniform(0.3 * number, 0.3 * (number + 1)))
    os.kill(child, signal.SIGKILL)
    code_of(child)
    print(number, code_of(in_child(lambda: open_at(folder))), flush=True)
"""
TOGETHER = """
children = [in_child(lambda: open_at(Path(sys.argv[1]))) for _ in range(2)]
print([code_of(child) for child in children])
"""


def run(code: str, *arguments: object) -> str:
    command = [sys.executable, "-c", OPEN + code, *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout


@pytest.mark.long
def test_store_of_a_killed_driver_is_completed_by_the_next(tmp_path: Path) -> None:
    output = run(KILLED, tmp_path, time.time())
    assert output.splitlines() == [f"{number} 0" for number in range(3)], output
    for number in range(3):
        uri = f"sqlite:///{tmp_path / str(number)}/mlflow.db"
        assert list(runs(uri)) == ["s"]  # the killed driver's run, if the driver created a run
        note = json.loads((tmp_path / str(number) / "s" / "tracking.json").read_text())
        assert note["run_id"] == runs(uri)["s"].info.run_id


@pytest.mark.long
def test_drivers_may_start_at_once_in_a_new_store(tmp_path: Path) -> None:
    assert run(TOGETHER, tmp_path) == "[0, 0]\n"
