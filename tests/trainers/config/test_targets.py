import sys
from pathlib import Path

import pytest

from trainers.config import targets

MODULE = """
import os.path as renamed
from json import dumps
CONSTANT, [other, *rest] = 1, [2]
typed: int = 3
try:
    import not_installed
except ImportError:
    fallback = None
if True:
    def inside_if(): ...
with open(__file__) as handle:
    bound_in_with = 1
class Model:
    in_class = 1
def train(cfg, trial):
    local = 1
async def train_async(): ...
raise SystemExit("imported")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my_package"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("from . import linked\nraise SystemExit('imported')\n")
    (folder / "my_module.py").write_text(MODULE)
    (folder / "starry.py").write_text("from json import *\n")
    (folder / "lazy.py").write_text("def __getattr__(name): ...\n")
    (folder / "broken.py").write_text("x = 1\ndef train(:\n")
    (folder / "inner" / "deep.py").write_text("def f(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


@pytest.mark.parametrize(
    "target",
    [
        *(f"my_package.my_module.{name}" for name in ["renamed", "dumps", "CONSTANT", "other", "rest", "typed"]),
        *(
            f"my_package.my_module.{name}"
            for name in ["not_installed", "fallback", "inside_if", "handle", "bound_in_with"]
        ),
        *(f"my_package.my_module.{name}" for name in ["Model", "train", "train_async", "Model.in_class"]),
        "my_package.starry.anything",
        "my_package.lazy.anything",
        "my_package.inner.deep.f",  # inner is a namespace package
        "my_package.linked.anything",
        "keras.optimizers.Adam",
        "keras.losses.MeanSquaredError",
        "math.sqrt",  # no source
        "time.sleep",  # built in
        "os.path.join",
        "json.dumps",
    ],
)
def test_importable_targets(target: str, package: Path) -> None:
    targets.check("trainer._target_", target)
    assert "my_package" not in sys.modules


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("my_package.my_module.trian", "there is no 'trian' in my_package.my_module; did you mean train"),
        ("my_package.my_module.local", "there is no 'local' in my_package.my_module"),
        ("my_package.my_module.in_class", "there is no 'in_class' in my_package.my_module"),
        ("my_package.my_modul.train", "there is no 'my_modul' in my_package; did you mean my_module?"),
        ("time.slep", "there is no 'slep' in time; did you mean sleep?"),
        ("my_package.inner.shallow.f", "there is no 'shallow' in my_package.inner"),
        ("my_package.inner.dep.f", "there is no 'dep' in my_package.inner; did you mean deep?"),
        ("my_pakage.my_module.f", "there is no module 'my_pakage'; did you mean my_package?"),
        ("my_package.my_module", "is a module; name a function or class of the module, such as my_package.my_module.f"),
        ("my_package.broken.train", "broken.py, line 2: "),
        ("train", "name its module too, as in my_module.train"),
        ("my_package..f", "is 'my_package..f'; it must be the dotted name of a callable"),
        (None, "is missing; it must be the dotted name of a callable"),
        (3, "is 3; it must be the dotted name of a callable"),
        ("keras.optimizers.Adma", "there is no 'Adma' in keras.optimizers; did you mean "),
    ],
)
def test_targets_that_cannot_be_imported(target: object, message: str, package: Path) -> None:
    with pytest.raises(ValueError) as error:
        targets.check("trainer._target_", target)
    assert str(error.value).startswith("trainer._target_")
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) <= 2
    assert "my_package" not in sys.modules


def test_missing_keras_is_answered_by_its_installation(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(package)])
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    with pytest.raises(
        ValueError, match=r"there is no module 'keras'\nInstall TensorFlow: pip install .*'\.\[keras\]'"
    ):
        targets.check("model._target_", "keras.optimizers.Adam")  # a key that no other test has cached


@pytest.mark.parametrize(
    "target, settings, message",
    [
        ("f", ("width", "depth"), ""),
        ("f", ("wdith",), "model.wdith is no setting of its.f; did you mean width or depth?"),
        ("f", ("x",), "model.x is no setting of its.f\nRemove it; its settings: model.width, model.depth"),
        ("nothing", ("width",), "model.width is no setting of its.nothing\nRemove it; its settings: none"),
        ("takes_all", ("wdith",), ""),
        ("Own", ("wdith",), "model.wdith is no setting of its.Own; did you mean width?"),
        ("Class", ("wdith",), ""),  # because the arguments of the bases are in no source
        ("renamed", ("wdith",), ""),
    ],
)
def test_settings_that_a_function_does_not_take(
    target: str, settings: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "its.py").write_text(
        "from os.path import join as renamed\n"
        "def f(x, width, *, depth=1): ...\ndef nothing(x): ...\ndef takes_all(x, **more): ...\nclass Class: ...\n"
        "class Own:\n    def __init__(self, x, width): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    targets.check_settings.cache_clear()
    problem = ""
    try:
        targets.check_settings("model", f"its.{target}", settings, arguments=("x",))
    except ValueError as error:
        problem = str(error)
    assert message in problem
    assert bool(message) == bool(problem)
