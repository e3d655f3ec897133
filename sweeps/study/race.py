"""The final race: the best configurations of a study under fresh seeds. Knows no Optuna."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sweeps.results.comparison import race
from sweeps.results.groups import by_configuration, candidates
from sweeps.results.summary import Row


@dataclass(frozen=True)
class Next:
    """What a race needs next."""

    begin: list[tuple[int, int]] = field(default_factory=list)  # the number of a trial to repeat, and the seed
    waits: bool = False  # whether something has to end before it is known what follows
    names: list[str] = field(default_factory=list)  # of the configurations that are in it


def next_of(rows: Sequence[Row], count: int, key: str, seeds: Sequence[int], maximize: bool) -> Next:
    """What the final race of `count` configurations needs next, by all trials of the study.

    Nothing is remembered but trials: the same ones make the same race, whoever was killed meanwhile.
    """
    if any(not row.state.is_over for row in rows if not row.race):
        return Next(waits=True)
    groups = by_configuration(rows, key)
    chosen = candidates(groups, count, maximize)
    chosen += [one for one in groups if one.raced and one.rows and one not in chosen]  # what is in it stays in it
    standing = race([one.results() for one in chosen], seeds, maximize)
    begun = [{row.params[key] for row in one.raced} for one in chosen]
    left = [(chosen[i].rows[0].number, seed) for i, seed in standing.todo if seed not in begun[i]]
    return Next(left, bool(standing.todo), [one.name for one in chosen])
