"""A job on its way to its trial's process."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import cloudpickle
from omegaconf import DictConfig

from sweeps.trial.folder import AttemptFolder, TrialFolder
from sweeps.trial.job import Objective, Request
from sweeps.trial.packing import pack
from sweeps.trial.run.app import PackedApp
from sweeps.trial.run.program import Program


@dataclass(frozen=True)
class Job:
    """One attempt at a trial, ready to be sent to its process."""

    study: str
    number: int
    attempt: int  # number from 1 on; 0 until the attempt has a folder
    # the composed config with its hydra node; hydra.launcher contains this trial's own settings
    config: DictConfig
    request: Request
    folder: TrialFolder
    app: PackedApp  # the Hydra app: the same for every trial
    objective: Objective | None = None  # None if another library's sweeper reads the return value
    environment: Mapping[str, str] = field(default_factory=dict)
    # file for Hydra's pickled JobReturn, for another library's sweeper
    job_return: Path | None = None

    @property
    def attempt_folder(self) -> AttemptFolder:
        return self.folder.attempt(self.attempt)


@dataclass(frozen=True)
class SentJob:
    """A job whose config only the trial's process unpickles, because a config may contain classes
    of the program."""

    number: int
    attempt: int
    folder: "TrialFolder"
    request: Request
    environment: Mapping[str, str]
    env_set: tuple[str, ...]  # names of the variables that hydra.job.env_set sets
    program: Program | None
    content: bytes  # the `Job`

    @classmethod
    def of(cls, job: Job) -> "SentJob":
        """Return the job as it is sent."""
        program = job.app.program
        content = pack(replace(job, app=replace(job.app, program=None)))
        return cls(
            number=job.number,
            attempt=job.attempt,
            folder=job.folder,
            request=job.request,
            environment=job.environment,
            env_set=tuple(job.config.hydra.job.env_set),
            program=program,
            content=content,
        )

    @property
    def attempt_folder(self) -> "AttemptFolder":
        return self.folder.attempt(self.attempt)

    def unpack(self) -> Job:
        """Run the program in this process, and return the job. Raises what the program raises."""
        if self.program:
            self.program.run()
        else:
            # because the user's `__main__`, such as that of `python -c`, is not this process's
            sys.modules["__main__"] = ModuleType("__main__")
        job: Job = cloudpickle.loads(self.content)
        return replace(job, request=self.request, environment=self.environment)
