"""The end of a trial's process when its program never ends."""

import subprocess
import sys

import pytest

_END = "import atexit, threading, time\nfrom sweeps.trial.run import ending\nending._LIMIT_S = 0.5\n"


@pytest.mark.parametrize(
    ("lines", "running"),
    [
        ("threading.Thread(target=time.sleep, args=[60], name='upload').start()", "threads (upload)"),
        ("atexit.register(time.sleep, 60)", "exit handlers"),
    ],
)
def test_process_that_does_not_end_is_ended(lines: str, running: str) -> None:
    program = f"{_END}{lines}\nending.end_process()\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    assert f"this process still runs {running}; it is ended" in done.stderr
