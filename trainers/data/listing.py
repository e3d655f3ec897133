"""What a folder of images holds: its classes, its own split, its files; and what their headers say."""

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.lib import format as npy

IMAGES = "images.npy"
"""In an entry of the cache."""
REFUSED = ".refused"
"""Beside where an entry would be: why it cannot be made."""
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
READ = "JPEG, PNG, BMP or GIF"
NOT_READ = (".webp", ".tif", ".tiff", ".heic", ".avif", ".jp2", ".psd", ".svg")
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Folders that are parts of a split, however they are capitalized."""
CHANNELS = {"1": 1, "L": 1, "I": 1, "I;16": 1, "F": 1, "LA": 2, "La": 2, "PA": 4, "RGBA": 4, "RGBa": 4}
"""Of an image, by the mode that Pillow gives it; 3 for all others."""


class Undecodable(ValueError):
    """These files can never make an entry of the cache: whoever asks for it is told the same."""


@dataclass(frozen=True, eq=False)
class Listing:
    """The images of a folder, ordered: train, validation, test; within each by class; within each by name."""

    path: str
    classes: tuple[str, ...]  # sorted by name
    files: tuple[str, ...]  # below path
    labels: tuple[int, ...]  # a file's place in `classes`
    splits: Mapping[str, int]  # images in train, validation, test
    digest: str  # of names, sizes and times
    times: Mapping[str, int]  # of each folder (ns)

    def name(self, row: int) -> str:
        """A file, as the user finds it."""
        return str(Path(self.path) / self.files[row])


_known: dict[str, Listing] = {}


def _own_split(root: Path, names: Sequence[str]) -> dict[str, str]:
    """The folder of each part of the split, below root; "" for train where root holds the classes themselves."""
    own = {SPLITS[name.lower()]: name for name in names if name.lower() in SPLITS}
    if "train" not in own:
        if own and len(own) == len(names):
            raise ValueError(f"{root} holds {', '.join(names)}, but no folder train; or name a folder of classes")
        return {"train": ""}
    if len(own) < len(names):
        other = next(name for name in names if name not in own.values())
        raise ValueError(f"{root}: the folder {other!r} lies beside {own['train']!r}; only validation and test may")
    return own


def listing(path: object) -> Listing:
    """List a folder. Raises ValueError, for the user, unless it holds two classes or more, each with an image."""
    if path is None:
        raise ValueError("dataset.path is null: name a folder that holds a folder of images for each class")
    root = Path(str(path)).expanduser()
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise ValueError(f"dataset.path={path} {what} (seen from {Path.cwd()}); it must hold a folder for each class")
    times: dict[str, int] = {}
    own = _own_split(root, _subfolders(root, times))
    train = root / own["train"]
    classes = tuple(_subfolders(train, times))
    _check_classes(train, classes)
    files: list[str] = []
    labels: list[int] = []
    counts = dict.fromkeys(("train", "validation", "test"), 0)
    digest = hashlib.blake2b(digest_size=12)
    for split in (name for name in counts if name in own):
        for label, file, stat in _part(root / own[split], train, classes, times):
            files.append(os.path.relpath(file, root))
            labels.append(label)
            counts[split] += 1
            digest.update(f"{files[-1]}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return Listing(str(root), classes, tuple(files), tuple(labels), counts, digest.hexdigest(), times)


def _part(
    folder: Path, train: Path, classes: tuple[str, ...], times: dict[str, int]
) -> Iterator[tuple[int, str, os.stat_result]]:
    """Label and file of each image in a part of the split."""
    names = _subfolders(folder, times)
    if not names:
        raise ValueError(f"{folder} is empty: it must hold a folder for each class, or not be there")
    for name in names:
        if name not in classes:
            raise ValueError(f"{folder / name}: there is no class {name!r} in {train}, to be trained on")
        label, entry = classes.index(name), None
        for entry in _images(folder / name, times):
            yield label, entry.path, entry.stat()
        if entry is None:
            raise ValueError(f"{folder / name} holds no image; a class needs one at least ({READ})")


def remembered(path: object) -> Listing:
    """The same, listed once for all trials of a study as long as no folder changes."""
    known = _known.get(str(path))
    if known is None or any(_mtime_ns(folder) != time for folder, time in known.times.items()):
        known = _known[str(path)] = listing(path)
    return known


@lru_cache(maxsize=4)
def channels(found: Listing, wanted: int | None, skip_broken: bool) -> int:
    """The channels of all images, from their headers. None wanted: they must agree; else they will be converted.

    Raises ValueError, for the user, naming the first file that is no image or has other channels than most.
    """
    held: dict[int, int] = {}
    for row in range(len(found.files)):
        try:
            held[row] = header_channels(found.name(row))
        except OSError as error:
            if not skip_broken:
                damaged = "cannot identify" in str(error)
                reason = "its header is damaged, or it is of another kind" if damaged else error
                raise ValueError(
                    f"{found.name(row)} is no image that can be read ({reason})\n"
                    "Mend or remove it, or leave out and count all such files with dataset.skip_broken=true"
                ) from None
    if not held:
        raise ValueError(f"dataset.path={found.path}: none of its {len(found.files)} images can be read")
    check_left(found, held)
    if wanted is not None:
        return wanted
    usual, count = Counter(held.values()).most_common(1)[0]
    odd = next((row for row, depth in held.items() if depth != usual), None)
    if odd is not None:
        raise ValueError(
            f"{found.name(odd)} has {held[odd]} channel{'s' * (held[odd] > 1)}, but {count} of {len(found.files)} "
            f"images have {usual}\nTo convert all images, say dataset.channels=3 (colour) or dataset.channels=1 (grey)"
        )
    if usual == 2:
        raise ValueError(f"{found.name(next(iter(held)))} is grey and transparent: say dataset.channels=1, or 3")
    return usual


def check_left(found: Listing, rows: Collection[int]) -> None:
    """Raise Undecodable unless these `rows` of its files leave each class one to train on."""
    left = {found.labels[row] for row in rows if row < found.splits["train"]}
    lost = next((name for label, name in enumerate(found.classes) if label not in left), None)
    if lost is not None:
        raise Undecodable(
            f"{found.path}: no training image of class {lost!r} can be read, so that skip_broken=true leaves none\n"
            "Mend one, or remove the folder of that class"
        )


def first_channels(found: Listing) -> int:
    """The channels of the first image whose header can be read, for a folder whose images agree."""
    for row in range(len(found.files)):
        with suppress(OSError):
            return header_channels(found.name(row))
    raise ValueError(f"dataset.path={found.path}: none of its {len(found.files)} images can be read")


def cache_folder(setting: str | None) -> Path:
    """Where decoded images are kept: `dataset.cache`, or sweepyard/ in KERAS_HOME, or ~/.cache/sweepyard."""
    if setting is not None:
        return Path(setting).expanduser()
    home = os.environ.get("KERAS_HOME")
    base = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "sweepyard"


def entry_name(found: Listing, size: tuple[int, int], settings: Mapping[str, Any]) -> str:
    """The name under which the decoded images of a folder are kept."""
    mode = f"{settings.get('channels') or 'same'}{'-skip' if settings.get('skip_broken') else ''}"
    return f"{found.digest}-{size[0]}x{size[1]}-{mode}"


def channels_decoded(found: Listing, size: tuple[int, int], settings: Mapping[str, Any]) -> int | None:
    """The channels of a folder's images if they lie decoded in the cache: they need no second look then.

    Raises Undecodable if an earlier trial found them so.
    """
    kept = cache_folder(settings.get("cache")) / entry_name(found, size, settings)
    if kept.with_name(kept.name + REFUSED).exists():
        # Files that were mended since have changed no folder.
        refuse_again(kept.with_name(entry_name(listing(found.path), size, settings)))
    try:
        with (kept / IMAGES).open("rb") as file:
            npy.read_magic(file)
            return int(npy.read_array_header_1_0(file)[0][3])
    except (FileNotFoundError, ValueError, IndexError):  # not there, or damaged: it is made anew
        return None


def refuse_again(kept: Path) -> None:
    """Raise what making this entry of the cache ended with, if it was Undecodable."""
    with suppress(FileNotFoundError):
        if said := kept.with_name(kept.name + REFUSED).read_text():
            raise Undecodable(said)


def _check_classes(folder: Path, classes: tuple[str, ...]) -> None:
    stray = next((p for p in _sorted(folder) if p.is_file() and p.name.lower().endswith(SUFFIXES)), None)
    if stray is not None:
        raise ValueError(f"{stray.path} lies beside the folders of the classes; move it into one of them")
    if not classes:
        raise ValueError(f"{folder} holds no folder; it must hold a folder of images for each class")
    if len(classes) == 1:
        raise ValueError(f"{folder} holds one class only ({classes[0]!r}); there is nothing to tell apart")


def _subfolders(folder: Path, times: dict[str, int]) -> list[str]:
    times[str(folder)] = folder.stat().st_mtime_ns
    return [entry.name for entry in _sorted(folder) if entry.is_dir() and not entry.name.startswith(".")]


def _images(folder: Path, times: dict[str, int]) -> Iterator[os.DirEntry[str]]:
    times[str(folder)] = folder.stat().st_mtime_ns
    for entry in _sorted(folder):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _images(Path(entry.path), times)
        elif entry.name.lower().endswith(SUFFIXES):
            yield entry
        elif entry.name.lower().endswith(NOT_READ):
            raise ValueError(f"{entry.path} cannot be read; convert it to {READ}, or remove it")


def _sorted(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _mtime_ns(folder: str) -> int | None:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return None


def header_channels(path: str) -> int:
    """The channels of an image, from its header. Raises OSError."""
    from PIL import Image

    with Image.open(path, formats=("JPEG", "PNG", "BMP", "GIF")) as image:
        return 3 if image.format == "GIF" else CHANNELS.get(image.mode, 3)
