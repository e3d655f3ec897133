"""Conditions on points that are never tried, such as `gpus=1 and batch_size>512`: parsed, and never
executed."""

import ast
import keyword
import math
import operator
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

from sweeps.base.errors import UserError

SETTING = "hydra.sweeper.exclude"
_EXAMPLE = "Compare swept keys, as in 'gpus=1 and batch_size>512'. Other names need quotes"
_SINGLE_EQUAL = re.compile(r"""('[^']*'|"[^"]*")|(?<![<>=!])=(?!=)""")
_ORDER = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
_EQUAL = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
_NAMED = {"true": True, "false": False, "null": None}
_NUMBERS = {"nan": math.nan, "inf": math.inf}  # in any case, as in Hydra's grammar
_BARE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

_VALUE = r"""[^\s,;<>=!'"\[\]()]+"""
_SEVERAL = re.compile(rf"\s*(?:==?|\bin\b)\s*({_VALUE}(?:\s*,\s*{_VALUE})+)(?!\s*[<>=!])")
_REPAIRS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"=\s*>": ">=",
    r"=\s*<": "<=",
    r"<\s*>": "!=",
    r"\s*&&?\s*": " and ",
    r"\s*\|\|?\s*": " or ",
    r"\b(AND|OR|NOT|IN)\b": lambda match: match[1].lower(),
    r"!(?!=)\s*": "not ",
    r"\s*[,;]\s*(?=[A-Za-z_][\w.]*\s*[<>=!])": " and ",
    r"([<>]=?\s*)0,(?=\d+\b)": r"\g<1>0.",
    r"(\d+(?:\.\d+)?)\s*%": lambda match: f"{float(match[1]) / 100:g}",
    r"(?<![\w.])(\d+)/([1-9]\d*)": lambda match: f"{int(match[1]) / int(match[2]):g}",
    _SEVERAL.pattern: r" in [\1]",
}
"""Signs of other languages, and what a condition has in their place."""

Values = Mapping[str, Any]
Truth = Callable[[Values], bool | None]
"""A part of a condition in Kleene's logic: None while it is undecided."""


@dataclass(frozen=True)
class Excluded:
    """A condition on points that a person excluded from a study that had begun."""

    name: str  # name of the person's request
    text: str
    by: str  # name of the user
    at: float  # s since 1970
    # number of points that were tried or still may be; None if far more than trials
    size: int | None = None


@dataclass(frozen=True)
class Restored:
    """A person's request that points may be tried again which a person had excluded."""

    name: str  # name of the request
    text: str  # the condition of the exclusion
    by: str
    at: float
    excluded: tuple[Excluded, ...] = ()  # the exclusions, once they are removed


class Exclusion:
    """A condition on points. A comparison of a key that a point lacks is undecided, and excludes
    nothing."""

    def __init__(self, text: str, keys: Collection[str]) -> None:
        """Parse the condition on these keys, without their plus. Raises UserError if the text is no
        condition."""
        self.text = text
        self._keys = keys
        # keys with the values that they are compared with
        self.equalities: list[tuple[str, Any]] = []
        # keys whose order with a number or with another key is compared
        self.ordered: list[str] = []
        self.numbers: list[float] = []  # numbers that keys are compared with
        self.relates_keys = False  # whether a key is compared with another key
        self.first_unknown = ""  # first name that is compared like a key, and is none
        # texts that are compared like numbers
        self.no_numbers: list[str] = []
        try:
            if not isinstance(text, str):
                raise ValueError(text)
            parsed = ast.parse(
                _SINGLE_EQUAL.sub(lambda match: match[1] or "==", text.strip()), mode="eval"
            )
            self._truth = self._compile(parsed.body)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise UserError(
                f"{SETTING}: '{text}' cannot be read.\n{_correct(text, keys) or _EXAMPLE}"
            ) from error

    def holds(self, values: Values) -> bool:
        """Return whether the condition is true for a point, or for all points that continue a part
        of one."""
        return self._truth(values) is True

    def _compile(self, node: ast.expr) -> Truth:
        """Return a condition: and, or, not, a comparison, or a key. Raises ValueError for anything
        else."""
        if isinstance(node, ast.BoolOp):
            parts = [self._compile(value) for value in node.values]
            return partial(_combine, parts, isinstance(node.op, ast.Or))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return partial(_negate, self._compile(node.operand))
        if isinstance(node, ast.Compare):
            pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
            return partial(_combine, [self._compile_pair(*pair) for pair in pairs], False)
        key = self._key(node)
        if key is None:
            self._note_unknown(_name(node))
        else:
            self.equalities.append((key, True))
        return partial(_compare, self._read(node), operator.is_, [lambda values: True])

    def _compile_pair(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> Truth:
        others = _compared(sign, right)
        order = _ORDER.get(type(sign))
        self._note(left, others, in_order=order is not None)

        compare = partial(_is_ordered, order) if order else is_same
        truth = partial(_compare, self._read(left), compare, [*map(self._read, others)])
        return partial(_negate, truth) if isinstance(sign, ast.NotEq | ast.NotIn) else truth

    def _note(self, left: ast.expr, others: Sequence[ast.expr], in_order: bool) -> None:
        """Note which keys a comparison has, and with what it compares them."""
        key = self._key(left)
        keys = [self._key(other) for other in others]
        literals = [] if None not in keys else [*map(_literal, others)]
        self.relates_keys |= key is not None and any(keys)
        if key is None and (literals or not is_number(_literal(left))):
            self._note_unknown(_name(left))
        if in_order:
            self.ordered += filter(None, [key, *keys])
            self.no_numbers += [text for text in literals if isinstance(text, str)]
        elif key is not None:
            self.equalities += [(key, literal) for literal in literals]

    def _note_unknown(self, name: str) -> None:
        self.first_unknown = self.first_unknown or name

    def _key(self, node: ast.expr) -> str | None:
        """Return the swept key that a name, or a text in quotes, is; None if it is none."""
        if not isinstance(node, ast.Name | ast.Attribute | ast.Constant):
            return None
        literal = _literal(node)
        return literal if isinstance(literal, str) and literal in self._keys else None

    def _read(self, node: ast.expr) -> Callable[[Values], Any]:
        """Return a function that returns a literal, or the value of a key; without the key, it
        raises KeyError."""
        key = self._key(node)
        if key is not None:
            return operator.itemgetter(key)
        literal = _literal(node)
        if is_number(literal):
            self.numbers.append(literal)
        return lambda values: literal


def _compared(sign: ast.cmpop, right: ast.expr) -> list[ast.expr]:
    """Return what the left side is compared with. Raises ValueError for a sign that the grammar
    lacks."""
    elements = right.elts if isinstance(right, ast.List | ast.Tuple) else None
    needs_list = isinstance(sign, ast.In | ast.NotIn)
    if not isinstance(sign, (*_ORDER, *_EQUAL)) or needs_list != (elements is not None):
        raise ValueError(sign)
    return [right] if elements is None else elements


def exact(point: Values, keys: Collection[str]) -> str:
    """Return a condition that only the points with these values fulfil; empty if the grammar has
    none."""
    text = " and ".join(f"{written(key)}={written(value)}" for key, value in point.items())
    try:
        condition = Exclusion(text, keys)
    except UserError:
        return ""
    compared = [key for key, _ in condition.equalities]
    return text if compared == [*point] and condition.holds(point) else ""


def _correct(text: Any, keys: Collection[str]) -> str:
    """Return a condition to type in place of one with signs of other languages; empty if none can
    be read."""
    corrected = str(text)
    for pattern, plain in _REPAIRS.items():
        corrected = re.sub(pattern, plain, corrected)
    if corrected == text:
        return ""
    try:
        Exclusion(corrected, keys)
    except UserError:
        return ""
    return f"Type in its place: {shlex.quote(corrected)}"


def written(value: Any) -> str:
    """Return a key or a value as one types it in a condition, with quotes unless a text is a plain
    name."""
    if not isinstance(value, str):
        return next((name for name, named in _NAMED.items() if value is named), str(value))
    words = value.split(".")
    is_named = value in _NAMED or value.lower() in _NUMBERS
    if _BARE.fullmatch(value) and not is_named and not any(map(keyword.iskeyword, words)):
        return value
    quote = "'" if '"' in value else '"'
    return quote + value.replace("\\", "\\\\") + quote


def _name(node: ast.expr) -> str:
    """Return a dotted name, or a text in quotes. Raises ValueError for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError(node)


def _literal(node: ast.expr) -> Any:
    """Return a number, a text, true, false or null. Raises ValueError for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        if is_number(value):
            return -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    name = _name(node)
    return _NUMBERS.get(name.lower(), _NAMED.get(name, name))


def _combine(parts: Sequence[Truth], decides: bool, values: Values) -> bool | None:
    """Return `decides` if a part is it, else None if a part is undecided, else the opposite."""
    answer: bool | None = not decides
    for part in parts:
        truth = part(values)
        if truth is decides:
            return decides
        if truth is None:
            answer = None
    return answer


def _negate(part: Truth, values: Values) -> bool | None:
    truth = part(values)
    return None if truth is None else not truth


def _compare(
    left: Callable[[Values], Any],
    compare: Callable[[Any, Any], bool],
    others: Sequence[Callable[[Values], Any]],
    values: Values,
) -> bool | None:
    """Return whether a value compares to one of the others; None if the point lacks a key."""
    try:
        value = left(values)
        return any(compare(value, other(values)) for other in others)
    except KeyError:
        return None


def _is_ordered(order: Callable[[Any, Any], bool], value: Any, other: Any) -> bool:
    return is_number(value) and is_number(other) and order(value, other)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a value is a number, and neither true nor false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(value: Any, other: Any) -> bool:
    """Return whether two values are one: 1 and 1.0 are, and nan and nan, but not 1 and True."""
    if isinstance(value, float) and isinstance(other, float) and math.isnan(value):
        return math.isnan(other)
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)
