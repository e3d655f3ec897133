"""Make a Python process list and rename files of studies as slowly as on a busy shared disk: DELAY_S seconds each."""

import os
import time
from typing import Any


def _slow_down(name: str) -> None:
    call = getattr(os, name)

    def delayed(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        if not isinstance(path, int) and "multirun" in os.fsdecode(path):
            time.sleep(float(os.environ["DELAY_S"]))
        return call(path, *arguments, **options)

    setattr(os, name, delayed)


for _name in ("replace", "rename", "scandir", "listdir"):
    _slow_down(_name)
