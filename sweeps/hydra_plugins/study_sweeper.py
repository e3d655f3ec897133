"""hydra/sweeper=grid and hydra/sweeper=optuna, and the way to their samplers and pruners, for every Hydra app."""

import sys
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from sweeps.settings import SweeperConf

# A YAML file may not have the name of a ConfigStore node, so the public names, grid and optuna, are files
# (sweeps/conf) that extend this one: https://hydra.cc/docs/upgrades/1.0_to_1.1/automatic_schema_matching/
ConfigStore.instance().store(group="hydra/sweeper", name="sweepyard_sweeper", node=SweeperConf, provider="sweepyard")


class SweepyardSearchPath(SearchPathPlugin):
    """Adds sweeps/conf."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("sweepyard", "pkg://sweeps.conf")


class StudySweeper(Sweeper):
    """Runs a study (`sweeps.study.driver`)."""

    def __init__(self, **settings: Any) -> None:
        """Hydra passes the settings; they are read from the config, typed, by the driver."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._app: Any = {"hydra_context": hydra_context, "task_function": task_function, "config": config}

    def sweep(self, arguments: list[str]) -> Any:
        """Exits with 2 if something asked for cannot be, with 1 if more trials failed than may."""
        from sweeps.errors import UserError
        from sweeps.study.compose import explain
        from sweeps.study.driver import Driver  # Hydra imports every plugin, also for --help

        try:
            driver = Driver(**self._app)
            summary = driver.run(Plugins.instance().instantiate_launcher(**self._app), arguments)
        except (UserError, HydraException, OmegaConfBaseException) as error:
            print(error if isinstance(error, UserError) else explain(error, self._app["config"]), file=sys.stderr)
            raise SystemExit(2) from error
        if driver.failed(summary):
            raise SystemExit(1)
        return summary
