"""What the site allows: how large an array may be, how many jobs this user may have submitted, and
time limits."""

import math
import os
import pwd
import re
from collections.abc import Iterable
from contextlib import suppress

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.queue import SlurmError, answer

MOST = 1000  # maximum size of an array, because each element has a folder before it starts
_SHOW = ["sacctmgr", "--noheader", "--parsable2", "show"]
_QOS = [*_SHOW, "qos", "format=Name,MaxSubmitJobsPU,MaxSubmitJobsPA"]


def max_array() -> int:
    """Return the maximum number of elements of an array: 1000, or less if SLURM's MaxArraySize is
    smaller."""
    with suppress(SlurmError):
        config = answer(["scontrol", "show", "config"])
        match = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)
        if match:
            return max(1, min(MOST, int(match[1])))
    return MOST


def max_submitted(settings: SlurmLauncherConf) -> float:
    """Return how many jobs this user may have queued and running; infinity without a limit, or if
    nobody knows.

    The limit may be too high, because a parent account may have a lower one: then sbatch refuses,
    and the driver waits.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # because the site's directory of users does not answer
        return math.inf
    columns = "format=Account,DefaultQOS,MaxSubmitJobs,GrpSubmitJobs"
    rows = _rows([*_SHOW, "assoc", "where", f"user={user}", columns], 4)
    associations = [row for row in rows if settings.account in (None, row[0])]
    if not associations:
        return math.inf
    # because sbatch may choose any of them
    of_accounts = max(_least(row[2:]) for row in associations)
    names = [settings.qos] if settings.qos else [row[1] for row in associations]
    of_qos = [_least(row[1:]) for row in _rows(_QOS, 3) if row[0] in names]
    return max(1, min([of_accounts, *of_qos]))  # at least 1, so that sbatch names a limit of 0


def minutes_in(limit: str) -> float:
    """Return a time limit as sinfo prints it, such as 1-00:00:00 or 30:00, in minutes; infinite if
    it is no time."""
    if not (match := re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)??(?:(\d+):)?(\d+)", limit)):
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 1440 + hours * 60 + minutes + seconds / 60


def _rows(command: list[str], fields: int) -> list[list[str]]:
    """Return the rows of the command's output; none if it fails."""
    with suppress(SlurmError):
        rows = [line.split("|") for line in answer(command).splitlines()]
        return [row for row in rows if len(row) == fields]
    return []


def _least(limits: Iterable[str]) -> float:
    return min((int(limit) for limit in limits if limit.isdecimal()), default=math.inf)
