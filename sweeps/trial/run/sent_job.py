"""A job on its way to its trial's process."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import cloudpickle

from sweeps.trial.job import Job, Request
from sweeps.trial.packing import pack
from sweeps.trial.run.program import Program

if TYPE_CHECKING:
    from sweeps.trial.folder import AttemptFolder, TrialFolder


@dataclass(frozen=True)
class SentJob:
    """A job whose config only the trial's process unpickles, because a config may contain classes
    of the program."""

    number: int
    attempt: int
    folder: "TrialFolder"
    request: Request
    environment: Mapping[str, str]
    program: Program | None
    content: bytes  # the `Job`

    @classmethod
    def of(cls, job: Job) -> "SentJob":
        """Return the job as it is sent."""
        program = job.app.program
        content = pack(replace(job, app=replace(job.app, program=None)))
        return cls(
            job.number, job.attempt, job.folder, job.request, job.environment, program, content
        )

    @property
    def attempt_folder(self) -> "AttemptFolder":
        return self.folder.attempt(self.attempt)

    def unpack(self) -> Job:
        """Run the program in this process, and return the job. Raises what the program raises."""
        if self.program:
            self.program.run()
        job: Job = cloudpickle.loads(self.content)
        return replace(job, request=self.request, environment=self.environment)
