"""Swept choices that bring what a study has once: a launcher, a sweeper, or settings of the
sweeper."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf

from sweeps.base.errors import UserError
from sweeps.hydra.parts import load_driver, typed_words, watch_overrides

_ONCE = ("launcher", "sweeper")


class Brought:
    """What the composed trials would change of the study's launcher and sweeper, with the choices
    that bring it."""

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        self._loader = loader
        self._master = master
        self._typed = set(typed_words(master.hydra, "task"))
        self._by_default: set[str] | None = None  # overrides of defaults lists that each trial has
        # the choices of each composition, and what they bring
        self._seen: list[tuple[set[str], set[str]]] = []

    def look(self, hydra: DictConfig, choices: Sequence[str], overrides: Sequence[str]) -> None:
        """Note what a trial's choices bring. Raises UserError if its launcher or its sweeper is
        another one."""
        own = set(choices) - self._typed
        brought = self._overridden(overrides) | self._settings(hydra)
        self._seen.append((own, brought))
        for section in _ONCE:
            self._refuse_other(section, hydra, sorted(brought))

    def notes(self) -> Iterator[str]:
        """Yield what has no effect, and which choices bring it."""
        for name in dict.fromkeys(chain(*(brought for _, brought in self._seen))):
            section = "launcher" if name.startswith("hydra/launcher") else "sweeper"
            own = self._own(section)
            yield (
                f"{self._words(name)} sets {name}, without effect: all trials have the {section}"
                f" {own}"
            )

    def _overridden(self, overrides: Sequence[str]) -> set[str]:
        """Return the choices of a launcher or a sweeper by `override` lines that are not the
        study's own."""
        brought = set()
        for word in overrides:
            group, _, choice = word.partition("=")
            is_once = group in ("hydra/launcher", "hydra/sweeper")
            if is_once and choice != str(self._master.hydra.runtime.choices.get(group)):
                brought.add(word)
        if brought and self._by_default is None:
            with watch_overrides() as lines:
                load_driver(self._loader, self._master)
            self._by_default = {*lines}
        return brought - (self._by_default or set())

    def _settings(self, hydra: DictConfig) -> set[str]:
        """Return the names of the sweeper's settings that differ from the study's."""
        theirs: Any = OmegaConf.to_container(hydra.sweeper, resolve=False)
        ours: Any = OmegaConf.to_container(self._master.hydra.sweeper, resolve=False)
        if theirs.get("_target_") != ours.get("_target_"):
            return set()
        return {
            f"hydra.sweeper.{name}" for name, value in theirs.items() if value != ours.get(name)
        }

    def _refuse_other(self, section: str, hydra: DictConfig, brought: Sequence[str]) -> None:
        theirs = str(hydra[section]._get_node("_target_"))
        if theirs == str(self._master.hydra[section]._get_node("_target_")):
            return
        own = self._own(section)
        other = f"hydra.{section}._target_={theirs}"
        advice = "Remove it there"
        for word in brought:
            if word.startswith(f"hydra/{section}="):
                other = word
                advice = f"Type {own}, or {other}, for all trials"
                break
        raise UserError(
            f"{self._words(other)}: it sets {other}, but a study has one {section},"
            f" {own}.\n{advice}"
        )

    def _own(self, section: str) -> str:
        """Return the choice of the study's launcher or sweeper, as one types it."""
        group = f"hydra/{section}"
        return f"{group}={self._master.hydra.runtime.choices.get(group)}"

    def _words(self, name: str) -> str:
        """Return the choices that bring something: those that no trial without it has."""
        words: set[str] = set()
        without: set[str] = set()
        for choices, brought in self._seen:
            if name in brought:
                words |= choices
            else:
                without |= choices
        return " ".join(sorted(words - without or words)) or "a swept choice"
