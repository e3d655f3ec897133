"""What samplers and pruners store with trials: JSON, in which the state of CMA-ES is a pickle.

Optuna unpickles this state, so nobody else may replace it.
"""

import io
import json
import pickle
from collections.abc import Mapping
from itertools import product
from typing import Any

from sweeps.base.errors import UserError
from sweeps.choose.sampler.faults import Kind, fault

_MARK = "optimizer"  # as in the attributes cma:optimizer:0 and cma:optimizer:1, parts of one text
_ALLOWED = {
    *product(("numpy._core.multiarray", "numpy.core.multiarray"), ("scalar", "_reconstruct")),
    *product(("numpy",), ("dtype", "ndarray")),
    *((f"cmaes._{name.lower()}", name) for name in ("CMA", "SepCMA", "CMAwM")),
}


class _Checked(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of it")
        return super().find_class(module, name)


def checked(attributes: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a copy of the attributes that Optuna's sampler stored with a trial.

    Raises UserError if Optuna would unpickle anything but numbers and the classes of CMA-ES.
    """
    prefixes = {key.partition(_MARK)[0] for key in attributes if _MARK in key}
    for prefix in prefixes:
        name = f"{prefix}{_MARK}"
        count = sum(key.startswith(name) for key in attributes)
        try:
            text = "".join(attributes[f"{name}:{index}"] for index in range(count))
            _Checked(io.BytesIO(bytes.fromhex(text))).load()
        except Exception as error:  # because a damaged pickle may raise anything
            raise UserError(
                f"trial {number}: its record of {name} is damaged, or another user wrote"
                f" it: {error}\nSearch on in a new study, from this one's results:"
                " 'hydra.sweeper.learn_from=[NAME]'"
            ) from error
    return dict(attributes)


def storable(kind: Kind, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the system attributes that a sampler or a pruner stored. Raises UserError if
    one is no JSON."""
    for name, value in attributes.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"it stored the system attribute {name!r}, which JSON cannot hold: {error}"
            raise fault(kind, problem) from error
    return dict(attributes)
