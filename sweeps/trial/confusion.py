"""The confusion matrix of a trial's saved model, in confusion.json: counts of examples by true and
predicted class."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from sweeps.base.files import CorruptFile, read_json, write_whole

_FILE = "confusion.json"


@dataclass(frozen=True)
class Confusion:
    """Counts of a subset's examples: a row for each true class, a column for each predicted
    class."""

    subset: str  # the examples, such as "test"
    classes: list[str]  # names, in the order of the rows and columns
    matrix: list[list[int]]

    def write(self, trial: Path) -> None:
        write_whole(trial / _FILE, json.dumps(asdict(self)), sync=False)


def read_confusion(trial: Path) -> Confusion | None:
    """Return the confusion matrix in the folder of a trial; None if there is none, or its file is
    damaged."""
    try:
        content = read_json(trial / _FILE)
        if content is None:
            return None
        classes = [str(name) for name in content["classes"]]
        matrix = [[int(count) for count in row] for row in content["matrix"]]
        is_whole = len(matrix) == len(classes) > 0 and all(
            len(row) == len(classes) for row in matrix
        )
        return Confusion(str(content["subset"]), classes, matrix) if is_whole else None
    except (CorruptFile, OSError, KeyError, TypeError, ValueError, OverflowError):
        return None
