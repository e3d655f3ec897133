"""Around a Hydra app's main function: answers to mistakes, and a single run that is checked and tracked like a trial."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException

from sweeps.compose import explain


@contextmanager
def answer_mistakes(config_dir: Path, config_name: str = "config") -> Iterator[None]:
    """Say in two lines what Hydra cannot compose, and exit with 2. HYDRA_FULL_ERROR=1 shows the traceback instead."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        yield
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise its errors instead of printing them
    try:
        yield
    except HydraException as error:
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(config_dir), version_base="1.3"):
            known = compose(config_name, return_hydra_config=True)
        print(explain(error, known), file=sys.stderr)
        raise SystemExit(2) from None
    finally:
        del os.environ["HYDRA_FULL_ERROR"]
