"""What persons request from a study: each file is recorded, refused with its reason, or read again
later."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.base.errors import UserError
from sweeps.choose import manual
from sweeps.choose.repeats import Seeds
from sweeps.record import study_file
from sweeps.record.extension import user_name
from sweeps.record.narrowed import narrow
from sweeps.record.study import Added, StudySnapshot
from sweeps.record.writer import Record
from sweeps.space.exclusion import Excluded, Restored
from sweeps.space.space import SearchSpace
from sweeps.study.folder.reading import read_study
from sweeps.study.plan.points import Points
from sweeps.study.plan.typed_space import refuse_narrowing

_RETRIES = "SWEEPYARD_RETRIES"


def request_retries(
    folder: Path, numbers: Sequence[int], longer: Sequence[str] = (), anew: Sequence[str] = ()
) -> None:
    """Let the driver that this process turns into run these trials again, with the overrides
    `longer`. A driver that is refused records nothing.

    `anew` are the commands that train each of these trials from the beginning with `longer`.
    """
    request = {
        "study": str(folder),
        "trials": list(numbers),
        "longer": list(longer),
        "anew": list(anew),
    }
    os.environ[_RETRIES] = json.dumps(request)


def _recorded(study: StudySnapshot) -> set[str]:
    """Return the names of the requests that the journal has."""
    names = {added.name for added in study.added}
    names |= {excluded.name for excluded in study.excluded}
    for restored in study.restored:
        names |= {restored.name, *(excluded.name for excluded in restored.excluded)}
    return names


@dataclass
class Requests:
    """The requests in the folder of one study. A file that cannot be taken stops neither the study
    nor other files."""

    folder: Path
    space: SearchSpace
    seeds: Seeds
    points: Points
    _named: set[str] = field(default_factory=set)  # problems that were named
    _lines: list[str] = field(default_factory=list)  # problems that are to be printed
    # names of the files that are answered, but cannot be deleted
    _left: set[str] = field(default_factory=set)
    # numbers of the trials that `resume --retry` named
    _retries: list[int] = field(default_factory=list)
    # overrides with which they run longer
    _longer: list[str] = field(default_factory=list)
    # commands that train them so long from the beginning
    _anew: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # because trials must not inherit the variable
        retries = json.loads(os.environ.pop(_RETRIES, "{}"))
        if retries and Path(retries["study"]).resolve() == self.folder.resolve():
            self._retries = retries["trials"]
            self._longer = retries["longer"]
            self._anew = retries["anew"]

    def retry(self, record: Record) -> str:
        """Record that the trials run again that `resume --retry` or `continue` named. Return a line
        for the user; empty without any."""
        ended = {trial.number for trial in record.trials if trial.state.is_settled}
        numbers = [number for number in self._retries if number in ended]
        self._retries = []
        if not numbers:
            return ""
        record.reopen(numbers, to_end=bool(self._longer), longer=self._longer)
        listed = ", ".join(map(str, numbers))
        if self._longer:
            return f"trials {listed} train on with {' '.join(self._longer)}"
        return f"retries trials {listed}"

    def check(self) -> None:
        """Check the trials that are to train longer, and the points that this user added while no
        driver ran. Raises UserError, and deletes a wrong request.

        What others requested is left to `take`, because this user cannot correct it.
        """
        self._check_longer()
        for file in self._list():
            if manual.requester(file) != user_name():
                continue
            try:
                request = manual.read_request(file, self.space, self.seeds)
                if isinstance(request, Added):
                    self.points.check(request.params)
            except UserError:
                file.unlink(missing_ok=True)
                raise
            except OSError:
                continue
        for line in self._take_lines():
            print(line)

    def _check_longer(self) -> None:
        """Raise UserError if a trial that `continue` named cannot train longer."""
        if not self._longer:
            return
        study = read_study(self.folder, study_file.read(self.folder))
        for number, anew in zip(self._retries, self._anew, strict=True):
            self.points.check_longer(study.trial(number), self._longer, anew)

    def take(self, record: Record) -> list[str]:
        """Record the valid requests, and return lines for the user. Each file is kept until its
        request is recorded."""
        for file in self._list():
            if file.name not in self._left:
                self._take(file, record)
        return self._take_lines()

    def _take_lines(self) -> list[str]:
        lines = self._lines
        self._lines = []
        return lines

    def _list(self) -> list[Path]:
        try:
            return manual.list_requests(self.folder)
        except OSError as error:
            self._name(f"requests cannot be read, and are taken once they can: {error}")
            return []

    def _take(self, file: Path, record: Record) -> None:
        """Record or refuse one request."""
        try:
            is_recorded = file.name in _recorded(record.study)
            request = None if is_recorded else self._read(file, record)
        except OSError as error:
            self._name(f"a request cannot be read, and is taken once it can: {error}")
            return
        except UserError as error:
            self._refuse(file, error)
            return

        if isinstance(request, Added):
            record.add(request)
        elif isinstance(request, Excluded):
            record.exclude(request, self.space)
        elif request:
            record.restore(request, self.space)
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            self._left.add(file.name)
            self._name(f"a request was taken, but its file cannot be deleted: {error}")

    def _read(self, file: Path, record: Record) -> Added | Excluded | Restored:
        """Return a request that the study can do. Raises UserError, and OSError if it cannot be
        read now."""
        space = narrow(self.space, record.study.excluded)
        request = manual.read_request(file, space, self.seeds)
        if isinstance(request, Added):
            manual.refuse_duplicate(request.params, record.trials, record.study.added)
            self.points.check(request.params)
        elif isinstance(request, Excluded):
            refuse_narrowing(request.text, space, record.study)
        else:
            manual.refuse_restoring(request.text, record.study)
        return request

    def _refuse(self, file: Path, error: UserError) -> None:
        """Replace a request by the reason of its refusal, and name it."""
        try:
            manual.refuse_file(file, error)
        except OSError:
            self._left.add(file.name)
        self._name(f"refused: {error}")

    def _name(self, problem: str) -> None:
        """Name a problem to the user, once."""
        if problem not in self._named:
            self._named.add(problem)
            self._lines.append(problem)
