"""hydra/launcher=local."""

from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.config_store import ConfigStore

from sweeps.launchers.plugin import TrialsPlugin
from sweeps.settings import LocalLauncherConf

if TYPE_CHECKING:
    from sweeps.launchers.contract import TrialLauncher

ConfigStore.instance().store(
    group="hydra/launcher", name="sweepyard_local", node=LocalLauncherConf, provider="sweepyard"
)


class LocalLauncher(TrialsPlugin):
    """Trials as forks of a warm process on this machine."""

    def trials(self, study_folder: Path) -> "TrialLauncher":
        from sweeps.launchers.local import LocalTrials

        return LocalTrials(self.config.hydra.launcher.preload, study_folder / "fork_server.log")
