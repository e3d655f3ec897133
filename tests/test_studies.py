"""The ready-made studies: all trials are valid, and all small studies complete."""

from pathlib import Path

import pytest

from tests.command_lines import ROOT, SWEEP, rows, run

STUDIES = {
    "line_fit": 7,
    "ten_optimizers": 10,
    "lr_batch_cnn": 25,
    "optimizer_hyperparameters": 522,
    "losses_and_batches": 20,
    "growing_batches": 5,
    "batch_and_gpus": 27,
    "fruit": 4,
    "caltech256": 9,
    "resnet_scaling": 6,
    "accuracy_and_time": 36,
}
IMAGES = ("fruit", "caltech256", "resnet_scaling")
MNIST = ROOT.parent / "shared" / "data" / "mnist.npz"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create three kinds of images of 32 x 32 pixels, split into train and test."""
    import numpy as np
    from PIL import Image

    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for split, count in (("train", 80), ("test", 8)):
        for kind in range(3):
            (folder / split / f"kind{kind}").mkdir(parents=True)
            for i in range(count):
                pixels = (random.integers(0, 90, (32, 32, 3)) + 80 * kind).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / f"kind{kind}" / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save the first 2,400 training and 200 test images of MNIST, or noise if MNIST is missing."""
    import numpy as np

    path = tmp_path_factory.mktemp("mnist") / "mnist.npz"
    if MNIST.exists():
        with np.load(MNIST) as file:
            arrays = {name: file[name][: 2400 if "train" in name else 200] for name in file.files}
    else:
        random = np.random.default_rng(0)
        arrays = {
            f"x_{s}": random.integers(0, 256, (n, 28, 28)).astype(np.uint8) for s, n in (("train", 2400), ("test", 200))
        }
        arrays |= {f"y_{s}": (np.arange(n) % 10).astype(np.uint8) for s, n in (("train", 2400), ("test", 200))}
    np.savez(path, **arrays)
    return path


def data_of(study: str, mnist: Path, images: Path) -> list[str]:
    if study == "line_fit":
        return []
    if study in IMAGES:
        return [f"dataset.path={images / 'train' if study == 'caltech256' else images}"]
    return [f"dataset.path={mnist}"]


pytestmark = pytest.mark.long


def test_all_studies_are_documented() -> None:
    assert {path.stem for path in (ROOT / "conf" / "study").glob("*.yaml")} == {*STUDIES, "best_lr_batch", "optimizers"}
    page = (ROOT / "docs" / "gallery.md").read_text()
    for name, count in STUDIES.items():
        card = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"\n{count} trials.\n" in card
        assert f"study={name}" in card


@pytest.mark.parametrize("study", STUDIES)
def test_small_study_completes(study: str, mnist: Path, images: Path, tmp_path: Path) -> None:
    name = ["tracking=none", f"hydra.sweeper.study_name={study}"]
    command = [SWEEP, "-m", f"study={study}", "study.scale=small", *data_of(study, mnist, images), *name]
    done = run(command, tmp_path, timeout_s=560)
    assert done.code == 0, done.said
    ended = rows(done.study())
    assert len(ended) > 1
    assert all(row.state == "completed" for row in ended)


@pytest.mark.parametrize("study", STUDIES)
def test_full_study_has_only_valid_trials(study: str, images: Path, tmp_path: Path) -> None:
    data = data_of(study, images, images) if study in IMAGES else []  # because MNIST's size needs no download
    # The test images are few. Without GPUs, one of three counts is valid.
    batch = [f"batch_{'per_gpu' if study == 'resnet_scaling' else 'size'}=16"] if study in IMAGES else []
    gpus = ["gpus=0"] if study in ("batch_and_gpus", "caltech256", "resnet_scaling") else []
    expected = STUDIES[study] // (3 if gpus else 1)
    command = [SWEEP, "-m", f"study={study}", *data, *batch, *gpus, "tracking=none", "hydra.sweeper.preview=true"]
    done = run(command, tmp_path)
    assert done.code == 0, done.said
    assert f"│ {expected} " in done.said
