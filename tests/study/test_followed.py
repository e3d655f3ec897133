"""Which key of an app a setting takes its value from."""

import pytest
from omegaconf import DictConfig, OmegaConf

from sweeps.hydra.followed import by_default, followed, source, written

CONFIG = """
trainer: {nodes: "${nodes}", lost: "${gone}", self: "${trainer.self}"}
nodes: 2
big: text
names: [a, "${nodes}"]
address: ${oc.env:HOME}
setting: ${oc.select:trainer.nodes,1}
broken: ${gone}
mandatory: ???
"""


@pytest.fixture
def config() -> DictConfig:
    made = OmegaConf.create(CONFIG)
    assert isinstance(made, DictConfig)
    return made


@pytest.mark.parametrize(
    ("key", "end"),
    [
        ("setting", "nodes"),
        ("trainer.nodes", "nodes"),
        ("nodes", "nodes"),
        ("address", "address"),
        ("names", "names"),
        ("trainer.lost", "trainer.lost"),
        ("trainer.self", "trainer.self"),
        ("mandatory", "mandatory"),
    ],
)
def test_the_key_in_the_end(config: DictConfig, key: str, end: str) -> None:
    assert source(config, key) == end


@pytest.mark.parametrize("key", ["none", "big.deep", "broken.deep", "trainer.none", "names.0"])
def test_missing_studies_and_trials(config: DictConfig, key: str) -> None:
    with pytest.raises(KeyError):
        written(config, key)


def test_written_configuration_is_not_resolved(config: DictConfig) -> None:
    assert written(config, "names") == ["a", "${nodes}"]
    assert written(config, "address") == "${oc.env:HOME}"
    assert followed(written(config, "address")) == ""


@pytest.mark.parametrize("group", ["launcher/local", "launcher/slurm"])
def test_choices_of_a_group_have_descriptions(group: str) -> None:
    assert by_default(group, "gpus_per_node") == "gpus"
