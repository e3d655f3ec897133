"""A trial once more: the command line that trains it again, and its configuration as a file of Hydra's."""

import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from sweeps.errors import UserError
from sweeps.files import write_whole
from sweeps.record import configurations
from sweeps.record.definition import Definition
from sweeps.record.space import text_of
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.settings import SINGLE_RUN_SETTINGS

EXPERIMENT = "experiment/best.yaml"
"""In the study's folder, which `--config-dir` makes a place where Hydra looks: `+experiment=best`."""


def chosen(summary: StudySnapshot, number: int | None) -> TrialRecord:
    """The trial of this number, by default the best, or where configurations have several seeds the first one of the
    best. Raises UserError if it has no result.
    """
    mean = configurations.best(summary) if number is None else None
    best = next(row for row in [*mean.rows, *mean.raced] if row.result) if mean else summary.best()
    row = best if number is None else next((row for row in summary.rows if row.number == number), None)
    if row is None or not row.objective:
        which = "completed trial with a result" if number is None else f"result of trial {number}"
        top = ", ".join(str(one.number) for one in summary.top(5)) or "none yet"
        raise UserError(f"study {summary.name} has no {which}. Trials with one, best first: {top}")
    return row


def command(definition: Definition, row: TrialRecord) -> list[str]:
    """The command line, as words, that trains this trial again: here, or where its launcher had to start it."""
    return again(definition, overrides_of(definition, row), needs_launcher(row))


def again(definition: Definition, overrides: Sequence[str], multirun: bool, flags: Sequence[str] = ()) -> list[str]:
    """A command line with these overrides, for one run or, as a study of one trial, for a launcher."""
    program, hydra, asks = _parts(
        definition, (*SINGLE_RUN_SETTINGS, "max_attempts") if multirun else SINGLE_RUN_SETTINGS
    )
    if multirun:
        mode = ["-m", "hydra/sweeper=grid"]
    elif any(word.startswith("hydra/sweeper=") for word in definition.command) and any(map(_is_sweeper, hydra)):
        mode = ["hydra/sweeper=grid", "hydra.mode=RUN"]  # for the app's own sweeper may not know these settings
    else:
        mode = [] if asks else ["hydra.mode=RUN"]
    return [*program, *flags, *mode, *hydra, *overrides]


def overrides_of(definition: Definition, row: TrialRecord) -> list[str]:
    """Every override of the trial: the fixed ones, which all share, and its own values."""
    with suppress(OSError, yaml.YAMLError, UnicodeDecodeError, TypeError):
        words = yaml.safe_load((row.folder / ".hydra" / "overrides.yaml").read_text())
        if words and isinstance(words, list) and all(isinstance(word, str) for word in words):
            return words
    own = {key: text_of(value) for key, value in row.params.items()}  # its file is damaged, or it has none
    swept = {key(name.partition(" under ")[0]) for name in definition.parameters}
    fixed = [word for word in definition.command if _is_override(word) and not _is_hydra(word)]
    return [*(word for word in fixed if key(word) not in swept), *(f"{name}={text}" for name, text in own.items())]


def key(word: str) -> str:
    """What an override is about: `lr` of `++lr=0.1`."""
    return word.partition("=")[0].lstrip("+~")


def write_experiment(definition: Definition, row: TrialRecord, study: Path) -> list[str]:
    """Write the trial as a configuration, and return the command line, as words, that trains from it.

    Raises UserError if its folder does not tell which of its overrides are choices of config groups.
    """
    try:
        choices = _composed(row)["runtime"]["choices"]
        content = experiment(overrides_of(definition, row), choices)
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"trial {row.number} cannot be written as {EXPERIMENT}: {error!r}") from error
    (study / EXPERIMENT).parent.mkdir(exist_ok=True)
    write_whole(study / EXPERIMENT, f"# @package _global_\n# Trial {row.number} of study {study.name}\n{content}")
    return again(definition, ["+experiment=best"], needs_launcher(row), ["--config-dir", str(study)])


def experiment(overrides: Sequence[str], choices: dict[str, Any]) -> str:
    """Overrides as the YAML of a config for the package _global_. Raises ValueError: one has no such form."""
    added: list[Any] = []
    changed: list[Any] = []
    values = OmegaConf.create({})
    for one in OverridesParser.create().parse_overrides(list(overrides)):
        group = one.get_key_element().lstrip("+~")
        if group in choices:
            (added if one.is_add() else changed).append(
                {f"{'' if one.is_add() else 'override '}/{group}": None if one.is_delete() else one.value()}
            )
        elif one.is_delete():
            raise ValueError(f"{one.input_line} removes a key, which no file can")
        else:
            OmegaConf.update(values, one.key_or_group, one.value(), force_add=True)
    defaults = {"defaults": [*added, "_self_", *changed]}  # Hydra wants those that override last
    return OmegaConf.to_yaml(OmegaConf.merge(defaults, values))


def line(words: Sequence[str], working_folder: str) -> str:
    """Words as one would type them here."""
    there = [] if Path(working_folder) == Path.cwd() else [f"cd {shlex.quote(working_folder)} &&"]
    return " ".join([*there, shlex.join(words)])


def _parts(definition: Definition, kept: Collection[str]) -> tuple[list[str], list[str], bool]:
    """Of the command that started the study: the program with its flags, the overrides of Hydra's own settings that
    are not about what to try, of the sweeper's those that are `kept`, and whether it asked for a multirun by -m.
    """
    words, end = definition.command, 1
    while words[end].startswith("-") and words[end] != "-m":  # python's own flags
        end += 1
    end += 2 if words[end] == "-m" else 1
    multirun = ("-m", "--multirun")
    program = [*words[:end], *(word for word in words[end:] if not _is_override(word) and word not in multirun)]
    hydra = [word for word in words[end:] if _is_override(word) and _is_hydra(word) and _is_kept(word, kept)]
    return program, hydra, any(word in multirun for word in words[end:])


def _is_override(word: str) -> bool:
    return not word.startswith("-") and ("=" in word or word.startswith("~"))


def _is_hydra(word: str) -> bool:
    return key(word).startswith(("hydra.", "hydra/"))


def _is_sweeper(word: str) -> bool:
    return key(word).startswith("hydra.sweeper.")


def _is_kept(word: str, kept: Collection[str]) -> bool:
    if _is_sweeper(word):
        return key(word).removeprefix("hydra.sweeper.") in kept
    return not key(word).startswith(("hydra/sweeper", "hydra.sweep.", "hydra.mode"))


def _composed(row: TrialRecord) -> Any:
    """Hydra's own settings, as the trial was composed with them."""
    return yaml.safe_load((row.folder / ".hydra" / "hydra.yaml").read_text())["hydra"]


def needs_launcher(row: TrialRecord) -> bool:
    """Whether the trial ran elsewhere, or in several processes: a run without a launcher has one, here."""
    with suppress(OSError, KeyError, TypeError, ValueError, yaml.YAMLError):
        launcher = _composed(row)["launcher"]
        several = int(launcher.get("nodes") or 1) * int(launcher.get("tasks_per_node") or 1) > 1
        return several or not str(launcher["_target_"]).endswith("LocalLauncher")
    return False
