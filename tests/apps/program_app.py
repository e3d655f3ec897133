"""A Hydra app that writes what it finds of its own program, and that leaves work to the end of its process."""

import atexit
import gzip
import inspect
import json
import logging
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any

import hydra
import numpy as np
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import OmegaConf

np.seterr(divide="raise")
warnings.filterwarnings("error", category=DeprecationWarning)
os.environ["SET_BY_THE_PROGRAM"] = "yes"
log = logging.getLogger(__name__)
state = {"set": "by the program"}
lock = threading.Lock()
calls = 0
left: list[Any] = []
Optimizer = make_dataclass("Optimizer", [("lr", float, 0.1), ("betas", list, field(default_factory=lambda: [1, 2]))])
square = lambda x: x * x  # noqa: E731 - a lambda with a name


def wait_for_lock(x: int) -> int:
    with lock:
        return x


OmegaConf.register_new_resolver("locked", wait_for_lock, replace=True)


class Net:
    def __init__(self, x: int = 0) -> None:
        self.x = x

    @staticmethod
    def make() -> "Net":
        return Net(3)


class Writer:
    """Writes its lines when it is deleted."""

    def __init__(self, file: Path) -> None:
        self.file, self.own, self.lines = file, self, ["flushed"]

    def __del__(self) -> None:
        self.file.write_text("".join(self.lines))


def make_schema() -> type:
    @dataclass
    class Schema:
        x: int = 1
        ending: bool = False
        optimizer: Optimizer = field(default_factory=Optimizer)  # type: ignore[valid-type]

    return Schema


ConfigStore.instance().store(name="config", node=make_schema())


def work(number: int) -> int:
    return number * 2


def call() -> None:
    global calls  # noqa: PLW0603 - as scripts have it
    calls += 5


def facts(cfg: Any) -> Iterator[Any]:
    main_module = sys.modules["__main__"]
    yield Path(sys.argv[0]).name, main_module.__file__, __name__, main_module.__doc__, main_module.__package__
    yield log.name, np.geterr()["divide"], warnings.filters[0][:3], os.environ["SET_BY_THE_PROGRAM"]
    yield inspect.getsource(facts)[:30], inspect.getsource(inspect.unwrap(main))[:30]
    yield state, calls, guarded.x, add_guarded(2), os.environ["SET_IN_THE_GUARD"]
    yield pickle.dumps(Net(2)).hex(), isinstance(pickle.loads(pickle.dumps(Net())), Net), square(3)  # noqa: S301
    yield [instantiate({"_target_": f"__main__.{name}"}).x for name in ("Net", "Net.make")]
    yield OmegaConf.create({"a": "${locked:3}"}).a, OmegaConf.create({"a": "${thrice:3}"}).a
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield multiprocessing.get_start_method(), pool.map(work, [1, 2])
    with ProcessPoolExecutor(1) as executor:
        yield list(executor.map(work, [1, 2]))
    config = OmegaConf.to_object(cfg)
    yield [entry.name for entry in fields(config)], type(config)(x=2).x, type(config.optimizer) is Optimizer
    yield config.optimizer.betas
    try:
        Net("too", "many")  # type: ignore[call-arg]
    except TypeError as error:
        yield [(frame.filename, frame.lineno, frame.line) for frame in traceback.extract_tb(error.__traceback__)]


def leave(out: Path) -> None:
    """Leave work to the end of the process."""
    atexit.register((out / "handler").write_text, "called")
    atexit.register(pickle.loads, b"damaged")
    left.append((out / "open").open("w"))
    left.append(gzip.open(out / "open.gz", "wt"))  # noqa: SIM115 - as scripts have it
    for file in left[:2]:
        file.write("1,2\n")
    left.append(Writer(out / "deleted"))
    weakref.finalize(left[-1], (out / "finalized").write_text, "called")
    threading.Thread(target=lambda: (time.sleep(0.5), (out / "thread").write_text("ended"))).start()
    left.append(ThreadPoolExecutor(1))
    left[-1].submit(lambda: (time.sleep(0.3), (out / "pool").write_text("ended")))
    left.append(tempfile.TemporaryDirectory(dir=out))
    multiprocessing.get_context("fork").Process(target=time.sleep, args=[600], daemon=True).start()


@hydra.main(version_base="1.3", config_path=None, config_name="config")
def main(cfg: Any) -> float:
    out = Path(HydraConfig.get().runtime.output_dir)
    if cfg.ending:
        leave(out)
    else:
        (out / "facts.json").write_text(json.dumps([*facts(cfg)], indent=1, default=str))
    return float(cfg.x)


if "__main__" == __name__:  # noqa: SIM300 - as some write it
    os.environ["SET_IN_THE_GUARD"] = "yes"
    multiprocessing.set_start_method("spawn")
    state["set"] = "in the guard"
    guarded = Net(7)

    def add_guarded(x: int) -> int:
        return x + guarded.x

    OmegaConf.register_new_resolver("thrice", lambda x: 3 * x)
    call()
    main()
