"""How to train a trial again: by a command line, and by a configuration file of Hydra."""

import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from sweeps.analysis import configurations
from sweeps.analysis.no_result import no_result_error
from sweeps.base.errors import UserError
from sweeps.base.files import write_whole
from sweeps.base.wording import one_line, reason
from sweeps.hydra import plain
from sweeps.hydra.settings import SINGLE_RUN_SETTINGS
from sweeps.record.definition import Definition
from sweeps.record.study import StudySnapshot, TrialRecord
from sweeps.record.trial_config import read_overrides
from sweeps.space.space import text_of

EXPERIMENT = "experiment/best.yaml"
"""The path below the study's folder: with that folder as `--config-dir`, Hydra finds
`experiment=best`."""
_GROUP = "experiment"


def choose_trial(study: StudySnapshot, number: int | None) -> TrialRecord:
    """Return the trial of this number, by default the best trial, or the first seed of the best
    configuration.

    Raises UserError if the trial has no result.
    """
    missing = "completed trial with a result"
    trial = study.best()
    if number is not None:
        missing = f"result of trial {number}"
        trial = study.trial(number)
    elif mean := configurations.best(study):
        trial = next(row for row in [*mean.rows, *mean.raced] if row.result)
    if trial is None or not trial.objective:
        problem = f"study {study.name} has no {missing}"
        best_numbers = ", ".join(str(trial.number) for trial in study.top(5))
        if not best_numbers:
            raise no_result_error(study, problem)
        raise UserError(f"{problem}.\nChoose a trial with a result, best first: {best_numbers}")
    return trial


def command(definition: Definition, trial: TrialRecord) -> list[str]:
    """Return the words that train this trial again: in this process, or by the launcher that it
    needs."""
    return rebuild_command(definition, overrides_of(definition, trial), needs_launcher(trial))


def rebuild_command(
    definition: Definition, overrides: Sequence[str], multirun: bool, flags: Sequence[str] = ()
) -> list[str]:
    """Return the words of a command with these overrides: a single run, or with `multirun` a study
    of one trial."""
    settings = (*SINGLE_RUN_SETTINGS, "max_attempts") if multirun else SINGLE_RUN_SETTINGS
    program, hydra, had_flag = _split_command(definition, settings)
    chose_sweeper = any(word.startswith("hydra/sweeper=") for word in definition.command)
    if multirun:
        mode = ["-m", "hydra/sweeper=grid"]
    elif chose_sweeper and any(map(_is_sweeper, hydra)):
        # because the app's default sweeper may lack these settings
        mode = ["hydra/sweeper=grid", "hydra.mode=RUN"]
    else:
        mode = [] if had_flag else ["hydra.mode=RUN"]
    return [*program, *flags, *mode, *hydra, *overrides]


def overrides_of(definition: Definition, trial: TrialRecord) -> list[str]:
    """Return every override of the trial: the fixed ones, which all trials share, and its
    params."""
    if words := read_overrides(trial.folder):
        return words
    swept = {key(name.partition(" under ")[0]) for name in definition.parameters}
    fixed = [word for word in definition.command if _is_override(word) and not _is_hydra(word)]
    params = [f"{name}={text_of(value)}" for name, value in trial.params.items()]
    return [*(word for word in fixed if key(word) not in swept), *params]


def key(word: str) -> str:
    """Return the key of an override: `lr` of `++lr=0.1`."""
    return word.partition("=")[0].lstrip("+~")


def write_experiment(
    definition: Definition, trial: TrialRecord, study: Path, writes: bool = True
) -> list[str]:
    """Write the trial as a configuration, if `writes`, and return the words of the command that
    trains from it.

    Raises UserError if the trial's files do not show which of its overrides choose config groups,
    or if the app has a configuration of this name.
    """
    overrides = overrides_of(definition, trial)
    try:
        runtime = _read_hydra(trial)["runtime"]
        choices = runtime["choices"]
        content = experiment(overrides, choices)
        sources = runtime.get("config_sources", [])
        folders = [Path(source["path"]) for source in sources if source["provider"] == "main"]
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UserError(
            f"{trial.folder / '.hydra'}: trial {trial.number} cannot be written as {EXPERIMENT}:"
            f" {one_line(reason(error))}.\nTo train it again, type the command above"
        ) from error
    for folder in folders:
        if (folder / EXPERIMENT).exists():  # which Hydra finds first
            raise UserError(
                f"experiment=best: the app has its own {folder / EXPERIMENT}.\nRename that file"
            )
    if writes:
        (study / EXPERIMENT).parent.mkdir(exist_ok=True)
        header = f"# @package _global_\n# Trial {trial.number} of study {study.name}\n"
        write_whole(study / EXPERIMENT, header + content)
    words = _choose_experiment(overrides, choices)
    return rebuild_command(definition, words, needs_launcher(trial), ["--config-dir", str(study)])


def _choose_experiment(overrides: Sequence[str], choices: dict[str, Any]) -> list[str]:
    """Return the words that choose the configuration, with a plus unless the app's defaults have
    the group."""
    is_added = any(word.startswith("+") and key(word) == _GROUP for word in overrides)
    if is_added or _GROUP not in choices:
        return [f"+{_GROUP}=best"]
    # With the values again, because what follows the experiment in the app's defaults would change
    # them.
    words = [f"{_GROUP}=best"]
    for word in overrides:
        adds = word.startswith("+")
        if key(word) == _GROUP or (adds and key(word) in choices):
            continue
        # With two pluses, because the file may have added the key already.
        words.append(f"++{word.lstrip('+')}" if adds else word)
    return words


def experiment(overrides: Sequence[str], choices: dict[str, Any]) -> str:
    """Return overrides as the YAML of a config in the package _global_, which includes the chosen
    experiment.

    Raises ValueError if an override removes a key.
    """
    replaced = choices.get(_GROUP) or []
    included = replaced if isinstance(replaced, list) else [replaced]
    added: list[Any] = []
    changed: list[Any] = []
    values = OmegaConf.create({})
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        group = override.get_key_element().lstrip("+~")
        if group == _GROUP and group in choices:
            continue
        if group in choices:
            choice = None if override.is_delete() else override.value()
            if override.is_add():
                added.append({f"/{group}": choice})
            else:
                changed.append({f"override /{group}": choice})
        elif override.is_delete():
            raise ValueError(f"{override.input_line} removes a key, which no file can")
        else:
            OmegaConf.update(values, override.key_or_group, override.value(), force_add=True)
    # Overrides come last, because Hydra requires this order:
    # https://hydra.cc/docs/advanced/defaults_list/
    defaults = {"defaults": [*included, *added, "_self_", *changed]}
    return OmegaConf.to_yaml(OmegaConf.merge(defaults, values))


def line(words: Sequence[str], working_folder: str) -> str:
    """Return words as a command to type in the current folder."""
    command = shlex.join(words)
    if Path(working_folder) == Path.cwd():
        return command
    return f"cd {shlex.quote(working_folder)} && {command}"


def _split_command(
    definition: Definition, settings: Collection[str]
) -> tuple[list[str], list[str], bool]:
    """Return parts of the command that started the study: the program, Hydra's overrides, and
    whether it had -m.

    The program includes its flags. Overrides that choose what to try are omitted; of the sweeper's
    settings only `settings` are returned.
    """
    words = definition.command
    end = 1
    while words[end].startswith("-") and words[end] != "-m":  # flags of python
        end += 1
    end += 2 if words[end] == "-m" else 1
    multirun = ("-m", "--multirun")
    program = words[:end]
    hydra = []
    had_flag = False
    for word in words[end:]:
        if word in multirun:
            had_flag = True
        elif not _is_override(word):
            program.append(word)
        elif _is_hydra(word) and _is_reusable(word, settings):
            hydra.append(word)
    return program, hydra, had_flag


def _is_override(word: str) -> bool:
    return not word.startswith("-") and ("=" in word or word.startswith("~"))


def _is_hydra(word: str) -> bool:
    return key(word).startswith(("hydra.", "hydra/"))


def _is_sweeper(word: str) -> bool:
    return key(word).startswith("hydra.sweeper.")


def _is_reusable(word: str, settings: Collection[str]) -> bool:
    if _is_sweeper(word):
        return key(word).removeprefix("hydra.sweeper.") in settings
    return not key(word).startswith(("hydra/sweeper", "hydra.sweep.", "hydra.mode"))


def _read_hydra(trial: TrialRecord) -> Any:
    """Return the settings of Hydra with which the trial was composed."""
    return plain.load((trial.folder / ".hydra" / "hydra.yaml").read_text())["hydra"]


def needs_launcher(trial: TrialRecord) -> bool:
    """Return whether the trial ran on another machine or in several processes, which a single run
    cannot do."""
    with suppress(OSError, KeyError, TypeError, ValueError, yaml.YAMLError):
        launcher = _read_hydra(trial)["launcher"]
        several = int(launcher.get("nodes") or 1) * int(launcher.get("tasks_per_node") or 1) > 1
        return several or not str(launcher["_target_"]).endswith("LocalLauncher")
    return False
