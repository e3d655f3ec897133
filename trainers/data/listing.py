"""Classes, split and files of a folder of images."""

import hashlib
import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.lib import format as npy

IMAGES = "images.npy"
"""File of an entry of the cache."""
REFUSED = ".refused"
"""Suffix of the file with the reason why an entry of the cache cannot be made."""
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
READ = "JPEG, PNG, BMP or GIF"
NOT_CLASSES = ("__MACOSX", "@eaDir")
"""Folders that macOS' archives and Synology's disks add; others begin with a dot."""
NOT_READ = (".webp", ".tif", ".tiff", ".heic", ".avif", ".jp2", ".psd", ".svg")
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Parts of a split, by folder name in lower case."""
DECODER = 2
"""Number of the way of decoding, to be increased when it changes, because older entries of the
cache differ."""


class Undecodable(ValueError):
    """An entry of the cache that can never be made from these files."""


@dataclass(frozen=True, eq=False)
class Listing:
    """The images of a folder, ordered by part of the split (train, validation, test), then by
    class, then by name."""

    path: str
    classes: tuple[str, ...]  # sorted by name
    files: tuple[str, ...]  # relative to path
    labels: tuple[int, ...]  # index in `classes` of each file
    splits: Mapping[str, int]  # images in train, validation, test
    digest: str  # hash of names, sizes and times of the files
    times: Mapping[str, int]  # modification time of each folder (ns)
    size_bytes: int  # of all files

    def file(self, row: int) -> str:
        """Return the path of a file, to open it."""
        return str(Path(self.path) / self.files[row])

    def name(self, row: int) -> str:
        """Return the path of a file, to print it."""
        return _printable(self.file(row))


_listings: dict[str, Listing] = {}


def _split_folders(root: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the folder of each part of the split, relative to root; "" for train if root contains
    the classes."""
    parts = {SPLITS[name.lower()]: name for name in names if name.lower() in SPLITS}
    if "train" not in parts:
        if parts and len(parts) == len(names):
            raise ValueError(
                f"{root} contains {', '.join(names)}, but no folder train.\nAdd it, or choose a"
                " folder of classes"
            )
        return {"train": ""}
    if len(parts) < len(names):
        other = next(name for name in names if name not in parts.values())
        raise ValueError(
            f"{root}: only validation and test are allowed beside {parts['train']!r}. Move the"
            f" folder {other!r}"
        )
    return parts


def list_images(path: object) -> Listing:
    """List a folder. Raises ValueError, for the user, unless it contains two or more classes with
    images."""
    if path is None:
        raise ValueError(
            "dataset.path is null.\nType dataset.path=FOLDER, with a subfolder of images for each"
            " class"
        )
    root = Path(str(path)).expanduser()
    if not root.is_dir():
        problem = "is a file" if root.exists() else "does not exist"
        raise ValueError(
            f"dataset.path={path} {problem} (working directory: {Path.cwd()}).\n"
            "Choose a folder that contains a subfolder for each class"
        )
    try:
        return _list(root)
    except OSError as error:
        raise ValueError(
            f"dataset.path={path} cannot be read ({error}).\nMake it readable, or choose another"
            " folder"
        ) from error


def _list(root: Path) -> Listing:
    times: dict[str, int] = {}
    parts = _split_folders(root, _subfolders(root, times))
    train = root / parts["train"]
    classes = tuple(_class_folders(train, times))
    _check_classes(train, classes)
    files: dict[str, os.stat_result] = {}  # by relative path
    labels: list[int] = []
    counts = dict.fromkeys(("train", "validation", "test"), 0)
    for split in counts:
        if split not in parts:
            continue
        for label, image in _part(root / parts[split], train, classes, times):
            files[os.path.relpath(image.path, root)] = _status(image)
            labels.append(label)
            counts[split] += 1

    size_bytes = sum(status.st_size for status in files.values())
    return Listing(
        str(root), classes, tuple(files), tuple(labels), counts, _digest(files), times, size_bytes
    )


def _digest(files: Mapping[str, os.stat_result]) -> str:
    """Return the hash of names, sizes and times."""
    digest = hashlib.blake2b(digest_size=12)
    for file, status in files.items():
        line = f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _class_folders(folder: Path, times: dict[str, int]) -> dict[str, str]:
    """Return the folder of each class, by the class's name.

    Names are composed (Unicode's NFC), because macOS writes é as e and an accent. Raises ValueError
    if two are equal.
    """
    folders: dict[str, str] = {}
    for name in _subfolders(folder, times):
        composed = _printable(unicodedata.normalize("NFC", name))
        if composed in folders:
            raise ValueError(
                f"{folder} contains class {composed!r} twice: {folders[composed]!a} and {name!a}.\n"
                "Move the images into one of these folders, and remove the other"
            )
        folders[composed] = name
    return dict(sorted(folders.items()))


def _part(
    folder: Path, train: Path, classes: tuple[str, ...], times: dict[str, int]
) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """Yield label and file of each image in a part of the split."""
    folders = _class_folders(folder, times)
    if not folders:
        raise ValueError(f"{folder} is empty.\nRemove it, or add a folder for each class")
    for name, class_folder in folders.items():
        if name not in classes:
            raise ValueError(
                f"{folder / name}: there is no class {name!r} in {train}. Add it there, or remove"
                " this folder"
            )
        images = list(_images(folder / class_folder, times))
        if not images:
            raise ValueError(
                f"{folder / name} contains no image; a class needs at least one ({READ})"
            )
        label = classes.index(name)
        for image in images:
            yield label, image


def _status(image: os.DirEntry[str]) -> os.stat_result:
    """Return size and time of a file, or of a link to a file that does not exist."""
    try:
        return image.stat()
    except OSError:
        return image.stat(follow_symlinks=False)


def list_images_once(path: object) -> Listing:
    """Return the listing of a folder, cached for all trials of a study as long as no folder
    changes."""
    listing = _listings.get(str(path))
    if listing is None or any(_mtime_ns(folder) != time for folder, time in listing.times.items()):
        listing = _listings[str(path)] = list_images(path)
    return listing


def cache_folder(setting: str | None) -> Path:
    """Return the folder of decoded images: `dataset.cache`, or sweepyard/ in KERAS_HOME, or
    ~/.cache/sweepyard."""
    if setting is not None:
        return Path(setting).expanduser()
    home = os.environ.get("KERAS_HOME")
    base = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "sweepyard"


def entry_name(listing: Listing, size: tuple[int, int], settings: Mapping[str, Any]) -> str:
    """Return the name of the cache entry with the decoded images of a folder."""
    mode = f"{settings.get('channels') or 'same'}{'-skip' if settings.get('skip_broken') else ''}"
    return f"{listing.digest}-{size[0]}x{size[1]}-{mode}-{DECODER}"


def cached_channels(
    listing: Listing, size: tuple[int, int], settings: Mapping[str, Any]
) -> int | None:
    """Return the channels of a folder's images if the cache contains them decoded, else None.

    Raises Undecodable if an earlier trial did.
    """
    entry = cache_folder(settings.get("cache")) / entry_name(listing, size, settings)
    if entry.with_name(entry.name + REFUSED).exists():
        # Listed again, because repairing a file does not change its folder's time.
        raise_if_refused(entry.with_name(entry_name(list_images(listing.path), size, settings)))
    try:
        with (entry / IMAGES).open("rb") as file:
            npy.read_magic(file)
            return int(npy.read_array_header_1_0(file)[0][3])
    except (FileNotFoundError, ValueError, IndexError):
        # absent or damaged: a new entry will be made
        return None


def raise_if_refused(entry: Path) -> None:
    """Raise Undecodable again if an earlier attempt to make this entry of the cache did."""
    with suppress(FileNotFoundError):
        if reason := entry.with_name(entry.name + REFUSED).read_text():
            raise Undecodable(reason)


def _check_classes(folder: Path, classes: tuple[str, ...]) -> None:
    files = [
        entry for entry in _sorted(folder) if entry.is_file() and not _is_of_a_system(entry.name)
    ]
    strays = [file for file in files if file.name.lower().endswith(SUFFIXES)]
    if strays:
        raise ValueError(
            f"{strays[0].path} is outside of the folders of the classes. Move it into one of them"
        )
    if not classes:
        raise ValueError(f"{folder} contains no folder. Add a folder of images for each class")
    if len(classes) == 1:
        raise ValueError(
            f"{folder} contains only one class ({classes[0]!r}). Add a folder for another class"
        )


def _subfolders(folder: Path, times: dict[str, int]) -> list[str]:
    times[str(folder)] = folder.stat().st_mtime_ns
    entries = [entry for entry in _sorted(folder) if not _is_of_a_system(entry.name)]
    return [entry.name for entry in entries if _is_folder(entry)]


def _is_of_a_system(name: str) -> bool:
    """Return whether the operating system, or another program, keeps its own things under a
    name."""
    return name.startswith(".") or name in NOT_CLASSES


def _images(folder: Path, times: dict[str, int]) -> Iterator[os.DirEntry[str]]:
    times[str(folder)] = folder.stat().st_mtime_ns
    for entry in _sorted(folder):
        name = entry.name.lower()
        if _is_of_a_system(entry.name):
            continue
        if entry.is_symlink():
            target = os.path.realpath(entry.path)
            if Path(os.path.realpath(folder)).is_relative_to(target):
                problem = f"{entry.path} is a link to a folder that contains it"
                raise ValueError(f"{problem}.\nRemove this link")
        if _is_folder(entry):
            yield from _images(Path(entry.path), times)
        elif name.endswith(SUFFIXES):
            yield entry
        elif name.endswith(NOT_READ):
            raise ValueError(f"{entry.path} cannot be read. Convert it to {READ}, or remove it")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # of a link to itself
        return False


def _sorted(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _printable(path: str) -> str:
    """Return a name that can be printed: a byte that is no UTF-8 as its escape."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _mtime_ns(folder: str) -> int | None:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return None
