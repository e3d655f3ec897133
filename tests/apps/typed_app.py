"""An app whose config has what Hydra allows: many types, and values that no trial reads."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf


class Act(Enum):
    RELU = 1
    GELU = 2


def leave_trace(name: str) -> str:
    Path(name).touch()
    raise RuntimeError(name)


@dataclass
class Net:
    act: Act = Act.RELU
    folder: Path = Path("net")

    def __post_init__(self) -> None:
        Path("made").mkdir(exist_ok=True)


@dataclass
class Config:
    x: int = 1
    v: Act = Act.RELU
    p: Path = Path("/data")
    b: bytes = b"x\xff"
    acts: list[Act] = field(default_factory=lambda: [Act.RELU])
    paths: dict[str, Path] = field(default_factory=lambda: {"a": Path("a")})
    by_act: dict[Act, int] = field(default_factory=lambda: {Act.GELU: 1})
    by_float: dict[float, bytes] = field(default_factory=lambda: {1.5: b"a"})
    by_bool: dict[bool, int | str] = field(default_factory=lambda: {True: "a"})
    maybe: Path | None = None
    anything: Any = Act.GELU
    net: Net = field(default_factory=Net)
    missing: int = MISSING
    job: str = "${oc.env:SLURM_JOB_ID_OF_A_JOB}"
    title: str = "${dataset.title}"
    of_main: str = "${late:1}"
    raises: str = "${leave_trace:resolved}"
    circle: str = "${other_circle}"
    other_circle: str = "${circle}"
    year: str = "${now:%Y}"
    target: Any = field(default_factory=lambda: {"_target_": "nothing.there", "x": "${..x}"})


OmegaConf.register_new_resolver("leave_trace", leave_trace, replace=True)
ConfigStore.instance().store(name="typed_app", node=Config)
things = OmegaConf.create({"x": 1, "kind": Act, "calls": [print]}, flags={"allow_objects": True})
ConfigStore.instance().store(name="things", node=things)


@hydra.main(version_base="1.3", config_path=None, config_name="typed_app")
def main(cfg: DictConfig) -> float:
    OmegaConf.register_new_resolver("late", str, replace=True)
    if "v" in cfg:
        assert isinstance(cfg.v, Act) and isinstance(cfg.p, Path)
        assert cfg.of_main == "1"
    return float(cfg.x)


if __name__ == "__main__":
    main()
