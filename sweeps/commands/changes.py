"""Words after `resume NAME`: the settings that a resumed study takes, and what to type for all
others."""

import shlex
from collections.abc import Sequence
from itertools import count

from sweeps.base.errors import UserError
from sweeps.hydra.near import closest
from sweeps.hydra.settings import FOREIGN_NAMES, SweeperConf
from sweeps.hydra.sweeper_settings import CHOSEN
from sweeps.record.definition import NAME, Definition
from sweeps.record.place import is_usual, resume_line
from sweeps.record.study import StudySnapshot
from sweeps.record.study_file import sweeps_line
from sweeps.record.trial_config import read_groups, read_launcher
from sweeps.space.space import quoted, text_of

RETRIED = ("failed", "diverged", "out_of_memory", "timed_out", "lost", "infeasible")
_LAUNCHER = ("hydra.launcher.", "hydra/launcher")
_SWEEPER = "hydra.sweeper."
_EXTEND = "hydra.sweeper.extend=true"
_OF_STUDY = (
    *("objective", "direction", "n_trials", "repeats", "final_race", "final_race_seeds"),
    *("custom_search_space", "learn_from", "points", "exclude"),
)
"""Settings of the sweeper of which another value makes another study."""


def change_line(definition: Definition, study: StudySnapshot, changes: Sequence[str]) -> str:
    """Return the command that resumes a study, each changed setting in place of its former value.

    Raises UserError for a word that would make another study, or is no setting.
    """
    words = shlex.split(resume_line(definition, study.folder))
    free = definition.free_keys()
    for change in changes:
        key, equals, _ = change.lstrip("+").partition("=")
        if not equals or not (key.startswith(_LAUNCHER) or key in free):
            raise UserError(f"{change}: {_Change(change, definition, study).explain()}")
        words = _with(words, change)
    return shlex.join(words)


def _with(words: Sequence[str], change: str) -> list[str]:
    """Return the words of a command with an override in place of those of the same key."""
    key = _key(change)
    return [*(word for word in words if _key(word) != key), change]


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+")


class _Change:
    """A word that a study cannot resume with."""

    def __init__(self, word: str, definition: Definition, study: StudySnapshot) -> None:
        self._word = word
        self._definition = definition
        self._study = study
        self._key = _key(word)
        self._value = word.partition("=")[2]
        self._resume = sweeps_line("resume", study.folder)

    def explain(self) -> str:
        """Return why the study cannot resume with the word, and what to type."""
        if "=" not in self._word:
            return f"not a setting, as in key=value.\n{self._advise_retry()}"
        return self._explain_swept() or self._explain_setting() or self._explain_near()

    def _explain_swept(self) -> str:
        """Return how the study takes more values or trials; empty for another key."""
        if self._key in self._swept():
            return f"study {self._study.name} sweeps {self._key}.\n{self._advise_values()}"
        if self._key.removeprefix(_SWEEPER) == "n_trials" and self._study.searched:
            line = self._line(f"{_SWEEPER}n_trials={self._value}", _EXTEND)
            return f"more trials extend the study.\nType: {line}"
        return ""

    def _explain_setting(self) -> str:
        """Return what to type for a setting of the app, of the launcher or of the sweeper; empty
        for another key."""
        if self._key in self._settings_of_app():
            return self._explain_other(self._word)
        if self._launcher_setting():
            return f"not in the app's configuration.\nType: {self._launcher_line()}"
        sweeper = self._key.removeprefix(_SWEEPER)
        return self._explain_sweeper(sweeper) or self._explain_hydra()

    def _explain_sweeper(self, setting: str) -> str:
        """Return what to type for a setting of the sweeper; empty for another key."""
        if setting == "study_name":
            return self._explain_other(f"{NAME}={self._value}", renamed=True)
        if setting in CHOSEN:
            return self._explain_other(f"hydra/sweeper/{setting}={self._value}")
        if setting in _OF_STUDY:
            return self._explain_other(f"{_SWEEPER}{setting}={self._value}")
        if setting in vars(SweeperConf()):
            line = self._line(f"{_SWEEPER}{setting}={self._value}")
            return f"resume takes settings of the launcher alone.\nType: {line}"
        return ""

    def _explain_hydra(self) -> str:
        """Return that the study keeps a setting of Hydra; empty for another key."""
        if self._key.startswith("hydra/sweeper"):
            return self._explain_other(self._word)
        if self._key.startswith(("hydra.", "hydra/")):
            return f"a study keeps its settings of Hydra.\n{self._usual_advice()}"
        return ""

    def _explain_near(self) -> str:
        """Return what to type for the key that was likely meant."""
        problem = "there is no such setting"
        plain = [name for name in (*self._swept(), *self._settings_of_app()) if "." not in name]
        near = "" if "." in self._key else closest(self._key, plain)
        if not near:
            return f"{problem}.\n{self._usual_advice()}"
        meant = _Change(f"{near}={self._value}", self._definition, self._study)
        return f"{problem}. Of {near}: {meant.explain()}"

    def _swept(self) -> list[str]:
        return [key.partition(" under ")[0].lstrip("+") for key in self._definition.parameters]

    def _settings_of_app(self) -> list[str]:
        trials = self._study.rows
        groups = read_groups(trials[0].folder) if trials else {}
        return [*self._definition.config, *groups]

    def _usual_advice(self) -> str:
        return "Type a setting of the launcher, as in hydra.launcher.mem_gb=16, or remove it"

    def _advise_retry(self) -> str:
        """Return how to retry trials, of which only numbers or a state was typed."""
        if self._word.replace(",", "").isdecimal():
            return f"To retry such trials, type: {self._resume} --trials {self._word}"
        if self._word in RETRIED:
            return f"To retry such trials, type: {self._resume} --retry {self._word}"
        return self._usual_advice()

    def _launcher_setting(self) -> str:
        """Return the setting of the study's launcher that has the typed name; empty if none has."""
        trials = self._study.rows
        settings = read_launcher(trials[0].folder) if trials else {}
        name = self._key.removeprefix("launcher.")
        name = name if name in settings else FOREIGN_NAMES.get(name, "")
        return name if name in settings else ""

    def _launcher_line(self) -> str:
        """Return the line that resumes the study with the setting of the launcher."""
        setting = f"hydra.launcher.{self._launcher_setting()}={self._value}"
        return f"{self._resume} {shlex.quote(setting)}"

    def _explain_other(self, change: str, renamed: bool = False) -> str:
        """Return that the study has another value, and the command of a study with this value."""
        problem = "another value makes another study"
        if not is_usual(self._definition):
            return f"{problem}.\nType the study's command with it, and another hydra.sweep.dir"
        if renamed:
            return f"{problem}.\nType: {self._line(change)}"
        names = (f"{self._study.name}_{number}" for number in count(2))
        free = next(name for name in names if not self._study.folder.with_name(name).exists())
        return f"{problem}.\nType: {self._line(change, f'{NAME}={quoted(free)}')}"

    def _advise_values(self) -> str:
        """Return how to add a trial with the value, or several values to the search space."""
        words = [word for word in self._definition.command if _key(word) == self._key]
        is_list = "," in self._value and not set("()[]{}") & {*self._value}
        if is_list and words and "(" not in words[0]:
            return f"To add values, type: {self._line(f'{words[0]},{self._value}', _EXTEND)}"
        ranked = [*self._study.top(), *self._study.rows]
        points = [trial.configuration for trial in ranked if self._has_key(trial.configuration)]
        point = {key.lstrip("+"): text_of(value) for key, value in (points or [{}])[0].items()}
        typed = " ".join(
            f"{key}={value}" for key, value in {**point, self._key: self._value}.items()
        )
        return f"To add a trial, type: {self._resume} --add {shlex.quote(typed)}"

    def _has_key(self, point: object) -> bool:
        return isinstance(point, dict) and self._key in {key.lstrip("+") for key in point}

    def _line(self, *changes: str) -> str:
        words = shlex.split(resume_line(self._definition, self._study.folder))
        for change in changes:
            words = _with(words, change)
        return shlex.join(words)
