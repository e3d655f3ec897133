"""Folders of images: decoded once, shared, served from memory or from the file to the same numbers."""

import errno
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from tests.command_lines import some
from tests.trainers.recorder import Recorder, compose, without_times
from trainers.data import cache, images, sources
from trainers.data import dataset as data
from trainers.data.listing import list_images
from trainers.data.on_disk import OnDisk
from trainers.trainer import train

COLOURS = {"blue": (20, 30, 220), "green": (10, 200, 40), "red": (230, 10, 20)}
SMALL = ("model.hidden=[8]", "trainer.checkpoint_interval_s=0", "batch_size=8")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    return tmp_path / "keras" / "sweepyard"


def write(folder: Path, each: int = 10, splits: Sequence[str] = ("",)) -> Path:
    """Write a folder of noisy images with one colour for each class, of several sizes and formats."""
    random = np.random.default_rng(0)
    for split in splits:
        for name, colour in COLOURS.items():
            here = folder / split / name
            here.mkdir(parents=True)
            for number in range(each):
                size = (8 + number % 3, 9 + number % 2, 3)
                pixels = (np.array(colour) + random.normal(0, 20, size)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(here / f"{number:03}.{('png', 'jpg', 'bmp')[number % 3]}")
    return folder


def load(*settings: str, seed: int = 0) -> data.Data:
    cfg = compose("dataset=image_folder", "dataset.size=8", "batch_size=4", *settings)
    return data.load(cfg.dataset, "classification", seed)


def pixels_of(loaded: data.Data) -> np.ndarray:
    assert isinstance(loaded.x, OnDisk)
    return loaded.x.all()


def test_images_equal_those_read_by_keras(tmp_path: Path) -> None:
    import keras

    folder = write(tmp_path / "images")
    loaded = load(f"dataset.path={folder}")
    assert loaded.classes == ("blue", "green", "red")
    assert (loaded.outputs, loaded.x.shape, loaded.x.dtype) == (3, (30, 8, 8, 3), np.uint8)
    assert (len(loaded.training_rows), len(loaded.validation_rows), len(loaded.test_rows)) == (25, 5, 0)
    assert set(loaded.subsets) == {"training", "validation"}
    theirs = keras.utils.image_dataset_from_directory(
        str(folder), image_size=(8, 8), batch_size=None, shuffle=False, verbose=False
    )
    pixels = pixels_of(loaded)
    for row, (image, label) in enumerate(theirs.as_numpy_iterator()):
        np.testing.assert_allclose(pixels[row], image, atol=0.51)
        assert loaded.y[row] == label


@pytest.mark.parametrize(
    ("splits", "rows"),
    [
        (("train", "test"), {"training": 25, "validation": 5, "test": 30}),
        (("train", "validation"), {"training": 30, "validation": 30}),
        (("train", "val", "test"), {"training": 30, "validation": 30, "test": 30}),
    ],
)
def test_a_folders_own_split(splits: Sequence[str], rows: dict[str, int], tmp_path: Path) -> None:
    folder = write(tmp_path / "images", splits=splits)
    loaded = load(f"dataset.path={folder}")
    assert {name: len(subset.rows) for name, subset in loaded.subsets.items()} == rows
    for name, subset in loaded.subsets.items():
        if name != "test":
            assert not set(subset.rows) & set(loaded.test_rows)


def test_the_cache_is_made_once_and_anew_when_a_file_changes(tmp_path: Path, own_cache: Path) -> None:
    folder = write(tmp_path / "images", each=2)
    load(f"dataset.path={folder}")
    made = {path: (path / "images.npy").stat().st_mtime_ns for path in own_cache.glob("*8x8*") if path.is_dir()}
    assert len(made) == 1
    load(f"dataset.path={folder}")
    assert all((path / "images.npy").stat().st_mtime_ns == time for path, time in made.items())
    Image.new("RGB", (5, 5), "white").save(folder / "red" / "000.png")
    assert (pixels_of(load(f"dataset.path={folder}"))[4] == 255).all()
    load(f"dataset.path={folder}", "dataset.size=[4,6]")
    assert len([path for path in own_cache.iterdir() if path.is_dir()]) == 3


@pytest.mark.parametrize("name", ["images.npy", "info.json"])
def test_a_cut_cache_file_is_made_anew(name: str, tmp_path: Path, own_cache: Path) -> None:
    folder = write(tmp_path / "images", each=2)
    whole = pixels_of(load(f"dataset.path={folder}"))
    (file,) = own_cache.glob(f"*/{name}")
    os.truncate(file, file.stat().st_size - 10)
    np.testing.assert_array_equal(pixels_of(load(f"dataset.path={folder}")), whole)


def test_custom_cache_folder(tmp_path: Path, own_cache: Path) -> None:
    load(f"dataset.path={write(tmp_path / 'images', each=2)}", f"dataset.cache={tmp_path}/mine")
    assert list((tmp_path / "mine").glob("*/images.npy"))
    assert not own_cache.exists()


def test_staged_copy_is_read_and_shares_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "data")
    listing = images.folder(str(folder)).listing
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.setenv("SWEEPYARD_STAGED", json.dumps({str(folder): str(tmp_path / "copy")}))
    copy = images.folder(str(folder)).listing
    assert copy.path == str(tmp_path / "copy")
    assert (copy.digest, copy.files) == (listing.digest, listing.files)
    np.savez(tmp_path / "copy" / "x.npz", **dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), np.arange(3)))
    assert sources.npz(str(folder / "x.npz"))[0][0].tolist() == [0, 1, 2]


@some("settings", [(), ("dataset.augment=strong",), ("dataset.batches=with",)], 3)
def test_from_the_file_and_from_memory_train_to_the_same_bits(settings: tuple[str, ...], tmp_path: Path) -> None:
    folder = write(tmp_path / "images", splits=("train", "test"))
    ends = {}
    for gb in (2, 0):
        cfg = compose("dataset=image_folder", "dataset.size=8", f"dataset.path={folder}", *SMALL, *settings)
        cfg.dataset.resident_gb = gb
        assert data.load(cfg.dataset, "classification", 0).resident == (gb == 2)
        recorder = Recorder(tmp_path / str(gb))
        result = train(cfg, recorder)
        ends[gb] = without_times(result), [without_times(metrics) for metrics in recorder.reported]
    assert ends[0] == ends[2]
    assert "test_accuracy" in ends[0][0]


@pytest.mark.long
@pytest.mark.parametrize("gb", [0, 2])
def test_augmented_training_resumes_to_the_same_bits(gb: int, tmp_path: Path) -> None:
    folder = write(tmp_path / "images")
    settings = (*SMALL, "epochs=4", "dataset.augment=strong", f"dataset.resident_gb={gb}", "model.dropout=0.2")
    cfg = compose("dataset=image_folder", "dataset.size=8", f"dataset.path={folder}", *settings)
    straight = Recorder(tmp_path / "straight")
    expected = train(cfg, straight)
    train(cfg, Recorder(tmp_path / "stopped", stop_after=2))
    resumed = Recorder(tmp_path / "stopped")
    assert without_times(train(cfg, resumed)) == without_times(expected)
    for name, array in straight.checkpoint().items():
        if name != "progress":
            np.testing.assert_array_equal(resumed.checkpoint()[name], array)


def test_augmentation_touches_the_training_set_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "images")
    metrics = []
    for augment in ("none", "strong"):
        cfg = compose(
            *("dataset=image_folder", "dataset.size=8", f"dataset.path={folder}", "lr=1e-12", "epochs=1"),
            *(*SMALL, f"dataset.augment={augment}"),
        )
        recorder = Recorder(tmp_path / augment)
        train(cfg, recorder)
        metrics.append(recorder.reported[0])
    assert metrics[0]["val_loss"] == pytest.approx(metrics[1]["val_loss"], rel=1e-6)
    assert metrics[0]["loss"] != pytest.approx(metrics[1]["loss"], rel=1e-6)


def break_one(folder: Path) -> Path:
    """Write zeros into the middle of an image; its header and its end stay valid."""
    path = folder / "green" / "000.png"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 20] = bytes(20)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("small", [True, False], ids=["before", "in the first trial"])
def test_a_broken_image_is_named(small: bool, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "images")
    path = break_one(folder)
    monkeypatch.setattr("trainers.data.channels.SMALL_BYTES", 10**6 * small)
    with pytest.raises(ValueError) as error:
        load(f"dataset.path={folder}")
    assert str(error.value).startswith(f"{path} cannot be read as an image (")
    assert str(error.value).count("\n") == 1
    assert "dataset.skip_broken=true" in str(error.value)
    assert not list(own_cache.glob("*/images.npy"))


def test_a_broken_image_costs_one_pass(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "images")
    path = break_one(folder)
    monkeypatch.setattr("trainers.data.channels.SMALL_BYTES", 0)
    settings = ("dataset=image_folder", "dataset.size=8", "batch_size=4", f"dataset.path={folder}")
    cfg = compose(*settings)
    passes: list[str] = []
    begun = cache.Progress.__init__
    monkeypatch.setattr(cache.Progress, "__init__", lambda self, *rest: passes.append("one") or begun(self, *rest))
    messages = set()
    for work in (lambda: data.load(cfg.dataset, "classification", 0),) * 2 + (lambda: compose(*settings),):
        with pytest.raises(ValueError) as error:
            work()
        messages.add(str(error.value))
    assert len(messages) == len(passes) == 1
    assert len(messages.pop().splitlines()) == 2
    Image.new("RGB", (5, 5)).save(path)
    assert load(f"dataset.path={folder}").skipped == 0


def test_an_image_that_cannot_be_read_today_may_be_tomorrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "images", each=2)
    path = break_one(folder)
    monkeypatch.setattr("trainers.data.channels.SMALL_BYTES", 0)

    def unreadable(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr("PIL.Image.Image.convert", unreadable)
        with pytest.raises(ValueError, match="Input/output error"):
            load(f"dataset.path={folder}")
    with pytest.raises(ValueError, match=rf"{path.name} cannot be read as an image \((?!Input)"):
        load(f"dataset.path={folder}")


def test_a_broken_image_is_left_out_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "images")
    path = break_one(folder)
    for _ in range(2):
        loaded = load(f"dataset.path={folder}", "dataset.skip_broken=true")
        assert loaded.skipped == 1
        assert sorted([*loaded.training_rows, *loaded.validation_rows]) == [r for r in range(30) if r != 10]
        assert f"skipped 1 of 30 images, first {path}" in capsys.readouterr().out


def png_with_text(path: Path, characters: int) -> None:
    text = PngInfo()
    text.add_text("XML:com.adobe.xmp", "x" * characters, zip=True)
    Image.new("RGB", (9, 9)).save(path, pnginfo=text)


def damage(image_format: str, cut: slice) -> Callable[[Path], None]:
    def write_damaged(path: Path) -> None:
        Image.effect_noise((40, 40), 90).convert("RGB").save(path, image_format)
        path.write_bytes(path.read_bytes()[cut])

    return write_damaged


def write_bomb(path: Path) -> None:
    Image.new("1", (14_000, 14_000)).save(path)


def write_gif_without_size(path: Path) -> None:
    path.write_bytes(b"GIF89a" + bytes(7))


def write_bmp_without_planes(path: Path) -> None:
    path.write_bytes(b"BM" + bytes(12) + (40).to_bytes(4, "little") + b"\xff" * 36)


BROKEN: dict[str, Callable[[Path], object]] = {
    "bomb.png": write_bomb,
    "text.png": lambda path: png_with_text(path, 70 * 2**20),
    "cut.png": damage("PNG", slice(0, -60)),
    "cut.jpg": damage("JPEG", slice(0, -60)),
    "cut.gif": damage("GIF", slice(0, -60)),
    "cut.bmp": damage("BMP", slice(0, -60)),
    "header.png": damage("PNG", slice(0, 20)),
    "header.jpg": damage("JPEG", slice(0, 20)),
    "header.gif": write_gif_without_size,
    "header.bmp": write_bmp_without_planes,
    "short.bmp": damage("BMP", slice(0, 20)),
    "empty.png": Path.touch,
    "text.jpg": lambda path: path.write_text("no image"),
    "link.png": lambda path: path.symlink_to("/nonexistent/x.png"),
    "loop.png": lambda path: path.symlink_to(path),
    "pipe.png": os.mkfifo,
}


@some("name", BROKEN, 5)
def test_any_file_that_is_no_image_is_named_or_left_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.data.channels.SMALL_BYTES", 0)
    folder = write(tmp_path / "images", each=3)
    path = folder / "red" / name
    BROKEN[name](path)
    with pytest.raises(ValueError) as refusal:
        compose("dataset=image_folder", "dataset.size=8", "batch_size=4", f"dataset.path={folder}")
    problem, remedy = str(refusal.value).splitlines()
    assert problem.startswith(f"{path} cannot be read as an image (")
    assert "dataset.skip_broken=true" in remedy
    loaded = load(f"dataset.path={folder}", "dataset.skip_broken=true")
    assert (loaded.skipped, len(loaded.training_rows) + len(loaded.validation_rows)) == (1, 9)


def test_sound_images_of_all_kinds_are_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "images", each=3)
    red = folder / "red"
    png_with_text(red / "long.png", 3_000_000)
    (red / "folder.png").mkdir()
    (red / "000.png").rename(red / os.fsdecode(b"caf\xe9.png"))
    for mode in ("1", "L", "LA", "P", "RGBA", "I;16"):
        Image.new(mode, (9, 9)).save(red / f"{mode}.png")
    Image.new("CMYK", (9, 9)).save(red / "cmyk.jpg")
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "blue")]
    for name in ("animated.png", "animated.gif"):
        frames[0].save(red / name, save_all=True, append_images=frames[1:])
    loaded = load(f"dataset.path={folder}", "dataset.channels=3")
    assert (loaded.skipped, len(loaded.y)) == (0, 9 + 10)


def test_what_operating_systems_add_is_no_class_and_no_image(tmp_path: Path) -> None:
    folder = write(tmp_path / "images", each=1, splits=("train", "test"))
    expected = list_images(folder)
    picture = folder / "train" / "red" / "000.png"
    for place in (folder, folder / "train", folder / "train" / "blue"):
        for name in ("__MACOSX", ".ipynb_checkpoints", "@eaDir", ".Trash-1000"):
            (place / name).mkdir()
            shutil.copy(picture, place / name / "copy.png")
        for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._000.png"):
            (place / name).write_bytes(b"no image")
    listing = list_images(folder)
    assert (listing.classes, listing.files) == (expected.classes, expected.files)


def test_link_to_a_folder_that_contains_the_link(tmp_path: Path) -> None:
    folder = write(tmp_path / "images", each=3)
    (folder / "red" / "again").symlink_to(folder)
    with pytest.raises(ValueError, match=r"red/again is a link to a folder that contains it\.\nRemove this link"):
        load(f"dataset.path={folder}")


@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_images_are_turned_upright(kind: str, tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:2] = 255
    pixels[:, :4, 0] = 200
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            path = tmp_path / "images" / name / f"{orientation}.{kind}"
            Image.fromarray(pixels).save(path, exif=exif, quality=100, subsampling=0)
    loaded = pixels_of(load(f"dataset.path={tmp_path}/images"))
    for row in range(8):
        with Image.open(tmp_path / "images" / "a" / f"{row + 1}.{kind}") as image:
            expected = np.asarray(ImageOps.exif_transpose(image))
        assert np.abs(loaded[row].astype(int) - expected).mean() < 3


@some(("peak", "white"), [(200, 255), (900, 1023), (4_095, 4_095), (16_000, 16_383), (65_535, 65_535)], 4)
@pytest.mark.parametrize("settings", [(), ("dataset.channels=3",)])
def test_images_of_16_bits_have_one_scale(
    peak: int, white: int, settings: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, values in (("a", (0, peak // 2)), ("b", (peak // 4, peak))):
        for split in ("train", "test"):
            (tmp_path / "images" / split / name).mkdir(parents=True)
            for value in values:
                pixels = np.full((8, 8), value, np.uint16)
                Image.fromarray(pixels).save(tmp_path / "images" / split / name / f"{value:05}.png")
    loaded = load(f"dataset.path={tmp_path}/images", "batch_size=2", *settings)
    values = pixels_of(loaded)[:4, 0, 0, 0]
    np.testing.assert_allclose(values, np.array([0, peak // 2, peak // 4, peak]) * 255 / white, atol=0.51)
    assert f"at most {peak:,}: {white:,} is white" in capsys.readouterr().out


def test_class_is_one_class_however_its_name_is_composed(tmp_path: Path) -> None:
    folder = write(tmp_path / "images", each=3, splits=("train", "test"))
    (folder / "train" / "red").rename(folder / "train" / "caf\u00e9")
    (folder / "test" / "red").rename(folder / "test" / "cafe\u0301")
    loaded = load(f"dataset.path={folder}")
    assert loaded.classes == ("blue", "caf\u00e9", "green")
    assert [len(loaded.y), *np.bincount(loaded.y)] == [18, 6, 6, 6]
    (folder / "test" / "blue").rename(folder / "test" / "caf\u00e9")
    with pytest.raises(ValueError, match=r"(?s)twice: 'cafe\\u0301' and 'caf\\xe9'\.\nMove"):
        load(f"dataset.path={folder}")


def test_class_without_readable_images_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path / "images", splits=("train", "test"))
    for path in (folder / "train" / "green").iterdir():
        path.write_bytes(path.read_bytes()[:-40])
    for _ in range(2):  # the second time without a look at the files
        with pytest.raises(ValueError, match="no training image of class 'green' can be read"):
            load(f"dataset.path={folder}", "dataset.skip_broken=true")


def test_pillow_reads_images_that_tensorflow_cannot(tmp_path: Path) -> None:
    folder = write(tmp_path / "images", each=3)
    Image.new("P", (6, 6), 0).save(folder / "red" / "000.bmp")
    Image.new("P", (6, 6), 0).save(folder / "red" / "000.gif")
    assert load(f"dataset.path={folder}", "dataset.channels=3").skipped == 0


@pytest.mark.parametrize(("channels", "mode"), [(None, "L"), (1, "RGB"), (3, "L"), (4, "RGBA"), (None, "RGBA")])
def test_channels(channels: int | None, mode: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(4):
            Image.new(mode, (5, 5)).save(tmp_path / "images" / name / f"{number}.png")
    settings = [] if channels is None else [f"dataset.channels={channels}"]
    depth = channels or len(mode)
    assert load(f"dataset.path={tmp_path}/images", *settings).x.shape == (8, 8, 8, depth)


def test_a_full_cache_loses_the_least_recently_used(tmp_path: Path) -> None:
    def plan(value: int) -> cache.Plan:
        def fill(write: cache.Write) -> dict[str, int]:
            write(0, np.full((10, 100), value, np.uint8))
            return {"value": value}

        return cache.Plan((10, 100), np.dtype(np.uint8), fill)

    def entry(name: str, value: int) -> OnDisk:
        return cache.open_entry(tmp_path, name, 3500 / cache.GB, lambda: plan(value))[0]

    for number, name in enumerate("abc"):
        in_use = entry(name, number)
        if name != "b":
            os.close(in_use.file)
        os.utime(tmp_path / name, (number, number))
    entry_a = entry("a", 9)  # the unchanged entry is reused
    assert entry_a.take(np.array([3]))[0, 0] == 0
    os.close(entry_a.file)
    os.close(entry("d", 3).file)
    # b was used before c, but a process still reads b.
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"a", "b", "d"}
    with pytest.raises(ValueError, match=r"more than dataset.cache_gb=.*\nUse dataset.cache_gb="):
        cache.open_entry(tmp_path, "e", 1e-9, lambda: plan(0))


def test_cache_entry_is_not_removed_while_written(tmp_path: Path) -> None:
    def small(write: cache.Write) -> dict[str, int]:
        write(0, np.ones((10, 100), np.uint8))
        return {}

    def large(write: cache.Write) -> dict[str, int]:
        with pytest.raises(ValueError, match=r"more than dataset\.cache_gb"):
            cache.open_entry(
                tmp_path, "small", 2500 / cache.GB, lambda: cache.Plan((10, 100), np.dtype(np.uint8), small)
            )
        write(0, np.full((20, 100), 7, np.uint8))
        return {}

    x, _ = cache.open_entry(
        tmp_path, "large", 2500 / cache.GB, lambda: cache.Plan((20, 100), np.dtype(np.uint8), large)
    )
    assert (x.all() == 7).all()


def decode(folder: str, cache_folder: str, results: "multiprocessing.Queue[tuple[float, int]]") -> None:
    cfg = compose(*("dataset=image_folder", f"dataset.path={folder}", "dataset.size=64", "batch_size=4"))
    cfg.dataset.cache = cache_folder
    loaded = data.load(cfg.dataset, "classification", 0)
    made = next(Path(cache_folder).glob("*/images.npy")).stat().st_mtime
    results.put((made, int(pixels_of(loaded).sum())))


@pytest.mark.long
def test_processes_side_by_side_decode_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "images", each=40)
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload([__name__])  # because one import of TensorFlow serves all processes
    results: multiprocessing.Queue[tuple[float, int]] = fresh.Queue()
    arguments = (str(folder), str(tmp_path / "kept"), results)
    processes = [fresh.Process(target=decode, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    outcomes = {results.get(timeout=120) for _ in processes}
    for process in processes:
        process.join(timeout=30)
    assert len(outcomes) == 1


def test_killed_maker_leaves_no_readable_cache(tmp_path: Path, own_cache: Path) -> None:
    folder = write(tmp_path / "images", each=2)
    pid = os.fork()
    if pid == 0:
        cache.Progress.__init__ = lambda *_: os.kill(os.getpid(), 9)  # type: ignore[method-assign,misc,assignment]
        load(f"dataset.path={folder}")
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == 9
    assert list(own_cache.glob(".*.making"))
    assert pixels_of(load(f"dataset.path={folder}")).any()
    assert not list(own_cache.glob(".*.making"))


def test_arrays_are_resized_like_images(tmp_path: Path, own_cache: Path) -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (20, 6, 6, 3), np.uint8)
    y = np.arange(20) % 4
    np.savez(tmp_path / "mine.npz", x_train=x[:16], y_train=y[:16], x_test=x[16:], y_test=y[16:])
    settings = ("dataset=cifar10", f"dataset.path={tmp_path}/mine.npz", "dataset.size=[9,12]", "batch_size=4")
    loaded = data.load(compose(*settings).dataset, "classification", 0)
    assert loaded.x.shape == (20, 9, 12, 3)
    assert list(loaded.test_rows) == [16, 17, 18, 19]
    assert sorted([*loaded.training_rows, *loaded.validation_rows]) == list(range(16))
    expected = tf.image.resize(x, (9, 12)).numpy()
    np.testing.assert_allclose(pixels_of(loaded), expected, atol=0.51)
    np.testing.assert_array_equal(loaded.y, y)
    assert len(list(own_cache.glob("*-9x12/images.npy"))) == 1


def test_a_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((10, 50), np.uint8))
    x = OnDisk(tmp_path / "x.npy")
    os.truncate(tmp_path / "x.npy", 300)
    with pytest.raises(OSError, match="row 9 of 10 is cut off"):
        x.take(np.array([1, 9]))
