"""Around a Hydra app's main function: answers to mistakes, and a single run that is checked and tracked like a trial."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig

from sweeps.compose import explain
from sweeps.errors import UserError


@contextmanager
def answer_mistakes(config_dir: Path, config_name: str = "config") -> Iterator[None]:
    """Say in two lines what Hydra cannot compose, and exit with 2. HYDRA_FULL_ERROR=1 shows the traceback instead."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        yield
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise its errors instead of printing them
    try:
        yield
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    except HydraException as error:
        print(explain(error, _known(config_dir, config_name)), file=sys.stderr)
        raise SystemExit(2) from None
    finally:
        del os.environ["HYDRA_FULL_ERROR"]


def _known(config_dir: Path, config_name: str) -> DictConfig:
    """The configuration with the choices made on the command line, but not its values: one of those is the mistake."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(config_dir), version_base="1.3"):
        known = compose(config_name, return_hydra_config=True)
        choices = [text for text in sys.argv[1:] if text.partition("=")[0] in known.hydra.runtime.choices]
        try:
            return compose(config_name, choices, return_hydra_config=True)
        except HydraException:  # the mistake is in the choices, or they are swept
            return known
