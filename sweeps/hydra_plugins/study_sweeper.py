"""hydra/sweeper=grid and hydra/sweeper=optuna."""

import sys
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from sweeps.settings import SweeperConf

# A YAML file may not have the name of a ConfigStore node, so the public names, grid and optuna, are files
# (sweeps/conf) that extend this one: https://hydra.cc/docs/upgrades/1.0_to_1.1/automatic_schema_matching/
ConfigStore.instance().store(group="hydra/sweeper", name="sweepyard_sweeper", node=SweeperConf, provider="sweepyard")


class StudySweeper(Sweeper):
    """Runs a study (`sweeps.study.driver`)."""

    def __init__(self, **settings: Any) -> None:
        """Hydra passes the settings; they are read from the config, typed, by the driver."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        self._app: Any = {"hydra_context": hydra_context, "task_function": task_function, "config": config}

    def sweep(self, arguments: list[str]) -> Any:
        """Exits with 2 if something asked for cannot be, with 1 if more trials failed than may."""
        from sweeps.errors import UserError
        from sweeps.study.compose import explain
        from sweeps.study.driver import Driver  # Hydra imports every plugin, also for --help

        try:
            driver = Driver(**self._app)
            self.launcher = Plugins.instance().instantiate_launcher(**self._app)
            summary = driver.run(self.launcher, arguments)
        except UserError as error:
            print(error, file=sys.stderr)
            raise SystemExit(2) from error
        except (HydraException, OmegaConfBaseException) as error:
            print(explain(error, self._app["config"]), file=sys.stderr)
            raise SystemExit(2) from error
        if driver.failed(summary):
            raise SystemExit(1)
        return summary
