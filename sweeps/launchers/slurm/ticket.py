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
from pathlib import Path

from sweeps.files import Unreadable, read_json, write_whole
from sweeps.trial.job import End


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
    """None if no id was written, or it cannot be read."""
    try:
        job_id = (read_json(folder / "job.json") or {}).get("id")
    except (OSError, Unreadable):
        return None
    return job_id if isinstance(job_id, str) and job_id.isdecimal() else None


def end_of_ranks(attempt: Path) -> End | None:
    """Why a rank above 0 failed: the first that did."""
    for file in sorted(attempt.glob("rank*.json"), key=lambda file: file.stat().st_mtime):
        try:
            end = End.from_json(read_json(file) or {})
        except (Unreadable, ValueError, KeyError, TypeError):
            continue
        return End(end.state, f"{file.stem.replace('rank', 'rank ')}: {end.error}")
    return None
