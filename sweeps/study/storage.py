"""Where Optuna keeps a study, a journal in the study's folder or what the user names, and reading it from there."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import BaseTrial, TrialState

from sweeps.errors import UserError
from sweeps.files import Unreadable, append_lines, last_lines, read_json, set_aside, write_whole
from sweeps.results.summary import ENOUGH, Row, Summary, look
from sweeps.secrets import without_password
from sweeps.study.definition import DONE, Definition, resume_line, sweeps_line
from sweeps.trial.job import End, Point, State

optuna.logging.set_verbosity(optuna.logging.ERROR)  # what it warns of, a person at the terminal cannot change

_JOURNAL = "study.journal"
REPEAT = "repeat"
"""The attribute of a trial that runs under a seed of its own, as `Row.repeat`."""
TOTAL = "total"
"""The attribute of a study that has another number of trials than it began with."""
AXES = "axes"
"""The attribute of a study whose search learns: from failures, from the order of numbers, and what was tried."""
BY_HAND, ADDED, OUTSIDE = "by_hand", "added", "outside"
"""The attributes of a trial that a person added: its point, the name it was added under, and, if its point is none of
the search space, that it is told to no sampler."""
Axes = Mapping[str, Sequence[float]]


class _Journal(BaseJournalBackend):
    """One writer, the study's driver. Each line carries its number, so that one lost, cut or repeated is noticed.

    Raises Unreadable: the file is damaged from byte `whole` on. Half a last line only waits, or the next one drops it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self.whole = 0

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        if log_number_from < self._count:
            self._count = self.whole = 0
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self.whole)
            data = file.read()
        for line in data.split(b"\n")[:-1]:
            try:
                log = json.loads(line)
                numbered = log.get("line", self._count) == self._count and "op_code" in log
            except (ValueError, AttributeError, RecursionError):
                numbered = False
            if not numbered:
                raise Unreadable(self._path, f"line {self._count + 1} is damaged")
            self._count += 1
            self.whole += len(line) + 1
            if self._count > log_number_from:
                yield log

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        if self._path.exists() and self._path.stat().st_size > self.whole:
            os.truncate(self._path, self.whole)  # half a line, of a driver that was killed
        append_lines(self._path, [{**log, "line": self._count + i} for i, log in enumerate(logs)], sync=True)


def open_study(name: str, folder: Path, url: str | None, **settings: Any) -> tuple[optuna.Study, str]:
    """The Optuna study, made if there is none, for its driver; and what had to be mended in its journal, in words."""
    create = partial(optuna.create_study, study_name=name, load_if_exists=True, **settings)
    if url is not None:
        try:
            return create(storage=resolved(url)), ""
        except Exception as error:  # whatever a database says
            said = without_password(str(error).splitlines()[0])
            raise UserError(f"hydra.sweeper.storage cannot be used: {said}") from error
    journal = folder / _JOURNAL
    backend = _Journal(journal)
    try:
        return create(storage=JournalStorage(backend)), ""
    except (Unreadable, KeyError, ValueError, IndexError, AssertionError) as error:
        kept = set_aside(journal)
        write_whole(journal, kept.read_bytes()[: backend.whole] if isinstance(error, Unreadable) else b"")
        damage = error if isinstance(error, Unreadable) else f"{journal} is no journal of Optuna's ({error!r})"
        mended = f"{damage}. What came after it is read from the trials' folders ({kept.name} is kept)"
        return create(storage=JournalStorage(_Journal(journal))), mended


def missing_trials(study: optuna.Study, folder: Path) -> list[tuple[Point | None, Mapping[str, Any]]]:
    """The points, None if not known, of the trials that have folders but no place in the journal, which was damaged;
    and what they repeat.
    """
    known = len(study.get_trials(deepcopy=False))
    points: dict[int, tuple[Point | None, Mapping[str, Any]]] = {}
    for where, folders, files in os.walk(folder):
        if "study.json" in files and Path(where) != folder:  # another study
            folders.clear()
        elif "trial.json" in files:
            folders.clear()
            try:
                note = read_json(Path(where) / "trial.json") or {}
                points[int(note["number"])] = dict(note["point"]), _repeat(note.get("repeat"))
            except (Unreadable, KeyError, TypeError, ValueError, AttributeError):
                if Path(where).name.isdecimal():
                    points[int(Path(where).name)] = None, {}  # its folder is left alone, and its point is tried anew
    likely = [number for number in points if number < known + len(points) + 1000]  # others are noise
    return [
        points.get(number, (None, {})) for number in range(known, max(likely, default=-1) + 1)
    ]  # as they are numbered next


def _repeat(found: Any) -> Mapping[str, Any]:
    """What a trial repeats, as its trial.json has it."""
    if not found:
        return {}
    of = None if found.get("of") is None else int(found["of"])
    return {"of": of, "race": bool(found.get("race")), "seed": dict(found["seed"])}


def read_summary(folder: Path, definition: Definition) -> Summary:
    """A study that exists, as far as its driver has recorded it. Raises UserError if its journal is damaged."""
    url = definition.storage and resolved(definition.storage)
    try:
        storage = url or JournalStorage(_Journal(folder / _JOURNAL))
        study = optuna.load_study(study_name=definition.name, storage=storage)
        trials, axes = study.get_trials(deepcopy=False), axes_of(study)
        rows = [row_of(trial, folder, axes) for trial in trials if trial.state is not TrialState.WAITING]
    except Exception as error:  # whatever Optuna, or a database, says of a damaged record
        said = error if url or isinstance(error, Unreadable) else Unreadable(folder / _JOURNAL, repr(error))
        raise UserError(
            f"study {definition.name}: {str(said).splitlines()[0]}\nTo mend it, go on with: {resume_line(definition)}"
        ) from error
    for row in rows:  # what began or ended since the last driver looked
        if row.state is State.QUEUED:
            with suppress(OSError):  # its files cannot be read now: it stands as its driver recorded it
                look(row)
    objective, directions = tuple(definition.objective), tuple(definition.directions)
    total = study.user_attrs.get(TOTAL, definition.total)
    summary = Summary(folder.name, folder, objective, directions, rows, total, fixed=definition.config)
    summary.seed_key, summary.space = definition.seed_key, definition.parameters
    summary.searched, summary.again = is_search(definition), sweeps_line("best", folder)
    summary.done = "".join(last_lines(folder / DONE, 1))
    return summary


def is_search(definition: Definition) -> bool:
    """Whether a sampler chooses its trials; of a definition that does not tell, no."""
    return "GridSampler" not in definition.search.get("sampler", "GridSampler")


def read_importance(folder: Path, definition: Definition) -> dict[str, float]:
    """As `importance`, of a study that exists; nothing of a grid, or of a single parameter."""
    if not is_search(definition) or len(definition.parameters) < 2:
        return {}
    url = definition.storage and resolved(definition.storage)
    kept = url or JournalStorage(_Journal(folder / _JOURNAL))
    return importance(optuna.load_study(study_name=definition.name, storage=kept))


def importance(study: optuna.Study) -> dict[str, float]:
    """The share of each parameter in the first objective's variance (fANOVA, Hutter et al., ICML 2014), once there are
    enough trials to tell.
    """
    ends = map(ended, study.get_trials(deepcopy=False))
    completed = sum(end is not None and end.state is State.COMPLETED for end in ends)
    if completed < ENOUGH:
        return {}  # without importing scikit-learn, which takes a second
    trees = max(8, min(64, 12_800 // completed))  # fewer of many trials: 64 took half a minute of 1,000
    try:
        fanova = optuna.importance.FanovaImportanceEvaluator(n_trees=trees, seed=0)
        return optuna.importance.get_param_importances(study, evaluator=fanova, target=_result)
    except (ValueError, RuntimeError):  # all of them are equal: nothing to tell apart
        return {}


def _result(trial: optuna.trial.FrozenTrial) -> float:
    """Its first objective; nan if it has none, whatever its sampler was told."""
    end = ended(trial)
    return float(trial.values[0]) if end and end.state is State.COMPLETED else math.nan


def axes_of(study: optuna.Study) -> Axes | None:
    """The parameters of which Optuna has the place of a value among these; None if the study was begun without."""
    found: Axes | None = study.user_attrs.get(AXES)
    return found


def row_of(trial: BaseTrial, study: Path, axes: Axes | None) -> Row:
    """A trial as Optuna has it; `study` is the folder."""
    params = {
        name.partition(" under ")[0]: value for name, value in params_of(trial, axes).items()
    }  # as users know them
    attrs = trial.user_attrs
    repeat = attrs.get(REPEAT, {})
    where = study / str(attrs.get("folder", trial.number))
    row = Row(trial.number, {**params, **repeat.get("seed", {})}, State.QUEUED, where, repeat=repeat)
    row.forgiven = attrs.get("forgiven", 0)
    if BY_HAND in attrs:
        row.by_hand, row.params = row.of is None, {**attrs[BY_HAND], **repeat.get("seed", {})}
    for attempt in attrs.get("end", {"attempts": []})["attempts"]:
        row.take(End.from_json(attempt))
    return row


def params_of(trial: BaseTrial, axes: Axes | None) -> Point:
    """The values of a trial, by the names that Optuna has them under."""
    return {name: axes[name][value] if axes and name in axes else value for name, value in trial.params.items()}


def ended(trial: BaseTrial) -> End | None:
    """How a trial ended, by our own record: its sampler may have been told otherwise. None if it has not."""
    attempts = trial.user_attrs.get("end", {"attempts": []})["attempts"]
    return End.from_json(attempts[-1]) if attempts else None


def rewrite(name: str, folder: Path, reopened: Sequence[int] = (), known: Mapping[str, BaseDistribution] = {}) -> None:
    """Write the journal anew, aside: the trials `reopened` run again, and those of a grid get the `known` choices.

    With a repeat its configuration is open again, which is told by the trial that it repeats.
    """
    journal, aside = folder / _JOURNAL, folder / f".{_JOURNAL}.new"
    aside.unlink(missing_ok=True)
    old = optuna.load_study(study_name=name, storage=JournalStorage(_Journal(journal)))
    trials = old.get_trials()
    repeats = [trial.user_attrs.get(REPEAT, {}) for trial in trials if trial.number in reopened]
    repeated = {one.get("of") for one in repeats if not one.get("race")}
    for trial in trials:
        trial.distributions |= {key: known[key] for key in trial.params if key in known}  # for Optuna the same in all
        if trial.number in reopened:
            row = look(row_of(trial, folder, None))
            trial.user_attrs.pop("end", None)  # not there if its driver died before it could write it
            trial.user_attrs["forgiven"] = len(row.attempts)
        if trial.number in {*reopened, *repeated}:
            trial.state, trial.values, trial.datetime_complete = TrialState.RUNNING, None, None
            for key in [key for key in trial.system_attrs if key.startswith("constraints")]:
                del trial.system_attrs[key]
    new = optuna.create_study(study_name=name, storage=JournalStorage(_Journal(aside)), directions=old.directions)
    for key, value in old.user_attrs.items():
        new.set_user_attr(key, value)
    new.add_trials(trials)
    aside.replace(journal)


def forget(definition: Definition) -> None:
    """Delete the study from a storage of the user's."""
    if definition.storage is not None:
        try:
            optuna.delete_study(study_name=definition.name, storage=resolved(definition.storage))
        except KeyError:  # it is not there
            return
        except Exception as error:  # whatever a database says
            said = without_password(str(error).splitlines()[0])
            raise UserError(f"study {definition.name} cannot be deleted from its storage: {said}") from error


def resolved(url: str) -> str:
    """An URL as it was typed, with what it takes from the environment: `${oc.env:NAME}`."""
    try:
        return str(OmegaConf.create({"url": url}).url)
    except OmegaConfBaseException as error:
        raise UserError(f"{url} cannot be resolved: {str(error).splitlines()[0]}") from error
