"""The best trial of a study, trained once more: as a study of its own, which goes on wherever it was stopped."""

from pathlib import Path
from statistics import fmean

from omegaconf import OmegaConf

from sweeps.errors import UserError
from sweeps.record import configurations
from sweeps.record.definition import Definition, sweeps_line
from sweeps.record.space import text_of
from sweeps.record.study import StudySnapshot, TrialRecord, result_of
from sweeps.study import best
from sweeps.trial.folder import TrialFolder


def chosen(summary: StudySnapshot, number: int | None) -> TrialRecord:
    """The trial to refit. Raises UserError if there is none, or several objectives leave the choice to a person."""
    front = summary.pareto_front() if number is None else []
    if len(front) > 1:
        which = ", ".join(str(row.number) for row in front)
        raise UserError(f"study {summary.name} has several best trials: {which}\nChoose one with --trial")
    return best.chosen(summary, number)


def folders(study: Path, row: TrialRecord) -> list[Path]:
    """Where a trial is trained once more: as it was, and on all data."""
    return [study.with_name(f"{study.name}_refit_{row.number}{kind}") for kind in ("", "_all")]


def command(definition: Definition, summary: StudySnapshot, row: TrialRecord, all_data: bool) -> tuple[list[str], Path]:
    """The command line, as words, that trains it once more, and the folder of the study that this makes.

    Raises UserError if the app does not say how.
    """
    said = ["refit", "refit_all_data"] if all_data else ["refit"]
    own: dict[str, str] = {best.key(word): word for word in best.overrides_of(definition, row)}
    for name in said:
        words = _said(summary.folder, name)
        if words is None:
            what = "on all data" if all_data else "once more"
            raise UserError(
                f"study {summary.name} does not say how its app is trained {what}\n"
                f"Say it in the app's config, as in hydra.sweeper.{name}: [keep_model=true], and type its command again"
            )
        own |= {best.key(word): word for word in words}
    folder = folders(summary.folder, row)[all_data]
    where = [f"hydra.sweeper.study_name={folder.name}"]
    if folder.parent != Path(definition.working_folder) / "multirun":
        where.append(f"hydra.sweep.dir={text_of(str(folder))}")
    return best.again(definition, [*where, *own.values()], multirun=True), folder


def tags(summary: StudySnapshot, row: TrialRecord, trained: TrialRecord, overrides: list[str]) -> dict[str, str]:
    """What a registered model tells of where it comes from; its mean and interval where it has several seeds."""
    found = {"study": summary.name, "trial": str(row.number), "configuration": " ".join(overrides)}
    found["found_with"] = result_of(row, summary)
    found |= {f"refit.{name}": f"{value:.6g}" for name, value in trained.metrics.items()}
    mean = configurations.best(summary)
    if mean and row in [*mean.rows, *mean.raced] and len(mean.values) > 1:
        low, high = mean.interval
        found |= {"mean": f"{fmean(mean.values):.6g}", "interval": f"{low:.6g} to {high:.6g}"}
    return found


def kept_model(summary: StudySnapshot, trained: TrialRecord) -> Path:
    """The model that the refit kept. Raises UserError if it did not end well, or kept none."""
    if not trained.objective and trained.error:
        raise UserError(
            f"the refit {trained.state}: {trained.error}\nGo on with: {sweeps_line('refit', summary.folder)}"
        )
    kept = TrialFolder(trained.folder).model
    if kept is None:
        raise UserError(
            f"trial {trained.number} in {trained.folder.parent} kept no model\n"
            "Have it write one to trial.folder / 'model', with mlflow.<flavor>.save_model"
        )
    return kept


def _said(study: Path, setting: str) -> list[str] | None:
    """A setting of the sweeper that holds words, as the study was last run with it; None if it has none."""
    try:
        found = OmegaConf.select(OmegaConf.load(study / "multirun.yaml"), f"hydra.sweeper.{setting}")
        return None if found is None else [str(word) for word in found]
    except Exception as error:  # whatever a damaged file holds
        raise UserError(
            f"{study / 'multirun.yaml'} cannot be read: {str(error).splitlines()[0]}\n"
            f"To mend it: {sweeps_line('resume', study)}"
        ) from error
