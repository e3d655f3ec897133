"""Words after `resume NAME`: the settings that a resumed study takes, and what to type for all
others."""

import shlex
from collections.abc import Sequence
from itertools import count

from sweeps.base.errors import UserError
from sweeps.base.wording import point_text
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
_OTHER = "another value makes another study"
_USUAL = "Type a setting of the launcher, as in hydra.launcher.mem_gb=16, or remove it"


def change_line(definition: Definition, study: StudySnapshot, changes: Sequence[str]) -> str:
    """Return the command that resumes a study, each changed setting in place of its former value.

    Raises UserError for a word that would make another study, or is no setting.
    """
    free = definition.free_keys()
    for change in changes:
        key, equals, _ = change.lstrip("+").partition("=")
        if not equals or not (key.startswith(_LAUNCHER) or key in free):
            raise UserError(f"{change}: {_Refused(definition, study).explain(change)}")
    return _line(definition, study, *changes)


def _line(definition: Definition, study: StudySnapshot, *changes: str) -> str:
    """Return the command that resumes a study, with overrides in place of those of the same key."""
    words = shlex.split(resume_line(definition, study.folder))
    for change in changes:
        words = [*(word for word in words if _key(word) != _key(change)), change]
    return shlex.join(words)


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+")


class _Refused:
    """The words that a study cannot resume with."""

    def __init__(self, definition: Definition, study: StudySnapshot) -> None:
        self._definition = definition
        self._study = study
        self._resume = sweeps_line("resume", study.folder)
        self._swept = [key.partition(" under ")[0].lstrip("+") for key in definition.parameters]
        folders = [trial.folder for trial in study.rows[:1]]
        groups = [group for folder in folders for group in read_groups(folder)]
        self._of_app = [*definition.config, *groups]
        self._of_launcher = [name for folder in folders for name in read_launcher(folder)]

    def explain(self, word: str) -> str:
        """Return why the study cannot resume with a word, and what to type."""
        key = _key(word)
        value = word.partition("=")[2]
        if "=" not in word:
            return f"not a setting, as in key=value.\n{self._advise_retry(word)}"
        if key in self._swept:
            return f"study {self._study.name} sweeps {key}.\n{self._advise_values(key, value)}"
        if key.removeprefix(_SWEEPER) == "n_trials" and self._study.searched:
            line = self._with(f"{_SWEEPER}n_trials={value}", _EXTEND)
            return f"more trials extend the study.\nType: {line}"
        if key in self._of_app or key.startswith("hydra/sweeper"):
            return self._explain_other(word)
        name = key.removeprefix("launcher.")
        for setting in (name, FOREIGN_NAMES.get(name)):
            if setting in self._of_launcher:
                typed = shlex.quote(f"hydra.launcher.{setting}={value}")
                return f"not in the app's configuration.\nType: {self._resume} {typed}"
        return self._explain_sweeper(key.removeprefix(_SWEEPER), value) or self._explain_near(
            key, value
        )

    def _explain_sweeper(self, setting: str, value: str) -> str:
        """Return what to type for a setting of the sweeper; empty for another key."""
        if setting == "study_name" and is_usual(self._definition):
            return f"{_OTHER}.\nType: {self._with(f'{NAME}={value}')}"
        if setting in CHOSEN:
            return self._explain_other(f"hydra/sweeper/{setting}={value}")
        if setting in (*_OF_STUDY, "study_name"):
            return self._explain_other(f"{_SWEEPER}{setting}={value}")
        if setting in vars(SweeperConf()):
            line = self._with(f"{_SWEEPER}{setting}={value}")
            return f"resume takes settings of the launcher alone.\nType: {line}"
        return ""

    def _explain_near(self, key: str, value: str) -> str:
        """Return that the study keeps a setting of Hydra, or what to type for the key that was
        likely meant."""
        if key.startswith(("hydra.", "hydra/")):
            return f"a study keeps its settings of Hydra.\n{_USUAL}"
        plain = [name for name in (*self._swept, *self._of_app) if "." not in name]
        near = "" if "." in key else closest(key, plain)
        if not near:
            return f"there is no such setting.\n{_USUAL}"
        return f"there is no such setting. Of {near}: {self.explain(f'{near}={value}')}"

    def _advise_retry(self, word: str) -> str:
        """Return how to retry trials, of which only numbers or a state was typed."""
        if word.replace(",", "").isdecimal():
            return f"To retry such trials, type: {self._resume} --trials {word}"
        if word in RETRIED:
            return f"To retry such trials, type: {self._resume} --retry {word}"
        return _USUAL

    def _explain_other(self, change: str) -> str:
        """Return that the study has another value, and the command of a study with this value."""
        if not is_usual(self._definition):
            return f"{_OTHER}.\nType the study's command with it, and another hydra.sweep.dir"
        names = (f"{self._study.name}_{number}" for number in count(2))
        free = next(name for name in names if not self._study.folder.with_name(name).exists())
        return f"{_OTHER}.\nType: {self._with(change, f'{NAME}={quoted(free)}')}"

    def _advise_values(self, key: str, value: str) -> str:
        """Return how to add a trial with the value, or several values to the search space."""
        words = [word for word in self._definition.command if _key(word) == key]
        is_list = "," in value and not set("()[]{}") & {*value}
        if is_list and words and "(" not in words[0]:
            return f"To add values, type: {self._with(f'{words[0]},{value}', _EXTEND)}"
        point: dict[str, str] = {}
        for trial in [*self._study.top(), *self._study.rows]:
            texts = {name.lstrip("+"): text_of(part) for name, part in trial.configuration.items()}
            if key in texts:
                point = texts
                break
        typed = point_text({**point, key: value})
        return f"To add a trial, type: {self._resume} --add {shlex.quote(typed)}"

    def _with(self, *changes: str) -> str:
        return _line(self._definition, self._study, *changes)
