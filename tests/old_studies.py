"""Restore studies of the version that stored studies in Optuna's journal: tests/data/README.txt."""

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
    """Restore the study of this name in `folder`, and return the study's own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_APP, folder)
    study = folder / "multirun" / name
    with tarfile.open(_ARCHIVE) as archive:
        members = [
            member for member in archive if member.name == "studies.db" or member.name.startswith(f"multirun/{name}/")
        ]
        archive.extractall(folder, members, filter="data")
    file = study / "study.json"
    file.write_text(file.read_text().replace("@FOLDER@", str(folder)).replace("@PYTHON@", sys.executable))
    return study


def command(study: Path) -> list[str]:
    """Return the words after `python` that started the study."""
    study_definition = definition.read(study)
    return [*study_definition.command[1:], f"hydra.sweeper.study_name={study_definition.name}"]


def expected() -> dict[str, dict[str, Any]]:
    """Return the results of each study in the old version, by the study's name.

    A result has the `total`, the `ended` trials, and `after`: all trials after a second run of the command, with the
    exit `code` if determined. A trial is [number, state, params, objective, attempts].
    """
    with tarfile.open(_ARCHIVE) as archive:
        file = archive.extractfile("expected.json")
        assert file is not None
        results: dict[str, dict[str, Any]] = json.load(file)
        return results
