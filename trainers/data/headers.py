"""The header of an image file: its channels, bits and orientation; and why a file is no image."""

import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "BMP", "GIF")
CHANNELS = {
    "1": 1,
    "L": 1,
    "I": 1,
    "I;16": 1,
    "F": 1,
    "LA": 2,
    "La": 2,
    "PA": 4,
    "RGBA": 4,
    "RGBa": 4,
}
"""Channels of an image by its mode in Pillow; 3 for other modes."""
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by colour type: https://www.w3.org/TR/png/#11IHDR
_BIT_DEPTH = 24  # position of this byte in a PNG; the next byte is the colour type
_ORIENTATION = 0x0112  # tag of EXIF
_EXIF_OF_PNG = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")
_TEXT_BYTES = 64 * 2**20  # most of one text in a PNG, because image editors write several MB
_TAIL_BYTES = 1024


class Header(NamedTuple):
    """What a file says of its image."""

    channels: int
    bits: int  # of a channel: 8, or 16 in some PNG
    orientation: int  # of EXIF: 1 (upright) to 8


class Unreadable(ValueError):
    """The reason why a file cannot be decoded. It is lasting, unless the disk or its owner may
    change that."""

    def __init__(self, reason: str, is_lasting: bool = True) -> None:
        super().__init__(reason)
        self.is_lasting = is_lasting


def read(path: str) -> Header:
    """Return the header of an image file. Raises Unreadable."""
    with open_image(path) as image:
        orientation = _orientation(image)

        if image.format == "PNG":
            bits, colour_type = _png_header(path)
            return Header(_PNG_CHANNELS[colour_type], 16 if bits == 16 else 8, orientation)

        channels = 3 if image.format == "GIF" else CHANNELS.get(image.mode, 3)
        return Header(channels, 8, orientation)


def check(path: str, decode: bool) -> Header:
    """Return the header of an image file whose pixels are complete. Raises Unreadable.

    decode: decode the pixels; otherwise only those of a file whose end looks cut off, which is
    fast.
    """
    header = read(path)
    with open_image(path) as image:
        if decode or _looks_cut(path, str(image.format)):
            image.load()
    return header


@contextmanager
def open_image(path: str) -> Iterator["Image"]:
    """Open an image file. Raises Unreadable for whatever Pillow raises, also while the image is
    decoded."""
    from PIL import Image, PngImagePlugin, UnidentifiedImageError

    PngImagePlugin.MAX_TEXT_CHUNK = max(PngImagePlugin.MAX_TEXT_CHUNK, _TEXT_BYTES)
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # because a pipe would block
            raise Unreadable("it is no regular file")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                yield image
    except Unreadable:
        raise
    except UnidentifiedImageError:
        reason = "its header is damaged, or it is of another format"
        if Path(path).stat().st_size == 0:
            reason = "it is empty"
        raise Unreadable(reason) from None
    except OSError as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # because a damaged file raises any kind of error in Pillow
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Unreadable(reason) from error


def _unreadable(path: str, error: OSError) -> Unreadable:
    if isinstance(error, FileNotFoundError):
        is_link = Path(path).is_symlink()
        reason = "it is a link to a file that does not exist" if is_link else "it does not exist"
        return Unreadable(reason, is_lasting=False)
    if error.errno is None:
        return Unreadable(str(error))
    return Unreadable(str(error.strerror), is_lasting=False)


def _orientation(image: "Image") -> int:
    if image.format == "PNG" and not any(name in image.info for name in _EXIF_OF_PNG):
        return 1  # because Pillow would decode the whole image to look for it at the end

    with suppress(Exception):  # because the pixels are sound if only their EXIF is damaged
        value = image.getexif().get(_ORIENTATION, 1)
        if value in range(1, 9):
            return int(value)
    return 1


def _png_header(path: str) -> tuple[int, int]:
    """Return bits and colour type, because Pillow reports 16 bits of colour as 8."""
    with Path(path).open("rb") as file:
        file.seek(_BIT_DEPTH)
        bits, colour_type = file.read(2)
    return bits, colour_type


def _looks_cut(path: str, image_format: str) -> bool:
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        head = file.read(6)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read()

    if image_format == "PNG":
        return b"IEND" not in tail
    if image_format == "GIF":
        return not tail.rstrip(b"\0").endswith(b";")
    if image_format == "BMP":
        return size < int.from_bytes(head[2:6], "little")
    return b"\xff\xd9" not in tail
