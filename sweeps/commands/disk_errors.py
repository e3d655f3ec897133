"""What to type after an error of the disk, such as a file in a colleague's study."""

import errno
import os
import pwd
import shlex
import sys
from contextlib import suppress
from pathlib import Path

from sweeps.base.errors import UserError

_NOT_ALLOWED = {errno.EACCES, errno.EPERM}


def explain(error: OSError | UserError) -> str:
    """Return an error of a file or folder in two lines, and a mistake of the user as it is."""
    if isinstance(error, UserError):
        return str(error)
    words = (error.strerror or str(error) or type(error).__name__).rstrip(".")
    if error.filename is None:
        return f"{words}.\nRepeat this command"
    path = Path(str(error.filename))
    problem = f"{path}: {words}"
    if error.errno in _NOT_ALLOWED:
        return f"{problem}.\n{_advise_owner(path)}"
    if error.errno == errno.EROFS:
        return (
            f"{problem}.\nCopy the study's folder to another disk, and name its new place: --root"
            " /where/it/is"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{problem}.\nMake room, and repeat this command"
    return f"{problem}.\nCheck this path, and repeat this command"


def _advise_owner(path: Path) -> str:
    """Return who may read or write a path, and what this user can type."""
    owner = "another user"
    # the nearest folder above that may be looked at
    for present in (path, *path.absolute().parents):
        with suppress(OSError):
            owner = _name_of(present.stat().st_uid)
            break
    command = shlex.join(["sweepyard", *sys.argv[1:]])
    if owner == _name_of(os.getuid()):
        return f"Allow it: {shlex.join(['chmod', 'u+rwX', str(present)])}"
    return (
        f"It belongs to {owner}. Ask {owner} to type: cd {shlex.quote(str(Path.cwd()))} &&"
        f" {command}"
    )


def _name_of(user: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(user).pw_name
    return f"user {user}"
