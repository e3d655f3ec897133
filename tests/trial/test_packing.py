"""Pickles of classes that no other process can import."""

import dataclasses
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from sweeps.trial.packing import pack, pack_for_here
from tests.command_lines import environment

_READ = """
import dataclasses, pickle, sys
made = pickle.load(sys.stdin.buffer)
first, second = dataclasses.fields(made)
assert (first.name, second.name, made.sizes) == ("x", "sizes", [1]), made
assert first.default is dataclasses.MISSING and second.default is dataclasses.MISSING
assert type(made)(2).x == 2
"""


def make() -> Any:
    @dataclass
    class Local:
        x: int
        sizes: list[int] = field(default_factory=lambda: [1])

    return Local(1)


def test_dataclass_of_a_function_is_whole_in_another_process() -> None:
    done = subprocess.run([sys.executable, "-c", _READ], input=pack(make()), capture_output=True, env=environment())
    assert (done.returncode, done.stderr) == (0, b"")


def test_copy_for_this_process_has_the_same_class() -> None:
    made = make()
    copy = pickle.loads(pack_for_here(made))  # noqa: S301
    assert type(copy) is type(made)
    assert dataclasses.asdict(copy) == dataclasses.asdict(made)
