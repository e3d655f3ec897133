"""The state of CMA-ES, the only pickle in a record. Optuna unpickles the state, so nobody else may
replace it."""

import io
import pickle
from collections.abc import Mapping
from typing import Any

from sweeps.base.errors import UserError

_MARK = "optimizer"  # as in the attributes cma:optimizer:0 and cma:optimizer:1, parts of one text
_NUMBERS = {
    (f"numpy.{core}.multiarray", name)
    for core in ("_core", "core")
    for name in ("scalar", "_reconstruct")
}
_ALLOWED = {
    *_NUMBERS,
    *(("numpy", name) for name in ("dtype", "ndarray")),
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
    for prefix in {key.partition(_MARK)[0] for key in attributes if _MARK in key}:
        count = sum(key.startswith(f"{prefix}{_MARK}") for key in attributes)
        try:
            text = "".join(attributes[f"{prefix}{_MARK}:{index}"] for index in range(count))
            _Checked(io.BytesIO(bytes.fromhex(text))).load()
        except Exception as error:  # because a damaged pickle may raise anything
            raise UserError(
                f"trial {number}: its record of {prefix}{_MARK} is damaged, or another user wrote"
                f" it: {error}\nSearch on in a new study, from this one's results:"
                " 'hydra.sweeper.learn_from=[NAME]'"
            ) from error
    return dict(attributes)
