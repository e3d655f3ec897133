"""Puts the samplers and pruners (sweeps/conf) on the search path of every Hydra app."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class SweepyardSearchPath(SearchPathPlugin):
    """Adds hydra/sweeper/sampler and hydra/sweeper/pruner."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("sweepyard", "pkg://sweeps.conf")
