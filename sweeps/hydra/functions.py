"""The functions that sweepyard adds to Hydra's grammar of overrides: zip(...) and logspace(...).

`zip` follows Hydra's own proposal, docs/design/zipped_sweeps.md. Both functions only keep what was
typed, so that `record.grammar` can explain a mistake.
"""

import random
import re
from functools import cached_property
from itertools import pairwise
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions
from hydra.core.override_parser.types import ChoiceSweep
from hydra.errors import HydraException

from sweeps.hydra import typed_names

ZIP = "zip(optimizer=[adam,sgd], lr=[0.001,0.1])"
"""An example that can be typed."""
_ZIP = re.compile(r"[^=]*=\s*(?:shuffle\s*\(\s*)?zip\s*\(")


class Zip(ChoiceSweep):
    """Keys whose values go together: row i has value i of each key."""

    def __init__(self, members: Any = None, **named: Any) -> None:
        if named or not isinstance(members, dict):
            raise TypeError("zip(...) must be the whole value, alone or in shuffle(...)")
        self.tags = set()
        self.simple_form = False
        self.shuffle = False
        self.members: dict[str, Any] = members

    @property
    def list(self) -> list[Any]:  # type: ignore[override]
        raise HydraException("zip(...) needs hydra/sweeper=grid or hydra/sweeper=optuna")

    def order(self, rows: Any, typed: str) -> None:
        """Shuffle the rows if shuffle(zip(...)) was typed, always in the same order, so that a
        study resumes."""
        if self.shuffle:
            random.Random(typed).shuffle(rows)  # noqa: S311 - no secret


class Logspace(ChoiceSweep):
    """`count` numbers from `low` to `high`, both included, with equal ratios."""

    def __init__(
        self, low: Any = None, high: Any = None, count: Any = None, *more: Any, **named: Any
    ) -> None:
        self.tags = set()
        self.simple_form = False
        self.shuffle = False
        self.low = low
        self.high = high
        self.count = count
        self.needless = [*map(str, more), *(f"{name}={value}" for name, value in named.items())]

    @property
    def problem(self) -> str:
        """Return what is wrong with the typed numbers; empty if nothing is."""
        if self.needless:
            return f"it needs low, high and count, not {self.needless[0]}"
        numbers = [
            number for number in (self.low, self.high, self.count) if type(number) in (int, float)
        ]
        if len(numbers) < 3 or not all(0 < end < float("inf") for end in (self.low, self.high)):
            return "it needs two ends above 0 and a count"
        if type(self.count) is not int or not 2 <= self.count <= 1_000_000:
            return "its count must be a whole number from 2 on"
        return ""

    @property
    def example(self) -> str:
        """Return a call without a problem, with the typed ends if they can be used."""
        ends = [end for end in (self.low, self.high) if isinstance(end, int | float)]
        if len(ends) == 2 and max(ends) <= 0:  # exponents of 10, as numpy counts
            ends = [float(f"{10**end:.6g}") for end in ends]
        is_usable = len(ends) == 2 and ends[0] > 0 and max(ends) < float("inf")
        low, high = ends if is_usable else ("1e-4", "1e-1")
        has_count = type(self.count) is int and 2 <= self.count <= 1_000_000
        return f"logspace({low},{high},{self.count if has_count else 7})"

    @cached_property  # because sort(...) sets it
    def list(self) -> list[Any]:  # type: ignore[override]
        if self.problem:
            raise HydraException(f"logspace({self.low},{self.high},{self.count}): {self.problem}")
        low = float(self.low)
        high = float(self.high)
        steps = self.count - 1
        # Rounded, because 1e-4 * 1000 ** (1 / 3) is 0.0010000000000000002.
        between = [
            float(f"{low ** (1 - i / steps) * high ** (i / steps):.12g}") for i in range(1, steps)
        ]
        return [low, *between, high]


class _Parser(OverridesParser):
    """Hydra's parser with these functions, and names as typed. A key of zip(...) may have dots,
    slashes and a plus."""

    def parse_rule(self, s: str, rule_name: str) -> Any:
        parsed = super().parse_rule(_as_mapping(s) if rule_name == "override" else s, rule_name)
        if rule_name == "override":
            parsed.input_line = s
            typed_names.keep(parsed, s)
        return parsed


_OWN = {"zip": Zip, "logspace": Logspace}
FUNCTIONS = {*create_functions().functions, *_OWN}
"""The names of all functions of the grammar."""


def extend_grammar() -> None:
    """Let Hydra's parsers know our functions. A second call has no effect."""

    def create(
        cls: type[OverridesParser], config_loader: ConfigLoader | None = None
    ) -> OverridesParser:
        functions = create_functions()
        for name, kind in _OWN.items():
            # because a later version of Hydra may have its own
            if name not in functions.definitions:
                functions.register(name, kind)
        return _Parser(functions, config_loader)

    OverridesParser.create = classmethod(create)  # type: ignore[method-assign, assignment]


def is_zip(word: str) -> bool:
    """Return whether the value of an override is zip(...), alone or in shuffle(...)."""
    return bool(_ZIP.match(word))


def _as_mapping(text: str) -> str:
    """Return zip(a=[1,2], b.c=[3,4]) as zip({a:[1,2],b.c:[3,4]}), because Hydra's names of
    arguments have no dots."""
    if not (match := _ZIP.match(text)):
        return text
    start = match.end()
    ends = _ends_of_parts(text, start)
    members: dict[str, str] = {}
    for i, j in pairwise([start - 1, *ends]):
        typed, sign, values = text[i + 1 : j].partition("=")
        key = typed.strip()
        if not sign or key in members:
            problem = f"zip(...): {key} occurs twice" if sign else f"zip(...): '{key}' has no key"
            raise HydraException(problem) from ValueError(problem)
        members[key] = f"{typed}:{values}"
    return f"{text[:start]}{{{','.join(members.values())}}}{text[ends[-1] :]}" if ends else text


def _ends_of_parts(text: str, start: int) -> list[int]:
    """Return the indices of the commas after `start` that are in no brackets or quotes, and of the
    last bracket."""
    ends = []
    depth = 0
    quote = ""
    for i, sign in enumerate(text[start:], start):
        if quote:
            quote = "" if sign == quote and text[i - 1] != "\\" else quote
        elif sign in "'\"":
            quote = sign
        elif depth == 0 and sign in ",)":
            ends.append(i)
            if sign == ")":
                return ends
        else:
            depth += (sign in "([{") - (sign in ")]}")
    return []
