"""Studies of the version that kept them in Optuna's journal, as their drivers left them: tests/data/README.txt."""

import json
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

from sweeps.record import definition

_ARCHIVE = Path(__file__).parent / "data" / "old_studies.tar.xz"
_APP = Path(__file__).parent / "apps" / "old_app.py"


def unpack(folder: Path, name: str) -> Path:
    """The study of this name as if it had been started in `folder`; returns its own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_APP, folder)
    study = folder / "multirun" / name
    with tarfile.open(_ARCHIVE) as archive:
        wanted = [one for one in archive if one.name == "studies.db" or one.name.startswith(f"multirun/{name}/")]
        archive.extractall(folder, wanted, filter="data")
    file = study / "study.json"
    file.write_text(file.read_text().replace("@FOLDER@", str(folder)).replace("@PYTHON@", sys.executable))
    return study


def command(study: Path) -> list[str]:
    """The words after `python` that started it."""
    known = definition.read(study)
    return [*known.command[1:], f"hydra.sweeper.study_name={known.name}"]


def expected() -> dict[str, dict[str, Any]]:
    """What that version said of each study, by its name.

    `total`; `ended`, the trials that had, and `after`, all trials after the same command again with its exit `code`,
    where that is determined. A trial is [number, state, params, objective, attempts].
    """
    with tarfile.open(_ARCHIVE) as archive:
        file = archive.extractfile("expected.json")
        assert file is not None
        found: dict[str, dict[str, Any]] = json.load(file)
        return found
