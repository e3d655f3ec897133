"""How to train the best trial again: as a study of its own, which resumes wherever it was
stopped."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from omegaconf import OmegaConf

from sweeps.after import best
from sweeps.analysis import configurations
from sweeps.base.errors import UserError
from sweeps.record.definition import Definition
from sweeps.record.place import resume_line
from sweeps.record.study import StudySnapshot, TrialRecord, result_of
from sweeps.record.study_file import sweeps_line
from sweeps.space.space import quoted, text_of
from sweeps.trial.folder import TrialFolder


def choose_trial(study: StudySnapshot, number: int | None) -> TrialRecord:
    """Return the trial to refit, by default the best.

    Raises UserError if the trial has no result, or the Pareto front has several trials.
    """
    front = study.pareto_front() if number is None else []
    if len(front) > 1:
        numbers = ", ".join(str(trial.number) for trial in front)
        raise UserError(
            f"study {study.name} has several best trials: {numbers}.\nChoose one with --trial"
        )
    return best.choose_trial(study, number)


def folders(study: Path, trial: TrialRecord) -> list[Path]:
    """Return the folders of a trial's refits: on the same data, and on all data."""
    return [study.with_name(f"{study.name}_refit_{trial.number}{kind}") for kind in ("", "_all")]


def command(
    definition: Definition, study: StudySnapshot, trial: TrialRecord, all_data: bool
) -> tuple[list[str], Path]:
    """Return the words of the command that refits a trial, and the folder of the study that
    results.

    Raises UserError if the app's config lacks the setting for it.
    """
    overrides = {best.key(word): word for word in best.overrides_of(definition, trial)}
    settings = {
        setting: _read_setting(study.folder, setting)
        for setting in ("refit", "refit_all_data")[: 1 + all_data]
    }
    if None in settings.values():
        raise _explain_unset(definition, study.folder, settings)
    for words in settings.values():
        overrides |= {best.key(word): word for word in words or ()}
    folder = folders(study.folder, trial)[all_data]
    names = [f"hydra.sweeper.study_name={quoted(folder.name)}"]
    if folder.parent != Path(definition.working_folder) / "multirun":
        names.append(f"hydra.sweep.dir={text_of(str(folder))}")
    return best.rebuild_command(definition, [*names, *overrides.values()], multirun=True), folder


def tags(
    study: StudySnapshot, trial: TrialRecord, refit: TrialRecord, overrides: list[str]
) -> dict[str, str]:
    """Return the tags of a registered model: its study, trial and results, with the mean over seeds
    if there are."""
    texts = {"study": study.name, "trial": str(trial.number), "configuration": " ".join(overrides)}
    texts["found_with"] = result_of(trial, study)
    texts |= {f"refit.{name}": f"{value:.6g}" for name, value in refit.metrics.items()}
    mean = configurations.best(study)
    if mean and trial in [*mean.rows, *mean.raced] and len(mean.values) > 1:
        low, high = mean.interval
        texts |= {"mean": f"{fmean(mean.values):.6g}", "interval": f"{low:.6g} to {high:.6g}"}
    return texts


def kept_model(study: StudySnapshot, refit: TrialRecord) -> Path:
    """Return the folder of the model that the refit saved. Raises UserError if the refit failed, or
    saved no model."""
    if not refit.objective and refit.error:
        raise UserError(
            f"the refit {refit.state}: {refit.error}\nResume with:"
            f" {sweeps_line('refit', study.folder)}"
        )
    model = TrialFolder(refit.folder).model
    if model is None:
        raise UserError(
            f"trial {refit.number} in {refit.folder.parent} saved no model.\n"
            "Use mlflow.<flavor>.save_model in the app, with the path trial.folder / 'model', then"
            f" type: {sweeps_line('delete', refit.folder.parent)} --yes &&"
            f" {sweeps_line('refit', study.folder)}"
        )
    return model


def _explain_unset(
    definition: Definition, study: Path, settings: Mapping[str, list[str] | None]
) -> UserError:
    """Return the error that a study lacks a setting of its refit, with a command that sets all."""
    unset = [setting for setting, words in settings.items() if words is None]
    typed = [
        f"hydra.sweeper.{setting}={text_of([*(words or ())])}"
        for setting, words in settings.items()
    ]
    words = [*shlex.split(resume_line(definition, study)), *typed]
    line = best.line(words, definition.working_folder)
    return UserError(
        f"study {study.name}: hydra.sweeper.{unset[0]} is not set: the overrides with which the app"
        f" saves its model, as in [epochs=20].\nIf the app needs none, type: {line}"
    )


def _read_setting(study: Path, setting: str) -> list[str] | None:
    """Return a setting of the sweeper that lists words, from the study's last command; None if it
    is not set."""
    try:
        config = OmegaConf.load(study / "multirun.yaml")
        words = OmegaConf.select(config, f"hydra.sweeper.{setting}")
        return None if words is None else [str(word) for word in words]
    except Exception as error:  # because a damaged file may hold anything
        raise UserError(
            f"{study / 'multirun.yaml'} cannot be read: {str(error).splitlines()[0]}\n"
            f"Repair it with: {sweeps_line('resume', study)}"
        ) from error
