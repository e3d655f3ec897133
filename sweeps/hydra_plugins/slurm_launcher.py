"""hydra/launcher=slurm."""

from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.config_store import ConfigStore

from sweeps.errors import UserError
from sweeps.launchers.plugin import TrialsPlugin
from sweeps.settings import SlurmLauncherConf, read

if TYPE_CHECKING:
    from sweeps.launchers.contract import TrialLauncher

ConfigStore.instance().store(
    group="hydra/launcher", name="sweepyard_slurm", node=SlurmLauncherConf, provider="sweepyard"
)


class SlurmLauncher(TrialsPlugin):
    """Each trial as a SLURM job."""

    def trials(self, study_folder: Path) -> "TrialLauncher":
        if "%" in str(study_folder):
            raise UserError(
                f"hydra/launcher=slurm: SLURM reads the % in {study_folder} as a pattern. Choose another "
                "hydra.sweeper.study_name, or start in another folder"
            )
        from sweeps.launchers.slurm.jobs import SlurmTrials
        from sweeps.launchers.slurm.workers import SlurmWorkers

        settings = read(self.config.hydra.launcher, SlurmLauncherConf)
        if settings.trials_per_job == 1:
            return SlurmTrials(settings)
        return SlurmWorkers(settings, study_folder.absolute() / "workers")
