"""Mistakes before the start: a dataset that must be downloaded and has no connection."""

from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from trainers.data import download
from trainers.data.download import PLACES, check, check_weights

MNIST: dict[str, Any] = {"_target_": "trainers.data.sources.keras_dataset", "name": "mnist", "path": None}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty folder of Keras's downloads."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    download._connection_error.cache_clear()
    return tmp_path


def answering(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[str]:
    """Raise the error at each connection; return the requested addresses."""
    addresses: list[str] = []

    def urlopen(request: Any, timeout: float) -> None:
        addresses.append(request.full_url)
        raise error

    monkeypatch.setattr(download, "urlopen", urlopen)
    return addresses


@pytest.mark.parametrize("name", PLACES)
def test_without_a_network_a_local_copy_is_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    addresses = answering(monkeypatch, URLError("[Errno -2] Name or service not known"))
    for _ in range(3):
        with pytest.raises(ValueError, match=r"cannot be reached: \[Errno -2\] Name") as caught:
            check({**MNIST, "name": name})
    assert str(caught.value).splitlines()[1].startswith(f"Use a local copy: dataset={name} dataset.path=my.npz")
    assert addresses == [PLACES[name][1]]  # once for all trials
    (home / "datasets" / PLACES[name][0]).mkdir(parents=True)
    check({**MNIST, "name": name})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, HTTPError("", 403, "Forbidden", None, None)),  # type: ignore[arg-type]
        ({"path": "my.npz"}, URLError("away")),
        ({"name": "imdb"}, URLError("away")),
        ({"_target_": "trainers.data.sources.digits"}, URLError("away")),
    ],
)
def test_hosts_that_are_reached_or_not_needed(
    home: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], error: Exception
) -> None:
    addresses = answering(monkeypatch, error)
    check({**MNIST, **changes})
    assert bool(addresses) == (not changes)


@pytest.mark.parametrize("name", ["MobileNetV2", "resnet50v2"])
def test_missing_weights_are_reported(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    addresses = answering(monkeypatch, URLError("away"))
    model = {"_target_": "trainers.networks.application", "name": name, "weights": "imagenet"}
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"imagenet must be downloaded once, but storage\.googleapis\.com"
        ) as caught:
            check_weights(model)
    assert "\nUse a downloaded file: model.weights=" in str(caught.value)
    assert len(addresses) == 1
    for weights in (None, "random", "my.h5"):
        check_weights({**model, "weights": weights})


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mobilenetv2", "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5"),
        ("EfficientNetV2B0", "efficientnetv2-b0_notop.h5"),
        ("MobileNetV3Large", "weights_mobilenet_v3_large_224_1.0_float_no_top_v2.h5"),
        ("ResNet50V2", "resnet50v2_weights_tf_dim_ordering_tf_kernels_notop.h5"),
    ],
)
def test_weights_that_were_downloaded_need_no_network(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    answering(monkeypatch, URLError("away"))
    (home / "models").mkdir()
    (home / "models" / file).touch()
    check_weights({"_target_": "trainers.networks.application", "name": name, "weights": "imagenet"})
