"""The files by which the driver and a SLURM job find each other, in the attempt's own folder or in a worker's.

job.json          which SLURM job this is, once sbatch has said so                     (driver)
slurm/call.pkl    what the job is to run; only its owner may look into slurm/          (driver)
slurm/set_up      there once every line of `setup` has succeeded                       (job)
slurm/*.sh        the batch script, as submitit makes it                               (driver)
rank<r>.json      why a rank above 0 failed, as an `End`                               (that rank)
"""

import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path

from sweeps.files import Unreadable, read_json, write_whole


def name_of(folder: Path) -> str:
    """The name of the SLURM job that has its files in `folder`, such as study-trial.attempt-hash. No other job has it:
    it is found by its name whether or not its id was ever written down.
    """
    whole = folder.resolve()
    shown = "-".join(re.sub(r"[^\w.-]", "_", part)[:60] for part in (whole.parents[2].name, whole.parents[1].name))
    unique = hashlib.blake2s(bytes(whole), digest_size=4).hexdigest()
    return f"{shown}.{whole.name}-{unique}"


def note_id(folder: Path, job_id: str) -> None:
    write_whole(folder / "job.json", json.dumps({"name": name_of(folder), "id": job_id}))


def noted_id(folder: Path) -> str | None:
    """None if none was written, it cannot be read, or the folder is a copy of that of another job."""
    with suppress(OSError, Unreadable):
        note = read_json(folder / "job.json") or {}
        if note.get("name") == name_of(folder):
            return str(note["id"])
    return None
