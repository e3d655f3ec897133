"""The types of the entries of study.json, which a person or a disk may have changed."""

from typing import TYPE_CHECKING

from sweeps.trial import well_typed

if TYPE_CHECKING:
    from sweeps.record.definition import Definition


def check_types(definition: "Definition") -> None:
    """Raise an error of MALFORMED if an entry has another type than `define` writes."""
    optional = [
        address for address in (definition.storage, definition.tracking_uri) if address is not None
    ]
    texts = [definition.name, definition.working_folder, definition.n_trials, definition.seed_key]
    for text in [*texts, *definition.command, *optional]:
        well_typed.check_text(text)
    well_typed.check_list(definition.command, fewest=2)
    well_typed.check_list(definition.objective, fewest=1)
    for mapping in (definition.parameters, definition.search, definition.config):
        well_typed.check_texts(mapping)
    for count in (definition.total, 0 if definition.size is None else definition.size):
        well_typed.check_count(count)
    if len(definition.directions) != len(definition.objective):
        raise ValueError("each objective has a direction")
    if not {*definition.directions} <= {"minimize", "maximize"} or definition.repeats < 1:
        raise ValueError("a setting has a value that it cannot have")
    for point in definition.listed:
        well_typed.check_point(point)
    well_typed.check_list(definition.exclude)
