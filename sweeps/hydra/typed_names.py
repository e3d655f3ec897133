"""Names as they were typed, because Hydra's grammar reads 2024_11_26 as 20241126, and 1e5 as
100000.0."""

from dataclasses import fields
from functools import cache
from typing import Any

from hydra.core.override_parser.types import Override

from sweeps.hydra.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf

SECTIONS: tuple[tuple[str, type], ...] = (
    ("hydra.sweeper", SweeperConf),
    ("hydra.launcher", LocalLauncherConf),
    ("hydra.launcher", SlurmLauncherConf),
)
"""The sections of a configuration that are ours, with their settings."""
_NUMBERS = (int, float, bool)  # also bool, because a study may be named true


def keep(override: Override, line: str) -> None:
    """Set the value of a setting that is a name, or a list of names, to the text in `line`, unless
    it is quoted."""
    if override.key_or_group not in text_settings() or override.is_sweep_override():
        return
    text = line.partition("=")[2].strip()
    value: Any = override._value
    if isinstance(value, _NUMBERS):
        override._value = text
    elif isinstance(value, list):
        texts = text.strip("[]").split(",")
        if len(texts) != len(value):  # because a quoted name has a comma
            return
        for i, typed in enumerate(texts):
            if isinstance(value[i], _NUMBERS):
                value[i] = typed.strip()


@cache
def text_settings() -> set[str]:
    """Return the settings whose values are texts: those of the sweeper and the launchers, and the
    experiment."""
    texts = (str, str | None, list[str])
    names = {"tracking.experiment"}
    for section, kind in SECTIONS:
        names |= {f"{section}.{setting.name}" for setting in fields(kind) if setting.type in texts}
    return names
