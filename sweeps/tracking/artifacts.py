"""Files of a trial as MLflow gets them: without secrets, and not too long."""

from pathlib import Path

import yaml

from sweeps.base.secrets import mask_value, without_password
from sweeps.hydra import plain

_LONG_BYTES = 5_000_000


def copy_for_show(file: Path, folder: Path) -> Path:
    """Return a file that others may read: without secrets, if it is a YAML file, and not too long.

    If this changes the file, the path leads to a copy of the same name in `folder`.
    """
    if file.stat().st_size > _LONG_BYTES:
        return _shortened(file, folder)
    if file.suffix != ".yaml":
        return file
    text = file.read_text(errors="replace")
    try:
        content = plain.load(text)
        masked = mask_value("", content)
        if masked == content:
            return file
        text = yaml.safe_dump(masked, sort_keys=False)
    except yaml.YAMLError:  # because the file may be damaged
        text = without_password(text)
    (folder / file.name).write_text(text)
    return folder / file.name


def _shortened(file: Path, folder: Path) -> Path:
    """Copy the head and the tail of a file into `folder`, and return the path of the copy, which
    has the same name."""
    half = _LONG_BYTES // 2
    size = file.stat().st_size
    copy = folder / file.name
    with file.open("rb") as whole, copy.open("wb") as short:
        short.write(whole.read(half))
        note = f"[... {size - 2 * half} bytes are left out here; the whole file: {file}]"
        short.write(f"\n\n{note}\n\n".encode())
        whole.seek(size - half)
        short.write(whole.read(half))
    return copy
