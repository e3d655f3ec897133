"""Mistakes in a dataset: two lines before the start, with the file, the row and the value."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.trainers.config.composing import CONF, check
from trainers.data import headers, listing


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


def image(path: Path, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (4, 5)).save(path)


def folder(root: Path, *splits: str) -> Path:
    for split in splits or ("",):
        for name in ("cat", "dog"):
            for number in range(6):
                image(root / split / name / f"{number}.png")
    return root


def say(tmp_path: Path, *settings: str) -> str:
    with pytest.raises(ValueError) as error:
        check("dataset=image_folder", f"dataset.path={tmp_path}/i", "batch_size=2", *settings)
    assert len(str(error.value).splitlines()) <= 2
    return str(error.value).replace(f"{tmp_path}/i", "FOLDER")


CHANNELS = "must be 1 (grey), 3 (colour), 4 (colour and transparency) or"
FOLDERS: list[tuple[Callable[[Path], object], tuple[str, ...], str]] = [
    (lambda i: None, (), "dataset.path=FOLDER does not exist (working directory: "),
    (lambda i: i.write_text("x"), (), "dataset.path=FOLDER is a file (working directory: "),
    (lambda i: i.mkdir(), (), "FOLDER contains no folder. Add a folder of images for each class"),
    (lambda i: image(i / "cat" / "1.png"), (), "FOLDER contains only one class ('cat')"),
    (lambda i: image(folder(i) / "1.png"), (), "FOLDER/1.png is outside of the folders of the classes"),
    (lambda i: (folder(i) / "empty").mkdir(), (), "FOLDER/empty contains no image; a class needs at least one"),
    (lambda i: (folder(i) / "cat" / "a.webp").touch(), (), "FOLDER/cat/a.webp cannot be read. Convert it to JPEG"),
    (lambda i: image(folder(i) / "cat" / "a.png", "L"), (), "FOLDER/cat/a.png has 1 channel, but 12 of 13 images"),
    (lambda i: image(folder(i) / "dog" / "a.png", "RGBA"), (), "FOLDER/dog/a.png has 4 channels, but 12 of 13"),
    (
        lambda i: (folder(i) / "dog" / "a.jpg").write_text("no image"),
        (),
        "FOLDER/dog/a.jpg cannot be read as an image (its header is damaged, or it is of another format)",
    ),
    (
        lambda i: [file.write_text("no image") for file in (folder(i) / "dog").iterdir()],
        ("dataset.skip_broken=true",),
        "FOLDER: no training image of class 'dog' can be read, so skip_broken=true would skip all",
    ),
    (lambda i: (folder(i, "train") / "test").mkdir(), (), "FOLDER/test is empty"),
    (
        lambda i: image(folder(i, "train", "test") / "test" / "cow" / "1.png"),
        (),
        "FOLDER/test/cow: there is no class 'cow' in FOLDER/train",
    ),
    (
        lambda i: image(folder(i, "train", "test") / "more" / "1.png"),
        (),
        "FOLDER: only validation and test are allowed beside 'train'. Move the folder 'more'",
    ),
    (folder, ("dataset.validation=test",), "dataset.validation=test, but FOLDER has no test set"),
    (folder, ("dataset.validation_split=0.99",), "dataset.validation_split=0.99 leaves no training example of 12"),
    (folder, ("batch_size=11",), "batch_size=11 is larger than the training set (10 examples"),
    (folder, ("dataset.subset=13",), "dataset.subset=13 is more than the 12 training examples of FOLDER"),
    (folder, ("dataset.subset=1",), "dataset.subset=1: must be a fraction, > 0 and < 1, or a whole number"),
    (folder, ("dataset.size=0",), "dataset.size=0: must be pixels, such as 128, or [height,width]"),
    (folder, ("dataset.size=[1,2,3]",), "dataset.size=[1, 2, 3]: must be pixels"),
    *(
        (folder, (f"dataset.channels={shown.lower()}",), f"dataset.channels={shown}: {CHANNELS}")
        for shown in ("5", "2", "True")
    ),
    (folder, ("dataset.cache=5",), "dataset.cache=5: must be a folder, such as dataset.cache=/scratch/me, or null"),
    (
        folder,
        ("dataset.size=10000", "dataset.cache_gb=3"),
        "12 images of FOLDER at 10000 x 10000 take 3.6 GB in the cache, more than dataset.cache_gb=3\n"
        "Use dataset.cache_gb=3.9, or a smaller dataset.size",
    ),
    (folder, ("dataset.validation=maybe",), "dataset.validation=maybe: must be split, test or none"),
    (folder, ("dataset.augment=storng",), "dataset.augment=storng: must be none, light, strong"),
    (
        folder,
        ("dataset.augment.preset=[1]",),
        "dataset.augment.preset=[1]: must be none, light, strong, or ranges such as dataset.augment.rotation=5",
    ),
    (
        folder,
        ("dataset.validation=none",),
        "dataset.validation=none leaves no validation data, so that val_accuracy is missing.\n"
        "Type loss.objective=loss loss.direction=minimize",
    ),
]


@pytest.mark.parametrize(("make", "settings", "message"), FOLDERS)
def test_errors_of_an_image_folder(
    make: Callable[[Path], object], settings: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    make(tmp_path / "i")
    assert say(tmp_path, *settings).startswith(message)


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("dataset.subset=0.5",),
        ("dataset.augment=strong", "model=cnn"),
        ("dataset.augment.rotation=10",),
        ("dataset.validation=none", "loss.objective=loss", "loss.direction=minimize", "batch_size=12"),
        ("dataset.labels=one_hot", "loss=softmax"),
    ],
)
def test_valid_data_are_accepted(settings: tuple[str, ...], tmp_path: Path) -> None:
    check("dataset=image_folder", f"dataset.path={folder(tmp_path / 'i')}", "batch_size=2", *settings)


def test_hidden_files_and_files_without_images_are_skipped(tmp_path: Path) -> None:
    root = folder(tmp_path / "i")
    for name in ("cat/notes.txt", "cat/.DS_Store", "Thumbs.db", "cat/.hidden.png"):
        (root / name).touch()
    (root / ".git").mkdir()
    image(root / "dog" / "deeper" / "1.JPG")
    images = listing.list_images(root)
    assert (len(images.files), images.classes) == (13, ("cat", "dog"))


def test_the_folders_of_a_split_may_be_capitalized(tmp_path: Path) -> None:
    images = listing.list_images(folder(tmp_path / "i", "Training", "Test"))
    assert images.splits == {"train": 12, "validation": 0, "test": 12}
    assert (images.classes, images.labels) == (("cat", "dog"), ((0,) * 6 + (1,) * 6) * 2)
    check("dataset=image_folder", f"dataset.path={tmp_path}/i", "dataset.validation=test", "batch_size=2")


def test_a_class_that_is_added_to_a_split_is_seen(tmp_path: Path) -> None:
    root = folder(tmp_path / "i", "train", "test")
    assert listing.list_images_once(root).classes == ("cat", "dog")
    image(root / "train" / "cow" / "1.png")
    assert listing.list_images_once(root).classes == ("cat", "cow", "dog")


def test_headers_are_read_once_for_all_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = folder(tmp_path / "i")
    settings = ("dataset=image_folder", f"dataset.path={root}", "batch_size=2")
    check(*settings)
    read: list[str] = []
    check_header = headers.check

    def check_once(path: str, decode: bool) -> headers.Header:
        read.append(path)
        return check_header(path, decode)

    monkeypatch.setattr(headers, "check", check_once)
    check(*settings, "lr=0.1")
    assert read == []
    image(root / "cat" / "more.png")
    check(*settings)
    assert len(read) == 13


LABELS = [
    (np.array([0, 1, -3, 1]), "y_train[2] is -3; labels must be whole numbers from 0 on"),
    (np.array(["a", "b", "a", "b"]), "y_train[0] is the text 'a'; labels must be whole numbers from 0 on"),
    (np.array([0, 1, 3, 1]), "y_train has no example of class 2, but of 3 classes up to 3"),
    (np.array([1, 2, 3, 4]), "y_train has no example of class 0, but of 4 classes up to 4"),
    (np.array([1, 1, 1, 1]), "y_train contains only class 1. Add examples of another class"),
    (
        np.array([0.0, 1.0, 0.5, 1.0]),
        "y_train[2] is 0.5; a label is a whole number >= 0 (1 of 4 labels are no whole number)",
    ),
]


@pytest.mark.parametrize(("y", "message"), LABELS)
def test_labels_that_are_no_classes(y: np.ndarray, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=np.zeros((4, 3)), y_train=y, x_test=np.zeros((4, 3)), y_test=y)
    with pytest.raises(ValueError) as error:
        check("dataset=npz", f"dataset.path={path}", "batch_size=2")
    assert str(error.value).startswith(f"dataset.path={path}: {message}")
    assert len(str(error.value).splitlines()) <= 2
    if y.dtype.kind != "U":
        check("dataset=npz", f"dataset.path={path}", "batch_size=2", "dataset.task=regression", "loss=mse")


def test_a_class_that_only_the_test_set_has(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    y = np.array([0, 1, 0, 1])
    np.savez(path, x_train=np.zeros((4, 3)), y_train=y, x_test=np.zeros((4, 3)), y_test=y * 2)
    with pytest.raises(ValueError, match=r"y_test\[1\] is 2; y_train contains only 0 to 1"):
        check("dataset=npz", f"dataset.path={path}", "batch_size=2")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("dataset=points dataset.x=[1,2] dataset.y=[1]", "dataset.x has 2 values, but dataset.y has 1"),
        ("dataset=points dataset.x=[1,a] dataset.y=[1,2]", "dataset.x[1] is 'a'; must be a finite number"),
        ("dataset=points dataset.x=[1,2] dataset.y=[1,nan]", "dataset.y[1] is nan; must be a finite number"),
        ("dataset=points dataset.x=[1,-inf] dataset.y=[1,2]", "dataset.x[1] is -inf; must be a finite number"),
        ("dataset=points dataset.x=3", "dataset.x=3: must be a list of numbers, as in 'dataset.x=[1,2,5]'"),
        ("dataset=points dataset.x=[]", "dataset.x=[]: must be a list of numbers"),
        (
            "dataset=points dataset.x=[[1,2],[3]] dataset.y=[1,2]",
            "dataset.x[1] is [3]; its length differs from dataset.x[0]",
        ),
        ("dataset=points dataset.validation=test", "dataset.validation=test, but points has no test set"),
        ("dataset=points model=cnn", "model=cnn needs images, but an example of points has shape (1,); try model=mlp"),
        ("dataset=line model=cnn", "model=cnn needs images, but an example of line has shape (1,); try model=mlp"),
        ("dataset=line dataset.augment=light", "dataset.augment needs images, but an example of line has shape (1,)"),
        (
            "dataset=mnist dataset.size=700",
            "70000 images of mnist at 700 x 700 take 34.3 GB in the cache, more than dataset.cache_gb=20\n"
            "Use dataset.cache_gb=36.1, or a smaller dataset.size",
        ),
        ("dataset.size=[1000,9000]", "1797 images of digits at 1000 x 9000 take 64.7 GB in the cache"),
        ("dataset=line dataset.size=8", "dataset.size=8 needs images, but an example of line has shape (1,)"),
        ("dataset=line dataset.labels=one_hot", "dataset.labels=one_hot needs classes, but this is a regression"),
        (
            "dataset.labels=one_hot",
            "dataset.labels=one_hot, but keras.losses.SparseCategoricalCrossentropy takes classes; try loss=softmax",
        ),
    ],
)
def test_errors_of_typed_and_generated_data(settings: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        check(*settings.split())
    assert str(error.value).startswith(message)


def test_image_file_has_equal_shape_in_both_sets(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    y = np.array([0, 1, 0, 1])
    np.savez(path, x_train=np.zeros((4, 8, 8, 3)), y_train=y, x_test=np.zeros((4, 8, 8, 1)), y_test=y)
    with pytest.raises(ValueError, match=r"x_train has shape \(8, 8, 3\), but of x_test \(8, 8, 1\)"):
        check("dataset=cifar10", f"dataset.path={path}", "batch_size=2")
    np.savez(path, x_train=np.zeros((4, 8)), y_train=y, x_test=np.zeros((4, 8)), y_test=y)
    with pytest.raises(ValueError, match=r"model=cnn needs images.*mine.npz has shape \(8,\); try model=mlp"):
        check("dataset=npz", f"dataset.path={path}", "batch_size=2", "model=cnn")


def test_a_local_file_must_fit_into_the_cache_at_its_new_size(tmp_path: Path) -> None:
    path, y = tmp_path / "mine.npz", np.array([0, 1, 0, 1])
    for dtype, gb in ((np.uint8, "0.8"), (np.int64, "3.2")):
        x = np.zeros((4, 8, 8), dtype)
        np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
        with pytest.raises(ValueError, match=rf"8 images of {path} at 10000 x 10000 take {gb} GB in the cache"):
            check(
                *("dataset=npz", f"dataset.path={path}", "batch_size=2", "dataset.size=10000", "dataset.cache_gb=0.7")
            )


def test_checking_a_folder_imports_no_tensorflow(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.trainers.config.composing import check; "
        f"check('dataset=image_folder', 'dataset.path={folder(tmp_path / 'i')}', 'batch_size=2'); "
        "sys.exit(str([m for m in ('tensorflow', 'keras', 'trainers.trainer') if m in sys.modules] or ''))"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=CONF.parent, capture_output=True, text=True, check=False)
    assert child.stderr.strip() == ""
