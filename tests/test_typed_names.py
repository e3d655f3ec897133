"""Names on the command line: the text that was typed, where Hydra's grammar reads a number."""

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from sweeps.hydra.functions import extend_grammar

extend_grammar()


@pytest.mark.parametrize(
    "line, expected",
    [
        ("hydra.sweeper.study_name=2024_11_26", "2024_11_26"),
        ("hydra.sweeper.study_name=1e5", "1e5"),
        ("++hydra.sweeper.study_name= 1_0.50 ", "1_0.50"),
        ("hydra.sweeper.study_name=true", "true"),
        ("hydra.sweeper.study_name=-1", "-1"),
        ("hydra.sweeper.study_name=nan", "nan"),
        ("hydra.sweeper.study_name=null", None),
        ("hydra.sweeper.study_name='1e5'", "1e5"),
        ("hydra.sweeper.study_name=a1", "a1"),
        ("hydra.sweeper.experiment=2024_11_26", "2024_11_26"),
        ("tracking.experiment=1e5", "1e5"),
        ("hydra.launcher.partition=1_0", "1_0"),
        ("hydra.launcher.account=1e5", "1e5"),
        ("hydra.sweeper.learn_from=[2024_11_26, 1e5,b,'1e6']", ["2024_11_26", "1e5", "b", "1e6"]),
        ("hydra.sweeper.n_trials=1_0", 10),
        ("lr=1e5", 100000.0),
    ],
)
def test_name_is_what_was_typed(line: str, expected: Any) -> None:
    (override,) = OverridesParser.create().parse_overrides([line])
    assert override.value() == expected
    assert override.input_line == line
