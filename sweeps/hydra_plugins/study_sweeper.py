"""hydra/sweeper=grid and hydra/sweeper=optuna."""

import sys
from functools import partial
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeps.settings import SweeperConf

# A YAML file may not have the name of a ConfigStore node, so the public names, grid and optuna, are files
# (sweeps/conf) that extend this one: https://hydra.cc/docs/upgrades/1.0_to_1.1/automatic_schema_matching/
ConfigStore.instance().store(
    group="hydra/sweeper", name="sweepyard_sweeper", node=SweeperConf, provider="sweepyard"
)


class StudySweeper(Sweeper):
    """Runs a study (`sweeps.study.driver`)."""

    def __init__(self, **settings: Any) -> None:
        """Hydra passes the settings; they are read from the config, typed, in `setup`."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.config = config
        self._run = partial(self._run_study, config, hydra_context, task_function)

    def sweep(self, arguments: list[str]) -> Any:
        """Exits with 2 if something asked for cannot be, with 1 if more trials failed than may."""
        return self._run(arguments)

    def _run_study(
        self,
        config: DictConfig,
        hydra_context: HydraContext,
        task_function: TaskFunction,
        arguments: list[str],
    ) -> Any:
        from sweeps.errors import UserError
        from sweeps.study.driver import Driver  # Hydra imports every plugin, also for --help

        try:
            driver = Driver(config, hydra_context, task_function)
            self.launcher = Plugins.instance().instantiate_launcher(
                hydra_context=hydra_context, task_function=task_function, config=config
            )
            summary = driver.run(self.launcher, arguments)
        except UserError as error:
            print(error, file=sys.stderr)
            raise SystemExit(2) from error
        if driver.failed(summary):
            raise SystemExit(1)
        return summary
