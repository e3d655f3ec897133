"""What a command would say of a study that exists in its folder, without a change to the study."""

from pathlib import Path
from typing import Any

from sweeps.base.errors import UserError
from sweeps.base.files import CorruptFile, holder
from sweeps.base.wording import counted
from sweeps.record.definition import Definition
from sweeps.record.place import resume_line
from sweeps.record.study_file import read, refuse_differences
from sweeps.study.folder import code
from sweeps.study.folder.claim import refuse_running
from sweeps.study.folder.handover import refuse_driver_job
from sweeps.study.folder.reading import read_study


def check_existing(folder: Path, typed: Definition, extend: bool, task_function: Any) -> str:
    """Return how far the study is, in words; empty if there is none. Raises UserError if the
    command would be refused.

    `typed` is the definition of the study that the command describes.
    """
    try:
        study = read(folder)
    except FileNotFoundError:
        return ""
    except CorruptFile as error:
        return f"{error}. The command defines the study anew"
    widens = extend and bool(study.differences(typed))
    if (driver := holder(folder / "driver.lock")) and not widens:
        refuse_running(folder, str(driver))
    refuse_driver_job(folder)
    refuse_differences(folder, study, typed, extend)
    code.check(folder, task_function, extend, resume_line(typed, folder))
    try:
        ended = read_study(folder, study).over()
    except UserError as error:  # because the command repairs the record
        return str(error).splitlines()[0]
    return (
        f"study {study.name} exists: {counted(ended, 'trial')} of it ended, and would not run again"
    )
