"""The notes of TensorFlow's start, which alone are left out of standard error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_lines import ROOT, environment
from trainers.quiet_tensorflow import drop_lines


def test_lines_are_left_out_and_all_others_stay_in_their_order(capfd: pytest.CaptureFixture[str]) -> None:
    with drop_lines("I0000 "):
        os.write(2, b"a warning\nI0000 a remark\nE0000 I0000 an error\nwithout an end")
    print("after it", file=sys.stderr)
    assert capfd.readouterr().err == "a warning\nE0000 I0000 an error\nwithout an end\nafter it\n"


def test_output_before_a_crash_is_kept(tmp_path: Path) -> None:
    crash = "import os\nfrom trainers.quiet_tensorflow import drop_lines\n"
    crash += "with drop_lines('I0000'):\n    os.write(2, b'I0000 x\\nno AVX here\\n')\n    os.abort()\n"
    code = f"import sys; sys.modules['tensorflow'] = None\n{crash}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-6, "no AVX here\n")
