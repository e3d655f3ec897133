import inspect

import keras
import pytest
from omegaconf import OmegaConf

from tests.trainers.recorder import CONF

# What every Keras optimizer takes; the rest are an optimizer's own hyperparameters.
COMMON = {
    *("clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum", "ema_overwrite_frequency"),
    *("loss_scale_factor", "gradient_accumulation_steps", "name", "kwargs", "self"),
}
# sgd has neither, by what it is called.
LEFT_OUT = {"sgd": {"momentum", "nesterov"}}


@pytest.mark.parametrize("path", sorted((CONF / "optimizer").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_hyperparameter_is_spelled_out(path) -> None:  # type: ignore[no-untyped-def]
    section = OmegaConf.to_container(OmegaConf.load(path), resolve=True)["optimizer"]  # type: ignore[call-overload, index]
    cls = getattr(keras.optimizers, section.pop("_target_").removeprefix("keras.optimizers."))
    own = set(inspect.signature(cls.__init__).parameters) - COMMON - LEFT_OUT.get(path.stem, set())
    assert set(section) == own
    optimizer = cls(**section)
    assert all(getattr(optimizer, name) == section[name] for name in own - {"learning_rate"})
