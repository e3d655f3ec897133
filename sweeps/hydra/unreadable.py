"""Words of a command line that Hydra's grammar cannot read: what is wrong in them, and what to
type."""

import difflib
import math
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from sweeps.hydra.functions import FUNCTIONS, ZIP, is_zip
from sweeps.hydra.near import keys, near_key
from sweeps.hydra.shell_words import join_split, sweep_flag
from sweeps.hydra.sweeper_settings import is_grid_sampler

GRAMMAR = (
    "Type key=value, or with -m key=a,b or 'key=interval(0.1, 1)'; other letters need quotes, as in"
    " 'key=\"é\"'. All keys are in --help all"
)
_LISTS = {
    "hydra.sweeper.exclude": ("texts in quotes", '["lr<0.001 and batch_size=64"]'),
    "hydra.sweeper.also": ("texts in quotes", '["optimizer=adam lr=0.001,0.01"]'),
    "hydra.sweeper.start": ("points in braces", "[{lr: 0.001, batch_size: 64}]"),
}
_LOG = "tag(log, interval({}))"
_LOGARITHMIC = (
    *("log", "log10", "logrange", "loguniform", "log_uniform", "loginterval", "log_interval"),
    *("qloguniform", "reciprocal"),
)
_FOREIGN_FUNCTIONS = {
    **dict.fromkeys(_LOGARITHMIC, _LOG),
    "uniform": "interval({})",
    "randint": "int(interval({}))",
    "lograndint": "tag(log, int(interval({})))",
    "quniform": "range({})",
    "arange": "range({})",
    "geomspace": "logspace({})",
    "linspace": "{}",
}
"""What Hydra's grammar has in place of the functions of other tools, with their numbers."""
_COUNTS = {"range({})": (2, 3), "logspace({})": (3,), "{}": (3,)}
"""Numbers of arguments of the functions that have other ones than two ends."""
_MOST_LISTED = 20
_CALL = re.compile(r"((?:\w+\.)*)(\w+)\s*[(\[]([^()\[\]]*)[)\]]")
_TAG_LOG = re.compile(r"\btag\s*[(\[]log")
_CAST = re.compile(r"int\((interval\(.*\))\)")
_TAGGED = re.compile(r"(?:tag\(\s*)?log\w*[\s,(]+(interval\(.*\))\)")
_CASTS = {"bool": "bool(1)", "float": "float(1)", "int": "int(1.0)", "str": "str(1)"}
_CALLS = {
    "choice": "choice(0.1,0.2)",
    "glob": "glob(*)",
    "interval": "interval(0.1,1.0)",
    "logspace": "logspace(1e-4,1e-1,7)",
    "range": "range(1,10,2)",
    "shuffle": "shuffle(range(1,10,2))",
    "sort": "sort(0.2,0.1)",
    "tag": "tag(log, interval(0.1,1.0))",
    "zip": ZIP,
    **_CASTS,
}
"""A call of each function of the grammar."""
_KEY = r"[+~]{0,2}[A-Za-z_][\w.@/$-]*"
_QUOTED = re.compile(r"""('[^']*'|"[^"]*")""")
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def explain_unreadable(error: OverrideParseException, config: DictConfig) -> str:
    """Return what is wrong in a word that Hydra's grammar cannot read, and what to type."""
    word = str(error.override)
    problem = f"'{word}' cannot be read"
    if joined := join_split(word, sys.argv[1:], config):
        return f"{problem}, because a space begins a new word.\nType: {joined}"
    if advice := advise_list(word):
        return problem + advice

    cause = error.__cause__
    if cause is not None:  # of a function; Hydra keeps none of its parser
        reason = first_line(cause) or "the function does not take such a value"
        return f"{problem}: {reason}.\n{_advise_call(word, config)}"
    return problem + _correction(word, config)


def _correction(word: str, config: DictConfig) -> str:
    """Return what is wrong in a word, and what to type."""
    if form := _near_function(word.partition("=")[2]):
        typed = typed_sweep(word.partition("=")[0], form, config)
        return f": its function is written in another way.\nType: {typed}"
    if words := _several(word, config):
        return f": between two keys is a space.\nType: {words}"
    for reason, text in _repaired(word):
        if typed := _as_typed(text, config):
            return f": {reason}.\nType: {typed}"
    if example := _example(word, config):
        return f": = and a value are missing.\nType, for example: {example}"
    return f"\n{GRAMMAR}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; empty if there is none."""
    return next(iter(str(error).splitlines()), "")


def advise_list(typed: str) -> str:
    """Return how to type a list of texts or points; empty for other settings."""
    key = typed.partition("=")[0]
    if key == "hydra.launcher.additional_parameters":
        return f"\nType each option alone, as in +{key}.reservation=course"
    items, example = _LISTS.get(key, ("", ""))
    return f"\nType a list of {items}, as in {shlex.quote(f'{key}={example}')}" if items else ""


def _advise_call(word: str, config: DictConfig) -> str:
    """Return a call that can be typed in place of one that Hydra refuses."""
    key, _, call = word.partition("=")
    name = call.partition("(")[0].strip()
    if is_zip(word):
        name = "zip"
        if key in keys(config):  # because it would not be set
            key += "_and_more"
    if form := _near_function(call):
        return f"Type: {typed_sweep(key, form, config)}"
    if name in _CALLS:
        return f"Type, for example: {typed_sweep(key, _CALLS[name], config)}"
    return f"Choose one of: {', '.join(sorted({*FUNCTIONS} - {*_CASTS}))}"


def typed_sweep(key: str, values: str, config: DictConfig) -> str:
    """Return the words that sweep these values: with -m if it was not typed, and with a search for
    an interval."""
    is_grid = is_grid_sampler(OmegaConf.select(config, "hydra.sweeper.sampler"))
    search = "hydra/sweeper=optuna " if is_grid and "interval(" in values else ""
    return f"{sweep_flag(sys.argv)}{search}{shlex.quote(f'{key}={values}')}"


def _near_function(call: str) -> str:
    """Return a call with a function that exists and with the typed numbers; empty if none is
    near."""
    for pattern, form in ((_TAGGED, "tag(log, {})"), (_CAST, "int({})")):
        if inner := pattern.fullmatch(call):
            return form.format(_near_function(inner[1]) or inner[1])
    match = _CALL.fullmatch(_TAG_LOG.sub("log(", call))
    if match is None:
        return ""
    module, name, arguments = match.groups()
    names = sorted({*FUNCTIONS, *_FOREIGN_FUNCTIONS} - {*_CASTS})
    near = next(iter(difflib.get_close_matches(name.lower(), names, 1, cutoff=0.8)), "")
    form = _FOREIGN_FUNCTIONS.get(near, f"{near}({{}})")
    if form in _FOREIGN_FUNCTIONS.values():
        has_powers = bool(module) or arguments.startswith("-")
        return _filled(form, _numbers_of(near, arguments, has_powers))
    return "" if near in ("", module + name) else form.format(arguments)


def _numbers_of(name: str, arguments: str, has_powers: bool) -> list[str]:
    """Return the numbers among a function's arguments, without a step that ours does not have."""
    numbers = [part for part in re.split(r"[\s,;:]+|\.\.+", arguments) if part]
    if name == "qloguniform":
        return numbers[:2]
    if name == "logspace" and has_powers:
        return [*map(_power, numbers[:2]), *numbers[2:]]
    return numbers


def _power(exponent: str) -> str:
    """Return 10 to the power of a number, as numpy.logspace counts; the text itself if it is
    none."""
    try:
        return f"{10 ** float(exponent):.6g}"
    except (ValueError, OverflowError):
        return exponent


def _filled(form: str, numbers: Sequence[str]) -> str:
    """Return the call of a form with the typed numbers, or with others if they do not fit."""
    counts = _COUNTS.get(form, (2,))
    try:
        low, high, *more = map(float, numbers)
    except ValueError:
        low = high = math.nan
        more = []
    is_ratio = form.startswith(("logspace", "tag"))
    if len(numbers) not in counts or not low < high or (is_ratio and low <= 0):
        return "" if form in _COUNTS or form == "interval({})" else form.format("0.1,1.0")
    if form != "{}":
        return form.format(",".join(numbers))
    if more[0] not in range(2, _MOST_LISTED):
        return ""
    step = (high - low) / (more[0] - 1)
    return ",".join(f"{low + i * step:.6g}" for i in range(int(more[0])))


def _repaired(word: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong in a word, and the word without it and all earlier mistakes."""
    first = ""
    for repair in (_replace_signs, *_SUBSTITUTIONS, _close_brackets, _quote_value):
        reason, text = repair(word)
        if text != word:
            first = first or reason
            word = text
            yield first, word


def _several(word: str, config: DictConfig) -> str:
    """Return the words that were typed as one, such as `'lr=0.1 seed=2'`; empty for one word."""
    words = re.split(rf"\s*[\s,;]\s*(?={_KEY}=)", word)
    typed = [_as_typed(part, config) for part in words]
    if len(words) == 1 or "" in typed:
        return ""
    flag = "-m " if any(part.startswith("-m ") for part in typed) else ""
    return flag + " ".join(part.removeprefix("-m ") for part in typed)


def _replace_signs(word: str) -> tuple[str, str]:
    others = [sign for sign in word if _plain_sign(sign) != sign]
    reason = f"{others[0]} is no sign of a shell" if others else ""
    return reason, "".join(map(_plain_sign, word))


def _plain_sign(sign: str) -> str:
    """Return the sign of a shell for one that an editor, or another keyboard, has in its place."""
    if sign.isascii():
        return sign
    name = unicodedata.name(sign, "")
    if "QUOTATION MARK" in name or "PRIME" in name:
        return ""
    if re.search("DASH|HYPHEN|MINUS", name):
        return "-"
    plain = unicodedata.normalize("NFKC", sign)
    return plain if plain.isascii() else sign


def _substitute(reason: str, patterns: Mapping[str, str], word: str) -> tuple[str, str]:
    for pattern, plain in patterns.items():
        word = re.sub(pattern, plain, word)
    return reason, word


_SUBSTITUTIONS = (
    partial(
        _substitute,
        "between a key and its value is one =",
        {rf"^({_KEY})\s*(?::=|=+>?|:)\s*(?=[^\s=])": r"\1="},
    ),
    partial(_substitute, "between two values is a comma", {r"\s*;\s*": ","}),
    partial(
        _substitute,
        "the values of a sweep have no brackets",
        {r"=\s*(?:\(([^()]+)\)|\{([^{}:]+)\})$": r"=\1\2"},
    ),
    partial(
        _substitute,
        "beside a comma a value is missing",
        {r",(?:\s*,)+": ",", r"([=(\[])\s*,": r"\1", r",\s*([)\]]|$)": r"\1"},
    ),
)


def _close_brackets(word: str) -> tuple[str, str]:
    bare = _QUOTED.sub(lambda text: " " * len(text[0]), word)
    before = re.split("['\"]", bare, maxsplit=1)[0]
    quote = bare[len(before) :][:1]
    opened: list[str] = []
    for i, sign in enumerate(before):
        if sign in _PAIRS:
            opened.append(_PAIRS[sign])
        elif sign in _PAIRS.values() and (not opened or opened.pop() != sign):
            return f"its {sign} closes nothing", word[:i] + word[i + 1 :]
    if quote:
        return f"its {quote} is never closed", word.replace(quote, "")
    if not opened or word[-1] in _PAIRS:
        return "", word
    missing = "".join(reversed(opened))
    return f"{missing} is missing at its end", word + missing


def _quote_value(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    others = re.findall(r"[^\w\s/\-\\+.$%*@?|:]|[^\W\x00-\x7f]", value)
    if not others or re.search(r"['\"(\[{]", value):
        return "", word
    return f"{others[0]} needs quotes", f'{key}="{value}"'


def _as_typed(word: str, config: DictConfig) -> str:
    """Return a word as typed in a shell; empty if Hydra's grammar does not allow it."""
    if re.fullmatch(r"-+[a-z]+", word):  # a flag, whose dash was another sign
        name = word.strip("-")
        return {"m": "-m", "multirun": "-m"}.get(name, f"--{name}")
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:
        return ""
    if not override.key_or_group:
        return ""
    current = _current(override.key_or_group, config)
    value = override.value()
    if isinstance(value, list) and isinstance(current, int | float | str):
        return _as_typed(re.sub(r"=\s*\[\s*(.*?)\s*\]$", r"=\1", word), config)
    is_number = isinstance(current, int | float)
    if is_number and isinstance(value, str) and not word[-1].isdecimal():
        return ""
    flag = sweep_flag(sys.argv) if override.is_sweep_override() else ""
    return f"{flag}{shlex.quote(word)}"


def _example(word: str, config: DictConfig) -> str:
    """Return the key that a word is, or likely means, with its value in the configuration; empty if
    there is none."""
    if not re.fullmatch(_KEY, word):
        return ""
    key = word if word in keys(config) else near_key(word, config)
    value = _current(key, config)
    return shlex.quote(f"{key}={value}") if isinstance(value, int | float | str) else ""


def _current(key: str, config: DictConfig) -> object:
    """Return the choice of a group, or the value of a key; None if the configuration has none."""
    choices = OmegaConf.select(config, "hydra.runtime.choices", default={})
    if key in choices:
        return choices[key]
    if not key:
        return None
    return OmegaConf.select(config, key, throw_on_resolution_failure=False)
