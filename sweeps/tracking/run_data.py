"""The metrics, params, tags and files of a run, as MLflow gets them."""

import hashlib
import math
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sweeps.base.secrets import mask_lines, mask_value, without_password
from sweeps.hydra import plain
from sweeps.tracking.store import UNWANTED, first_line, is_refusal
from sweeps.trial.job import Point

MetricRow = tuple[str, float, int, int]
"""Name, value, milliseconds since 1970, step. MLflow stores equal rows once, so a row may be sent
again."""
_MOST_LETTERS = 250  # of a name
_BATCH = 1000  # metrics, params and tags that MLflow takes in one call
_LONG_BYTES = 5_000_000
_PARAMS = 100  # params that MLflow takes in one call


_WORDS = {
    "@": "_at_",
    "#": "_no_",
    "%": "_percent_",
    "&": "_and_",
    "^": "_to_",
    "<": "_below_",
    ">": "_above_",
}
"""Words for the characters that names of metrics often have and MLflow refuses, so that `acc@1` and
`acc#1` differ."""


def mlflow_name(name: str) -> str:
    """Return a name that MLflow accepts: Hydra's `+db@src` becomes `db_at_src`, and `../x` becomes
    `___x`.

    Raises nothing, because a name that MLflow refused would be missing there for ever.
    """
    spelled = "".join(_WORDS.get(sign, sign) for sign in name.lstrip("+~"))
    allowed = re.sub(r"[^\w\-. /:]", "_", spelled)
    is_path = posixpath.normpath(allowed) == allowed != "."
    if not is_path or allowed.startswith(("..", "/")):  # as in a//b
        allowed = allowed.replace("/", "_").replace(".", "_") or "_"
    if len(allowed) > _MOST_LETTERS:
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
        allowed = f"{allowed[: _MOST_LETTERS - len(digest) - 1]}-{digest}"
    return allowed


def names_by_log(space: Mapping[str, str]) -> dict[str, str]:
    """Return the name of the logarithm of each param that is searched by logarithm, as MLflow's
    axes are linear."""
    names = {}
    for key, domain in space.items():
        if domain.startswith("log interval("):
            name = key.partition(" under ")[0]
            names[name] = f"log10 {mlflow_name(name)}"
    return names


def logarithms(params: Point, space: Mapping[str, str]) -> dict[str, str]:
    """Return the logarithms of params by their names in MLflow."""
    texts = {}
    for param, name in names_by_log(space).items():
        value = params.get(param)
        if isinstance(value, int | float) and value > 0:
            texts[name] = f"{math.log10(value):.6g}"
    return texts


def send(
    client: Any, run_id: str, metrics: list[MetricRow], params: dict[str, str], tags: dict[str, str]
) -> str:
    """Send everything that MLflow accepts, and return why it refused the rest; "" if it accepted
    everything."""
    from mlflow.entities import Metric, Param, RunTag

    entities: list[Any] = [Param(name, mask_value(name, value)) for name, value in params.items()]
    entities += [RunTag(name, without_password(value)) for name, value in tags.items()]
    entities += [Metric(*row) for row in metrics]
    size = _PARAMS if len(params) > _PARAMS else _BATCH
    batches = [entities[start : start + size] for start in range(0, len(entities), size)]
    refusals = [_log(client, run_id, batch) for batch in batches]
    return next(filter(None, refusals), "")


def send_settings(client: Any, run_id: str, settings: Mapping[str, str]) -> str:
    """Log settings as params, and return why MLflow refused some; "" if it accepted them.

    If the trial's own code logged another value under a name, the setting gets the prefix
    `config/`.
    """
    from mlflow.entities import Param
    from mlflow.exceptions import MlflowException

    params = {name: mask_value(name, value) for name, value in settings.items()}
    entities = [Param(*pair) for pair in params.items()]
    try:
        for start in range(0, len(entities), _PARAMS):
            batch = entities[start : start + _PARAMS]
            client.log_batch(run_id, params=batch, synchronous=True)
    except MlflowException as error:
        if error.error_code not in UNWANTED or not is_refusal(error):
            raise
        logged = client.get_run(run_id).data.params
        renamed = {
            f"config/{n}" if logged.get(n, value) != value else n: value
            for n, value in params.items()
        }
        return send(client, run_id, [], renamed, {})
    return ""


def _log(client: Any, run_id: str, batch: Sequence[Any]) -> str:
    """Log metrics, params and tags, and return MLflow's refusal. One refused name does not lose the
    others."""
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.exceptions import MlflowException

    metrics, params, tags = (
        [e for e in batch if isinstance(e, kind)] for kind in (Metric, Param, RunTag)
    )
    try:
        client.log_batch(run_id, metrics, params, tags, synchronous=True)
    except MlflowException as error:
        names = {entity.key for entity in batch}
        if error.error_code not in UNWANTED or not is_refusal(error):
            raise
        if len(names) == 1:
            return first_line(error)
        refusals = [
            _log(client, run_id, [entity for entity in batch if entity.key == name])
            for name in names
        ]
        return next(filter(None, refusals), "")
    return ""


def copy_for_show(file: Path, folder: Path) -> Path:
    """Return a file that others may read: without secrets, if it is a YAML file, and not too long.

    If this changes the file, the path leads to a copy of the same name in `folder`.
    """
    if file.stat().st_size > _LONG_BYTES:
        return _shortened(file, folder)
    if file.suffix != ".yaml":
        return file
    text = file.read_text(errors="replace")
    try:
        content = plain.load(text)
        masked = mask_value("", content)
        if masked == content:
            return file
        text = yaml.safe_dump(masked, sort_keys=False)
    except yaml.YAMLError:  # because the file may be damaged
        text = mask_lines(text)
    (folder / file.name).write_text(text)
    return folder / file.name


def _shortened(file: Path, folder: Path) -> Path:
    """Copy the head and the tail of a file into `folder`, and return the path of the copy, which
    has the same name."""
    half = _LONG_BYTES // 2
    size = file.stat().st_size
    copy = folder / file.name
    with file.open("rb") as whole, copy.open("wb") as short:
        short.write(whole.read(half))
        note = f"[... {size - 2 * half} bytes are left out here; the whole file: {file}]"
        short.write(f"\n\n{note}\n\n".encode())
        whole.seek(size - half)
        short.write(whole.read(half))
    return copy
