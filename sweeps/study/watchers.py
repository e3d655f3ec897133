"""Those who look at a study while it runs: its terminal, page, mirror and `python -m sweeps status`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.errors import Outage
from sweeps.launchers.contract import TrialLauncher
from sweeps.record.driver_status import DriverStatus
from sweeps.record.study import StudySnapshot
from sweeps.results.terminal import View
from sweeps.study.attempt import Attempt

if TYPE_CHECKING:
    from sweeps.choose.sampler.mirror import Mirror
    from sweeps.results.live import LivePage
    from sweeps.tracking.tracker import Tracker


@dataclass
class Watchers:
    """Shows the study as it stands, again and again."""

    view: View
    launcher: TrialLauncher
    tracker: "Tracker | None" = None
    page: "LivePage | None" = None
    mirror: "Mirror | None" = None
    _status: DriverStatus | None = None  # as it was written last

    def show(self, study: StudySnapshot, running: Mapping[int, Attempt], full: bool, stopped: str) -> None:
        """Show the study, with the attempts that run, whether there is room, and why no further trial starts."""
        for shown in (self.page, self.mirror):
            if shown:
                shown.tick()
        notes, troubles = self.launcher.notes(), self._troubles(running)
        self.view.tick(study, [*notes, *troubles])
        self._write(study, DriverStatus(len(running), full, stopped, tuple(map(str, notes)), tuple(map(str, troubles))))

    def show_end(self, study: StudySnapshot, running: Mapping[int, Attempt], full: bool, stopped: str) -> None:
        """Show the study that its driver leaves: whatever kept it waiting is over."""
        if self.mirror:
            self.mirror.tick(at_once=True)
        self._write(study, DriverStatus(len(running), full, stopped))

    def _write(self, study: StudySnapshot, status: DriverStatus) -> None:
        if status != self._status:
            self._status = status
            status.write(study.folder)

    def notes(self, running: Mapping[int, Attempt]) -> list[str]:
        """Return what is not as it should be, in words."""
        return [*self.launcher.notes(), *self._troubles(running)]

    def _troubles(self, running: Mapping[int, Attempt]) -> list[str]:
        """Return the part of it that keeps no trial waiting."""
        troubles = [f"trial {number}: {attempt.trouble}" for number, attempt in running.items() if attempt.trouble]
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        files = [Outage(f"{troubles[0]}{more}", "the files of all trials can be read again")] if troubles else []
        problems = [shown.problem for shown in (self.tracker, self.page, self.mirror) if shown]
        return [*files, *(problem for problem in problems if problem)]
