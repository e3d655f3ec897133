"""How trials end on a real cluster: every end has its own name."""

import os
import signal
import time
from typing import Any

from sweeps.trial.folder import State


def complete(cfg: Any) -> float:
    print("hello from the trial")
    return 3.0


def fail(cfg: Any) -> float:
    raise ValueError("no such layer")


def exit_3(cfg: Any) -> float:
    os._exit(3)


def exit_0(cfg: Any) -> float:
    os._exit(0)


def crash(cfg: Any) -> float:
    os.kill(os.getpid(), signal.SIGSEGV)
    return 0.0


def die(cfg: Any) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def eat_memory(cfg: Any) -> float:
    hoard = bytearray(600_000_000)
    hoard[::4096] = b"x" * len(hoard[::4096])
    time.sleep(20)
    return 0.0


def sleep(cfg: Any) -> float:
    time.sleep(60)
    return 0.0


def test_each_end_has_its_name(trials, make_job, ends):
    cases: list[tuple[Any, dict[str, Any], State, str]] = [
        (complete, {}, State.COMPLETED, ""),
        (fail, {}, State.FAILED, "no such layer"),
        (exit_3, {}, State.FAILED, "without a result"),
        (exit_0, {}, State.FAILED, "without a result"),
        (crash, {}, State.FAILED, "crashed, task 0 on lab"),
        (die, {}, State.LOST, "killed from outside"),
        (eat_memory, {"mem_gb": 0.3}, State.OUT_OF_MEMORY, "more memory than it had asked for"),
        (complete, {"setup": ["module_that_is_not_there load"]}, State.FAILED, "a setup line failed"),
        (complete, {"mem_gb": 500}, State.FAILED, "SLURM refused the job: Memory specification"),
        (complete, {"partition": "nowhere"}, State.FAILED, "invalid partition specified: nowhere"),
    ]
    jobs = [make_job(number, task, **settings) for number, (task, settings, _, _) in enumerate(cases)]
    for job in jobs:
        while not trials.submit(job):
            time.sleep(0.1)
    found = ends(len(cases))
    for number, (_, _, state, words) in enumerate(cases):
        end = found[number]
        assert (end.state, words in end.error) == (state, True), end
        result = jobs[number].folder.read_result()
        assert (result is not None) == (number in {0, 1})
    assert jobs[0].folder.read_result().objective == [3.0]
    assert "hello from the trial" in (jobs[0].attempt / "log").read_text()
