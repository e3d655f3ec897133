"""The file study.json: writing, checking and reading the definition of a study."""

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from sweeps.base.errors import UserError
from sweeps.base.files import MALFORMED, CorruptFile, is_private, quarantine, read_json, write_whole
from sweeps.record.definition import FORMAT, Definition
from sweeps.record.extension import add_extension, well_formed
from sweeps.record.journal import FILE as JOURNAL
from sweeps.record.place import another_study, resume_line, suggest_study, unpack_line
from sweeps.record.removal import FIXED, Removal, explain_removal
from sweeps.trial import well_typed

FILE = "study.json"
DONE = "done"
"""The file with the reason why a study is done early, such as a target that was reached."""
ARCHIVE = "archive"
"""The folder of archived studies, beside the studies' folders."""


def write_or_check(folder: Path, new: Definition, extend: bool) -> str:
    """Write a new study's definition, or raise UserError if it is another study's. Return the
    file's repairs."""
    file = folder / FILE
    mended = ""
    try:
        old = read(folder)
    except FileNotFoundError:
        old = new
        if (folder / JOURNAL).exists():
            mended = f"{file} is missing. This command defines the study anew"
    except CorruptFile as error:
        old = new
        mended = f"{error}. This command defines the study anew (old file: {quarantine(file).name})"
    refuse_differences(folder, old, new, extend)
    is_other = extend or old is new
    definition = add_extension(old, new) if is_other else _with_free_changes(old, new)
    if is_other or definition is not old:
        write_whole(file, json.dumps(asdict(definition), indent=1))
        with suppress(OSError):  # because not every disk has modes
            file.chmod(file.stat().st_mode & ~0o022)  # because `resume` runs the command in it
    return mended


def _with_free_changes(old: Definition, new: Definition) -> Definition:
    """Return the definition with the values and the command that a resumed study changed as
    `may_change` allows."""
    changed = {key: new.config[key] for key in old.free_keys() if key in new.config}
    config = {**old.config, **changed}
    return old if config == old.config else replace(old, command=new.command, config=config)


def refuse_differences(folder: Path, old: Definition, new: Definition, extend: bool) -> None:
    """Raise UserError with the first differences if a command is of another study, or does not only
    extend it."""
    differences = old.differences(new)
    line = partial(sweeps_line, folder=folder)
    removals = {key: explain_removal(old, new, key, line) for key in differences}
    if extend:
        differences = {key: difference for key, difference in differences.items() if removals[key]}
        if differences and FIXED not in removals.values():
            raise UserError(str(next(filter(None, removals.values()))))
    if differences:
        problem = _describe_differences(old, new, differences)
        if extend:
            problem = f"{problem}. {FIXED.problem}"
        advice = _advise_on_differences(folder, old, new, removals)
        raise UserError(f"{problem}\nEither {advice}")


def _describe_differences(old: Definition, new: Definition, differences: Mapping[str, str]) -> str:
    """Return how a command differs from a study, or from its newest extension."""
    shown = [*differences.values()][:5]
    more = " ..." * (len(differences) > 5)
    if not old.extended:
        return f"study {new.name} was started with other values: {'; '.join(shown)}{more}"
    values = [difference.rpartition(" was ")[0] for difference in shown]
    extended = old.extended[-1]
    return (
        f"study {new.name} was extended by {extended.get('by')}: {extended.get('values')}. "
        f"This command has {'; '.join(values)}{more}"
    )


def _advise_on_differences(
    folder: Path, old: Definition, new: Definition, removals: Mapping[str, Removal | None]
) -> str:
    """Return what to type instead of a command that differs from a study: two or more options."""
    event = "extended" if old.extended else "started"
    options = [
        f"choose {another_study(new, folder)}",
        f"type the command that {event} the study: {resume_line(old, folder)}",
    ]
    removed = [*filter(None, removals.values())]
    if FIXED not in removed:
        if len(removed) < len(removals) or any(removal.adds for removal in removed):
            options.append(
                "to add values or trials, keep the earlier ones, and add hydra.sweeper.extend=true"
            )
        options += [f"to {removal.instead}" for removal in removed[:1] if removal.instead]
    numbered = [f"{number}. {option}" for number, option in enumerate(options, 1)]
    return f"{', '.join(numbered[:-1])}, or {numbered[-1]}"


def refuse_foreign(folder: Path, line: str) -> None:
    """Raise UserError if another user could have changed the study's definition, from which `line`
    would run."""
    if not is_private((folder / FILE).stat()):
        raise UserError(
            f"{folder / FILE}: another user could have changed the command in it.\nCheck it, then"
            f" type it: {line}"
        )


def read(folder: Path) -> Definition:
    """Return the definition of the study in `folder`.

    Raises FileNotFoundError without a study, CorruptFile if its definition is damaged, UserError if
    its files have another format.
    """
    content = read_json(folder / FILE)
    if content is None:
        raise FileNotFoundError(folder / FILE)
    # Files of versions before the first format have a version instead.
    if isinstance(content, dict) and (
        "version" in content or content.get("format", FORMAT) != FORMAT
    ):
        raise UserError(
            f"{folder / FILE}: format={content.get('format')}: this version of sweepyard reads"
            f" format {FORMAT}.\nUse the version that wrote the study, or choose another"
            " hydra.sweeper.study_name"
        )
    try:
        well_typed.check_letters(content)
        definition = Definition(**{**content, "extended": well_formed(content.get("extended"))})
        check_types(definition)
    except MALFORMED as error:
        raise CorruptFile(folder / FILE, "its entries are not those of a study") from error
    return definition


def locate(name: str, root: Path) -> tuple[str, Path]:
    """Return the name and the root of a study that was typed as a name in `root`, or as the path of
    its folder."""
    folder = Path(name) if "/" in name and (Path(name) / FILE).exists() else root / name
    return folder.name, folder.parent


def find(name: str, root: Path) -> tuple[Path, Definition]:
    """Return the folder and the definition of the study `name` in `root`. Raises UserError if there
    is none."""
    folder = (root / name).absolute()
    try:
        return folder, read(folder)
    except FileNotFoundError:
        if (folder / JOURNAL).exists():
            raise UserError(explain_missing(folder)) from None
        packed = root / ARCHIVE / f"{name}.tar.gz"
        if packed.exists():
            raise UserError(
                f"study {name} is packed in {packed}\nUnpack it with: {unpack_line(packed)}"
            ) from None
        raise UserError(
            f"there is no study {name} in {root}.\n{suggest_study(name, root)}"
        ) from None
    except CorruptFile as error:
        raise UserError(
            f"{error}.\nTo repair it, type the command that started study {name} again"
        ) from error


def explain_missing(folder: Path) -> str:
    """Return that a study has no definition any more, and how to repair it."""
    return (
        f"{folder / FILE} is missing.\nTo repair it, type the command that started study"
        f" {folder.name} again"
    )


def sweeps_line(command: str, folder: Path) -> str:
    """Return the line `sweepyard COMMAND` for the study in `folder`."""
    root = [] if folder.parent == Path("multirun").absolute() else ["--root", str(folder.parent)]
    return shlex.join(["sweepyard", command, folder.name, *root])


def check_types(definition: Definition) -> None:
    """Raise an error of MALFORMED if an entry has another type than `define` writes."""
    places = (definition.storage, definition.tracking_uri, definition.sweep_dir)
    optional = [place for place in places if place is not None]
    texts = [definition.name, definition.working_folder, definition.n_trials, definition.seed_key]
    for text in [*texts, *definition.command, *optional]:
        well_typed.check_text(text)
    well_typed.check_list(definition.command, fewest=2)
    _check_objective(definition)
    for mapping in (definition.parameters, definition.search, definition.config):
        well_typed.check_texts(mapping)
    for count in (definition.total, 0 if definition.size is None else definition.size):
        well_typed.check_count(count)
    if definition.repeats < 1:
        raise ValueError("a setting has a value that it cannot have")
    for part in ("sampler", "pruner"):
        well_typed.check_section(json.loads(definition.search.get(part, "null")))
    for point in definition.listed:
        well_typed.check_point(point)
    well_typed.check_list(definition.exclude)
    well_typed.check_list(definition.may_change)


def _check_objective(definition: Definition) -> None:
    well_typed.check_list(definition.objective, fewest=1)
    if len(definition.directions) != len(definition.objective):
        raise ValueError("each objective has a direction")
    if not {*definition.directions} <= {"minimize", "maximize"}:
        raise ValueError("a direction is minimize or maximize")
